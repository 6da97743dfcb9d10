// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/policy_spec.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/sim/errors.hpp"
#include "sim_samples.hpp"

namespace {

using hotset::sim::parameter_reader;
using hotset::sim::parse_policy;
using hotset::sim::parse_policy_chain;
using hotset::sim::policy_spec;
using hotset::sim::usage_error;
using hotset::support::refusal;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

TEST(policy_spec, a_name_alone_has_no_parameters) {
  const auto spec = parse_policy("lru");
  EXPECT_EQ(spec.name, "lru");
  EXPECT_THAT(spec.parameters, IsEmpty());
}

TEST(policy_spec, parameters_keep_their_order) {
  const auto spec = parse_policy("lfu:history=resident:ageing_period=64");
  EXPECT_EQ(spec.name, "lfu");
  EXPECT_THAT(spec.parameters,
              ElementsAre(Pair("history", "resident"), Pair("ageing_period", "64")));
}

TEST(policy_spec, a_value_may_hold_an_equals_sign) {
  EXPECT_THAT(parse_policy("popularity:profile=a=b").parameters,
              ElementsAre(Pair("profile", "a=b")));
}

TEST(policy_spec, text_gives_back_what_was_parsed) {
  for (const std::string text : {"lru", "lfu:history=resident", "x:b=2:a=1"})
    EXPECT_EQ(parse_policy(text).text(), text);
}

TEST(policy_spec, a_chain_goes_from_the_outermost_decorator_to_the_policy) {
  const auto chain = parse_policy_chain("protect_decode:window=8+protect_hot:uses=4+lru");
  ASSERT_EQ(chain.size(), 3U);
  EXPECT_EQ(chain[0].text(), "protect_decode:window=8");
  EXPECT_EQ(chain[1].text(), "protect_hot:uses=4");
  EXPECT_EQ(chain[2].text(), "lru");
}

TEST(policy_spec, malformed_texts_are_shown_with_the_grammar) {
  for (const std::string text :
       {"", ":a=1", "lru:", "lru:history", "lru:=1", "lru:a=", "lru:a=1:"}) {
    SCOPED_TRACE(text);
    const auto message = refusal<usage_error>([&] { (void)parse_policy(text); });
    EXPECT_THAT(message, HasSubstr("'" + text + "'"));
    EXPECT_THAT(message, HasSubstr("name:parameter=value"));
  }
}

TEST(policy_spec, a_chain_with_an_empty_element_is_refused) {
  for (const std::string text : {"", "+", "+lru", "lru+", "protect_hot++lru"}) {
    SCOPED_TRACE(text);
    EXPECT_THROW((void)parse_policy_chain(text), usage_error);
  }
}

TEST(parameter_reader, gives_defaults_for_what_is_not_there) {
  const policy_spec spec{"p", {}};
  parameter_reader read(spec);
  EXPECT_EQ(read.number("n", 7), 7U);
  EXPECT_EQ(read.real("r", 0.5), 0.5);
  EXPECT_EQ(read.choice("c", {"a", "b"}, 1), 1U);
  EXPECT_EQ(read.text("t", "word"), "word");
  EXPECT_NO_THROW(read.finish());
}

TEST(parameter_reader, reads_each_kind_of_value) {
  const auto spec = parse_policy("p:n=18446744073709551615:r=0.25:c=b:t=word");
  parameter_reader read(spec);
  EXPECT_EQ(read.number("n", 0), 18446744073709551615U);
  EXPECT_EQ(read.real("r", 0), 0.25);
  EXPECT_EQ(read.choice("c", {"a", "b"}, 0), 1U);
  EXPECT_EQ(read.text("t", ""), "word");
  EXPECT_NO_THROW(read.finish());
}

TEST(parameter_reader, names_the_parameter_the_value_and_what_is_accepted) {
  for (const std::string value : {"-1", "1.5", "x", "3 ", "0x3", "18446744073709551616"}) {
    SCOPED_TRACE(value);
    const policy_spec spec{"p", {{"n", value}}};
    const auto message = refusal<usage_error>([&] { (void)parameter_reader(spec).number("n", 0); });
    EXPECT_THAT(message, HasSubstr("p: n=" + value + ", accepted: a whole number"));
  }
  for (const std::string value : {"x", "nan", "inf", "1,5", "1e999"}) {
    SCOPED_TRACE(value);
    const policy_spec spec{"p", {{"r", value}}};
    const auto message = refusal<usage_error>([&] { (void)parameter_reader(spec).real("r", 0); });
    EXPECT_THAT(message, HasSubstr("p: r=" + value + ", accepted: a number"));
  }
  const auto spec = parse_policy("p:c=d");
  const auto message = refusal<usage_error>([&] {
    (void)parameter_reader(spec).choice("c", {"a", "b"}, 0);
  });
  EXPECT_THAT(message, HasSubstr("p: c 'd'; accepted: a, b"));
}

TEST(parameter_reader, refuses_what_nobody_asked_for) {
  const auto spec = parse_policy("p:n=1:typo=2");
  parameter_reader read(spec);
  (void)read.number("n", 0);
  (void)read.real("r", 0);
  EXPECT_THAT(refusal<usage_error>([&] { read.finish(); }),
              HasSubstr("p: unknown parameter 'typo', accepted: n, r"));
}

TEST(parameter_reader, says_none_where_no_parameter_is_known) {
  const auto spec = parse_policy("lru:k=2");
  EXPECT_THAT(refusal<usage_error>([&] { parameter_reader(spec).finish(); }),
              HasSubstr("accepted: none"));
}

TEST(parameter_reader, refuses_a_parameter_that_is_given_twice) {
  const auto spec = parse_policy("p:n=1:n=2");
  parameter_reader read(spec);
  (void)read.number("n", 0);
  EXPECT_THROW(read.finish(), usage_error);
}

}  // namespace
