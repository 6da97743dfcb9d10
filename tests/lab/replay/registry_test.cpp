// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/registry.hpp"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/eviction/protect_hot.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/errors.hpp"
#include "lab/replay/replay.hpp"
#include "sim_samples.hpp"

namespace registry_test {
namespace {

using namespace hotset;
using lab::usage_error;
using support::refusal;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const routing_trace& sample() {
  static const auto trace =
      support::random_trace(1, {.layers = 2, .experts = 6, .steps = 30, .most_tokens = 2});
  return trace;
}
const visit_sequence& visits() {
  static const visit_sequence made(sample());
  return made;
}
pool_layout layout() { return pool_layout::shared(visits().shape(), 6).value(); }

policy_knowledge all_knowledge() {
  return {lab::order_events(visits(), layout(), false).future,
          {lab::count_uses(sample(), 0), "sample"}};
}
std::unique_ptr<any_pager> made(const std::string& eviction,
                                const std::string& admission = "always") {
  return lab::make_pager({eviction, admission, layout()}, all_knowledge());
}
std::uint64_t hash_of(const std::string& eviction, const std::string& admission = "always") {
  const auto pager = made(eviction, admission);
  for (std::size_t i = 0; i < visits().size(); ++i)
    EXPECT_EQ(pager->visit(visits()[i]), status::ok);
  EXPECT_EQ(pager->stats().visits, visits().size());
  return pager->decision_hash();
}
std::string refused(const std::string& eviction, const std::string& admission = "always") {
  return refusal<usage_error>([&] { (void)made(eviction, admission); });
}

TEST(registry, every_eviction_name_builds_and_replays) {
  for (const auto& name : support::plain_evictions()) {
    SCOPED_TRACE(name);
    EXPECT_NE(hash_of(name), 0U);
  }
}

TEST(registry, a_dotted_name_is_the_same_policy) {
  for (const auto& name : support::plain_evictions())
    EXPECT_EQ(hash_of("eviction." + name), hash_of(name)) << name;
  EXPECT_EQ(hash_of("eviction.protect_hot:uses=2+eviction.lru"), hash_of("protect_hot:uses=2+lru"));
  EXPECT_EQ(hash_of("lru", "admission.budgeted"), hash_of("lru", "budgeted"));
}

TEST(registry, a_dotted_name_of_another_folder_is_unknown) {
  EXPECT_THAT(refused("admission.lru"), HasSubstr("unknown eviction policy 'admission.lru'"));
  EXPECT_THAT(refused("lru", "eviction.always"),
              HasSubstr("unknown admission policy 'eviction.always'"));
}

TEST(registry, every_decorator_goes_around_every_policy_but_the_bypassing_one) {
  for (const auto& decorator : lab::eviction_decorator_names())
    for (const auto& name : support::plain_evictions()) {
      if (name == "belady_bypass") continue;
      SCOPED_TRACE(decorator + "+" + name);
      EXPECT_NE(hash_of(decorator + "+" + name), 0U);
    }
}

TEST(registry, every_admission_goes_with_every_policy_but_the_bypassing_one) {
  for (const auto& admission : lab::admission_names())
    for (const auto& name : support::plain_evictions()) {
      if (name == "belady_bypass") continue;
      SCOPED_TRACE(name + " behind " + admission);
      EXPECT_NE(hash_of(name, admission), 0U);
    }
}

TEST(registry, decorators_nest_and_parameters_reach_them) {
  EXPECT_NE(hash_of("protect_decode:window=2+protect_hot:uses=2+lfu:history=resident"),
            hash_of("lfu:history=resident"));
  EXPECT_NE(hash_of("protect_hot:uses=1+lru"), hash_of("protect_hot:uses=3+lru"));
}

TEST(registry, unknown_names_list_what_is_accepted) {
  const auto eviction = refused("lru2");
  for (const auto& name : lab::eviction_names()) EXPECT_THAT(eviction, HasSubstr(name));
  for (const auto& name : lab::eviction_decorator_names()) EXPECT_THAT(eviction, HasSubstr(name));
  EXPECT_THAT(eviction, HasSubstr("'lru2'"));
  const auto admission = refused("lru", "never");
  EXPECT_THAT(admission, HasSubstr("'never'"));
  for (const auto& name : lab::admission_names()) EXPECT_THAT(admission, HasSubstr(name));
}

TEST(registry, what_decorates_nothing_is_refused_as_a_decorator) {
  EXPECT_THAT(
      refused("lfu+lru"),
      AllOf(HasSubstr("'lfu'"), HasSubstr("protect_hot, protect_decode, reserve_prefetch")));
  EXPECT_THAT(refused("protect_hot"), HasSubstr("unknown eviction policy 'protect_hot'"));
}

TEST(registry, unknown_parameters_list_those_there_are) {
  EXPECT_THAT(refused("lru:k=2"), HasSubstr("unknown parameter 'k', accepted: none"));
  EXPECT_THAT(refused("lfu:history=whole:period=3"),
              HasSubstr("unknown parameter 'period', accepted: history, ageing_period"));
  EXPECT_THAT(refused("protect_hot:window=3+lru"),
              HasSubstr("unknown parameter 'window', accepted: uses"));
  EXPECT_THAT(refused("belady_bypass:x=1"), HasSubstr("unknown parameter 'x', accepted: none"));
  EXPECT_THAT(refused("lru", "always:n=1"), HasSubstr("unknown parameter 'n', accepted: none"));
  EXPECT_THAT(refused("lru", "budgeted:fills=1"), HasSubstr("accepted: fills_per_visit"));
}

TEST(registry, bad_values_name_the_accepted_ones) {
  EXPECT_THAT(refused("lfu:history=some"), HasSubstr("accepted: whole, resident"));
  EXPECT_THAT(refused("lfu:ageing_period=-1"),
              HasSubstr("ageing_period=-1, accepted: a whole number"));
  EXPECT_THAT(refused("lfru:decay=fast"), HasSubstr("decay=fast, accepted: a number"));
  EXPECT_THAT(refused("lfru:decay=2"), HasSubstr("accepted"));
  EXPECT_THAT(refused("gate_score:accumulate=max"), HasSubstr("accepted: sum, ema"));
  EXPECT_THAT(refused("gate_score:accumulate=ema:decay=1"), HasSubstr("accepted: [0, 1)"));
  EXPECT_THAT(refused("least_stale:order=recency"),
              HasSubstr("accepted: left, layer, last_access, stale"));
  EXPECT_THAT(refused("protect_hot:uses=0+lru"), HasSubstr("accepted: 1 or more"));
  EXPECT_THAT(refused("lru", "after_n_uses:uses=0"), HasSubstr("accepted: 1 or more"));
  EXPECT_THAT(refused("lru", "after_n_uses:uses=4:after_eviction=3"),
              HasSubstr("accepted: uses (4) or more"));
}

TEST(registry, after_n_uses_raises_its_second_threshold_with_the_first) {
  EXPECT_NO_THROW((void)made("lru", "after_n_uses:uses=9"));
  EXPECT_EQ(hash_of("lru", "after_n_uses:uses=9"),
            hash_of("lru", "after_n_uses:uses=9:after_eviction=9"));
}

TEST(registry, an_empty_budget_lets_nothing_in) {
  const auto pager = made("lru", "budgeted:fills_per_visit=0");
  for (std::size_t i = 0; i < visits().size(); ++i)
    ASSERT_EQ(pager->visit(visits()[i]), status::ok);
  EXPECT_EQ(pager->stats().fills, 0U);
  EXPECT_EQ(pager->stats().bypasses, pager->stats().accesses);
}

TEST(registry, offline_policies_are_refused_without_a_future) {
  for (const std::string name :
       {"belady", "belady_bypass", "next_visit_oracle", "protect_hot+belady"}) {
    SCOPED_TRACE(name);
    EXPECT_THAT(refusal<usage_error>([&] {
                  (void)lab::make_pager({name, "always", layout()}, {});
                }),
                HasSubstr("future"));
  }
}

TEST(registry, a_future_or_a_profile_of_another_shape_is_refused) {
  const auto other = support::random_trace(2, {.layers = 3, .experts = 5, .steps = 4});
  const visit_sequence elsewhere(other);
  const auto place = pool_layout::shared(elsewhere.shape(), 6).value();
  const policy_knowledge foreign{lab::order_events(elsewhere, place, false).future,
                                 {lab::count_uses(other, 0), "another"}};
  for (const std::string name : {"belady", "belady_bypass", "next_visit_oracle",
                                 "protect_hot+belady", "popularity", "protect_hot+popularity"})
    EXPECT_THROW((void)lab::make_pager({name, "always", layout()}, foreign), usage_error) << name;
  EXPECT_NO_THROW((void)lab::make_pager({"lru", "always", layout()}, foreign));
}

TEST(registry, belady_bypass_takes_no_decorator_and_no_admission) {
  EXPECT_THAT(refused("protect_hot+belady_bypass"), HasSubstr("no decorator"));
  for (const std::string admission : {"after_n_uses", "budgeted", "admission.budgeted"})
    EXPECT_THAT(refused("belady_bypass", admission), HasSubstr("accepted: --admission always"))
        << admission;
  EXPECT_THAT(refused("belady_bypass", "never"), HasSubstr("unknown admission policy"));
  EXPECT_NO_THROW((void)made("belady_bypass", "admission.always"));
}

TEST(registry, says_who_needs_the_future) {
  for (const std::string name : {"belady", "belady_bypass", "next_visit_oracle", "eviction.belady",
                                 "eviction.belady_bypass", "protect_hot+belady"})
    EXPECT_TRUE(lab::needs_future(name)) << name;
  for (const std::string name : {"lru", "popularity", "protect_hot:uses=2+eviction.lfu"})
    EXPECT_FALSE(lab::needs_future(name)) << name;
}

TEST(registry, says_where_popularity_takes_its_profile_from) {
  EXPECT_EQ(lab::requested_profile("lru"), std::nullopt);
  EXPECT_EQ(lab::requested_profile("popularity"), (profile_request{"trace", 0}));
  EXPECT_EQ(lab::requested_profile("protect_hot+eviction.popularity:first=64"),
            (profile_request{"trace", 64}));
  EXPECT_EQ(lab::requested_profile("popularity:profile=a.csv:first=3"),
            (profile_request{"a.csv", 3}));
}

TEST(registry, policies_can_be_checked_before_there_is_a_trace) {
  for (const auto& name : lab::eviction_names())
    EXPECT_NO_THROW(lab::check_policies(name, "always")) << name;
  for (const auto& name : lab::admission_names())
    EXPECT_NO_THROW(lab::check_policies("protect_hot+belady", name)) << name;
  EXPECT_THROW(lab::check_policies("lru2", "always"), usage_error);
  EXPECT_THROW(lab::check_policies("lru", "never"), usage_error);
  EXPECT_THROW(lab::check_policies("belady_bypass", "budgeted"), usage_error);
}

TEST(registry, make_eviction_validates_before_anything_is_built) {
  EXPECT_EQ(lab::make_eviction("lru").validate(), std::nullopt);
  EXPECT_THROW((void)lab::make_eviction("belady"), usage_error);
  EXPECT_THROW((void)lab::make_eviction("belady_bypass", all_knowledge()), usage_error);
  EXPECT_EQ(any_eviction_policy(layout(), lab::make_eviction("protect_hot+lru")).held_name(),
            protect_hot<any_eviction_policy>::name);
}

TEST(registry, names_are_those_of_the_documentation) {
  EXPECT_THAT(lab::admission_names(),
              ElementsAre("always", "after_n_uses", "budgeted", "least_valuable"));
  EXPECT_THAT(lab::eviction_decorator_names(),
              ElementsAre("protect_hot", "protect_decode", "reserve_prefetch"));
}

}  // namespace
}  // namespace registry_test
