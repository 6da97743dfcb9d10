// SPDX-License-Identifier: Apache-2.0
#include "hotset/registry/parameters.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace parameters_test {
namespace {

using hotset::parameters;
using hotset::parse_policy;
using hotset::parse_policy_chain;
using hotset::policy_spec;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

policy_spec parsed(const std::string& text) { return *parse_policy(text); }
template <class Read>
std::string why(const policy_spec& spec, Read read) {
  parameters from(spec);
  read(from);
  return from.finish().value_or(hotset::error{"nothing"}).message;
}

TEST(policy_spec, a_name_alone_has_no_parameters) {
  const auto spec = parsed("lru");
  EXPECT_EQ(spec.name, "lru");
  EXPECT_THAT(spec.parameters, IsEmpty());
}

TEST(policy_spec, parameters_keep_their_order) {
  const auto spec = parsed("lfu:history=resident:ageing_period=64");
  EXPECT_EQ(spec.name, "lfu");
  EXPECT_THAT(spec.parameters,
              ElementsAre(Pair("history", "resident"), Pair("ageing_period", "64")));
}

TEST(policy_spec, a_value_may_hold_an_equals_sign) {
  EXPECT_THAT(parsed("popularity:profile=a=b").parameters, ElementsAre(Pair("profile", "a=b")));
}

TEST(policy_spec, a_chain_lists_decorators_from_the_outermost) {
  const auto chain = *parse_policy_chain("protect_decode:window=8+protect_hot:uses=4+lru");
  ASSERT_EQ(chain.size(), 3U);
  EXPECT_EQ(chain[0].name, "protect_decode");
  EXPECT_THAT(chain[1].parameters, ElementsAre(Pair("uses", "4")));
  EXPECT_EQ(chain[2].name, "lru");
}

TEST(policy_spec, malformed_texts_are_shown_with_the_grammar) {
  for (const std::string text :
       {"", ":a=1", "lru:", "lru:history", "lru:=1", "lru:a=", "lru:a=1:"}) {
    SCOPED_TRACE(text);
    const auto refused = parse_policy(text);
    ASSERT_FALSE(refused);
    const auto message = refused.error().message;
    EXPECT_THAT(message, HasSubstr("'" + text + "'"));
    EXPECT_THAT(message, HasSubstr("name:parameter=value"));
  }
}

TEST(policy_spec, a_parameter_is_given_once) {
  EXPECT_EQ(parse_policy("p:n=1:m=2:n=1").error().message,
            "p: parameter 'n' is given twice, accepted: once");
  EXPECT_EQ(parse_policy_chain("q+p:n=1:n=2").error().message,
            "p: parameter 'n' is given twice, accepted: once");
}

TEST(policy_spec, a_chain_with_an_empty_element_is_refused) {
  for (const std::string text : {"", "+", "+lru", "lru+", "protect_hot++lru"}) {
    SCOPED_TRACE(text);
    EXPECT_FALSE(parse_policy_chain(text));
  }
}

TEST(parameters, gives_defaults_for_missing_parameters) {
  const policy_spec spec{"p", {}};
  parameters read(spec);
  EXPECT_EQ(read.number("n", std::uint64_t{7}), 7U);
  EXPECT_EQ(read.real("r", 0.5), 0.5);
  EXPECT_EQ(read.choice("c", {"a", "b"}, 1), 1U);
  EXPECT_EQ(read.text("t", "word"), "word");
  EXPECT_FALSE(read.finish());
}

TEST(parameters, reads_each_kind_of_value) {
  const auto spec = parsed("p:n=18446744073709551615:r=0.25:c=b:t=word");
  parameters read(spec);
  EXPECT_EQ(read.number("n", std::uint64_t{0}), 18446744073709551615U);
  EXPECT_EQ(read.real("r", 0), 0.25);
  EXPECT_EQ(read.choice("c", {"a", "b"}, 0), 1U);
  EXPECT_EQ(read.text("t", ""), "word");
  EXPECT_FALSE(read.finish());
}

TEST(parameters, names_the_parameter_the_value_and_the_accepted_range) {
  for (const std::string value : {"-1", "1.5", "x", "3 ", "0x3", "18446744073709551616"}) {
    SCOPED_TRACE(value);
    const policy_spec spec{"p", {{"n", value}}};
    const auto message = why(spec, [](parameters& p) { (void)p.number("n", std::uint64_t{0}); });
    EXPECT_THAT(message, HasSubstr("p: n=" + value + ", accepted: a whole number"));
  }
  for (const std::string value : {"x", "nan", "inf", "1,5", "1e999"}) {
    SCOPED_TRACE(value);
    const policy_spec spec{"p", {{"r", value}}};
    const auto message = why(spec, [](parameters& p) { (void)p.real("r", 0); });
    EXPECT_THAT(message, HasSubstr("p: r=" + value + ", accepted: a number"));
  }
  const auto spec = parsed("p:c=d");
  const auto message = why(spec, [](parameters& p) { (void)p.choice("c", {"a", "b"}, 0); });
  EXPECT_THAT(message, HasSubstr("p: c 'd'; accepted: a, b"));
}

TEST(parameters, refuses_unknown_parameters) {
  const auto spec = parsed("p:n=1:typo=2");
  parameters read(spec);
  (void)read.number("n", std::uint64_t{0});
  (void)read.real("r", 0);
  EXPECT_THAT(read.finish()->message, HasSubstr("p: unknown parameter 'typo', accepted: n, r"));
}

TEST(parameters, accepts_none_if_no_parameter_is_known) {
  const auto spec = parsed("lru:k=2");
  EXPECT_THAT(parameters(spec).finish()->message, HasSubstr("accepted: none"));
}

TEST(parameters, a_number_has_to_fit) {
  const auto spec = parsed("p:n=256");
  parameters read(spec);
  EXPECT_EQ(read.number("n", std::uint8_t{7}), 7U);
  EXPECT_EQ(read.finish()->message, "p: n=256, accepted: a whole number from 0 to 255");
}

TEST(parameters, the_first_mistake_is_reported) {
  const auto spec = parsed("p:a=x:b=y:c=1");
  parameters read(spec);
  (void)read.real("a", 0);
  (void)read.number("b", 0);
  EXPECT_THAT(read.finish()->message, HasSubstr("a=x"));
}

}  // namespace
}  // namespace parameters_test
