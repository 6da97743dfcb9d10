// SPDX-License-Identifier: Apache-2.0
// Visits whose experts do not fit: token groups, and splitting by expert.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/eviction/gate_score.hpp"
#include "hotset/eviction/lfu.hpp"
#include "pager_walk.hpp"

namespace hotset::pager_groups_test {
namespace {

using support::pager_walk;
using support::picky;
using support::told_lru;
using testing::ElementsAre;
using testing::IsEmpty;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 6};

pool_layout shared(std::int64_t slots) { return pool_layout::shared(shape, slots).value(); }

// Hazard 8: a visit larger than the cache fails.
TEST(pager_groups, a_union_that_does_not_fit_is_planned_group_by_group) {
  pager_walk w({.layout = shared(3)});
  ASSERT_EQ(w.try_plan(0, 0, {0, 1, 2, 3, 1, 2}), status::ok);
  EXPECT_EQ(w.plan.groups(), 2U);
  EXPECT_EQ(w.plan.group(), 0U);
  EXPECT_TRUE(w.plan.more());
  EXPECT_FALSE(w.plan.expert_wise());
  EXPECT_THAT(w.plan.tokens(), ElementsAre(0, 2));
  EXPECT_THAT(w.plan.experts(), ElementsAre(0, 1, 2));
  ASSERT_TRUE(w.next_group());
  EXPECT_FALSE(w.plan.more());
  EXPECT_EQ(w.plan.group(), 1U);
  EXPECT_THAT(w.plan.tokens(), ElementsAre(1));
  EXPECT_THAT(w.plan.services(), ElementsAre(service::hit, service::fill));
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_EQ(w.decisions.plan_next(w.plan), status::no_plan);
  EXPECT_EQ(w.stats().split_visits, 1U);
  EXPECT_EQ(w.stats().groups, 2U);
}

TEST(pager_groups, a_visit_that_fits_has_one_group_of_all_its_tokens) {
  pager_walk w({.layout = shared(4)});
  ASSERT_EQ(w.try_plan(0, 0, {0, 1, 2, 3, 1, 2}), status::ok);
  EXPECT_EQ(w.plan.groups(), 1U);
  EXPECT_FALSE(w.plan.more());
  EXPECT_THAT(w.plan.tokens(), ElementsAre(0, 1, 2));
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_EQ(w.decisions.plan_next(w.plan), status::no_plan);
}

TEST(pager_groups, statistics_count_the_visit_once_and_every_fill) {
  pager_walk w({.layout = shared(2)});
  w.visit(0, 0, {0, 1});
  EXPECT_EQ(w.visit(1, 0, {2, 3, 0, 4}), 4U);  // 0 was a hit, but group 0 evicted it: a refill
  const auto s = w.stats();
  EXPECT_EQ(s.visits, 2U);
  EXPECT_EQ(s.accesses, 2U + 4U);
  EXPECT_EQ(s.hits, 1U);
  EXPECT_EQ(s.misses, 2U + 3U);
  EXPECT_EQ(s.fills, 6U);
  EXPECT_EQ(s.fills + s.bypasses - s.misses, 1U) << "refills";
  EXPECT_EQ(s.collision_misses, 0U) << "a refill is no collision";
  EXPECT_EQ(s.compulsory_misses, 5U);
  EXPECT_EQ(s.per_layer[0].accesses, 6U);
  EXPECT_EQ(s.per_layer[1].accesses, 0U);
}

TEST(pager_groups, statistics_hold_when_the_first_group_has_only_hits) {
  pager_walk w({.layout = shared(2)});
  w.visit(0, 0, {0, 1});
  w.visit(1, 0, {0, 1, 2, 3});
  const auto s = w.stats();
  EXPECT_EQ(s.accesses, 6U);
  EXPECT_EQ(s.hits, 2U);
  EXPECT_EQ(s.compulsory_misses, 4U);
  EXPECT_EQ(s.split_visits, 1U);
  EXPECT_EQ(s.groups, 2U);
  EXPECT_EQ(s.steps_with_miss, 2U);
}

TEST(pager_groups, a_policy_counts_a_key_once_in_a_visit) {
  support::told_lru::journal journal;
  pager_walk<pager<told_lru>> w({.layout = shared(3), .eviction = {&journal}});
  w.visit(0, 0, {0, 1, 2, 3, 1, 2});
  EXPECT_THAT(journal.lines, ElementsAre("step 0 layer 0", "fill 0", "fill 1", "fill 2",
                                         "step 0 layer 0", "evict 0", "hit 2 again", "fill 3"));
}

TEST(pager_groups, lfu_counts_a_visit_once_however_it_is_divided) {
  pager_walk<pager<lfu>> w({.layout = shared(3)});
  w.visit(0, 0, {0, 1, 2, 3, 0, 2, 0, 3, 0, 4});  // 0 is in several groups
  w.visit(1, 0, {5, 5});
  w.visit(2, 0, {5, 5});
  w.visit(3, 0, {6, 7});
  EXPECT_THAT(w.readable(0), ElementsAre(5, 6, 7))
      << "had 0 been counted per group, it would outlive 5";
}

TEST(pager_groups, a_failed_group_can_be_planned_again) {
  pager_walk w({.layout = shared(2)});
  ASSERT_EQ(w.try_plan(0, 0, {0, 1, 2, 3}), status::ok);
  ASSERT_TRUE(w.next_group());
  ASSERT_EQ(w.decisions.abort(w.plan, std::vector<std::uint8_t>{1, 0}), status::ok);
  ASSERT_EQ(w.decisions.plan_next(w.plan), status::ok);
  EXPECT_THAT(w.plan.experts(), ElementsAre(2, 3));
  EXPECT_EQ(w.plan.group(), 1U);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  support::expect_consistent(w.decisions);
}

TEST(pager_groups, every_call_is_refused_until_the_rest_is_abandoned) {
  pager_walk w({.layout = shared(2)});
  ASSERT_EQ(w.try_plan(0, 0, {0, 1, 2, 3}), status::ok);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_EQ(w.decisions.set_quota(0_layer, 2), status::visit_unfinished);
  EXPECT_EQ(w.try_plan(1, 0, {4, 5}), status::visit_unfinished);
  EXPECT_TRUE(w.decisions.is_unfinished(w.plan));
  w.decisions.abandon();
  EXPECT_FALSE(w.decisions.is_unfinished(w.plan));
  EXPECT_EQ(w.decisions.plan_next(w.plan), status::no_plan);
  w.visit(1, 0, {4, 5});
  EXPECT_EQ(w.decisions.set_quota(0_layer, 2), status::ok);
}

TEST(pager_groups, pinned_slots_leave_less_room) {
  pager_walk w({.layout = shared(4)});
  w.visit(0, 1, {6, 7});
  w.decisions.pin(w.decisions.locate({1_layer, 6_expert}));
  w.decisions.pin(w.decisions.locate({1_layer, 7_expert}));
  ASSERT_EQ(w.try_plan(1, 0, {0, 1, 2, 3}), status::ok);
  EXPECT_EQ(w.plan.groups(), 2U);
  ASSERT_TRUE(w.next_group());
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_THAT(w.readable(1), ElementsAre(6, 7));
  w.decisions.pin(w.decisions.locate({0_layer, 2_expert}));
  EXPECT_EQ(w.try_plan(2, 0, {0, 1, 3, 4}), status::no_victim)
      << "one slot cannot serve a token of two";
}

TEST(pager_groups, an_incomplete_token_is_filled_up_with_absent_ids) {
  pager_walk w({.layout = shared(2)});
  EXPECT_EQ(w.try_plan(0, 0, {0, 1, 2}), status::invalid_visit);
  EXPECT_EQ(w.try_plan(0, 0, {0, 1, 2, -1}), status::ok);
  EXPECT_EQ(w.plan.groups(), 2U);
}

TEST(pager_groups, the_next_group_belongs_to_the_plan_that_holds_the_visit) {
  pager_walk w({.layout = shared(2)});
  ASSERT_EQ(w.try_plan(0, 0, {0, 1, 2, 3}), status::ok);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  auto other = w.decisions.make_plan();
  EXPECT_EQ(w.decisions.plan_next(other), status::no_plan) << "it holds no visit";
  const std::vector<std::int32_t> ids{4, 5, 6, 7};
  w.decisions.abandon();
  ASSERT_EQ(w.decisions.plan(w.view(1, 1, ids), other), status::ok);
  EXPECT_EQ(w.decisions.plan_next(w.plan), status::plan_open);
  ASSERT_EQ(w.decisions.commit(other), status::ok);
  EXPECT_EQ(w.decisions.plan_next(w.plan), status::no_plan) << "another visit has come";
  ASSERT_EQ(w.decisions.plan_next(other), status::ok);
  EXPECT_EQ(other.context().layer, 1);
  ASSERT_EQ(w.decisions.commit(other), status::ok);
}

TEST(pager_groups, a_plan_that_was_used_for_something_else_holds_no_visit) {
  pager_walk w({.layout = pool_layout::per_layer(shape, 2).value()});
  ASSERT_EQ(w.try_plan(0, 0, {0, 1, 2, 3}), status::ok);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  w.prefetch(0, 0, {{{1_layer, 5_expert}, 0}});
  EXPECT_EQ(w.decisions.plan_next(w.plan), status::no_plan);
}

TEST(pager_groups, speculation_takes_no_slot_that_a_later_group_needs) {
  pager_walk w({.layout = shared(5), .guard = prefetch_guard::none});
  ASSERT_EQ(w.try_plan(0, 0, {0, 1, 2, 3, 4, 5, 6, 7}), status::ok);
  ASSERT_EQ(w.plan.groups(), 2U);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  auto aside = w.decisions.make_plan();
  const std::vector<prefetch_request> wanted{
      {{1_layer, 2_expert}, 0}, {{1_layer, 3_expert}, 0}, {{0_layer, 0_expert}, 1}};
  const std::vector<expert_key> keys{{1_layer, 2_expert}};
  for (const bool free_slots : {false, true}) {
    if (free_slots) {
      ASSERT_EQ(w.decisions.invalidate(0_layer), status::ok);
    }
    ASSERT_EQ(w.decisions.plan_prefetch(w.plan.context(), wanted, aside), status::ok);
    EXPECT_THAT(aside.fills(), IsEmpty());
    EXPECT_EQ(aside.deferred().size(), free_slots ? 3U : 2U);
    ASSERT_EQ(w.decisions.commit(aside), status::ok);
    EXPECT_EQ(w.decisions.plan_warm(keys, aside).code, status::visit_unfinished);
  }
  ASSERT_EQ(w.decisions.plan_next(w.plan), status::ok);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  ASSERT_EQ(w.decisions.plan_prefetch(w.plan.context(), wanted, aside), status::ok);
  EXPECT_FALSE(aside.fills().empty());
  ASSERT_EQ(w.decisions.commit(aside), status::ok);
  support::expect_consistent(w.decisions);
}

TEST(pager_groups, refused_experts_stay_on_the_host_in_every_group) {
  pager_walk<pager<lru, picky>> w({.layout = shared(2), .admission = {{7_expert}}});
  ASSERT_EQ(w.try_plan(0, 0, {0, 7, 1, 7, 2, 7}), status::ok);
  ASSERT_EQ(w.plan.groups(), 2U);
  EXPECT_THAT(w.plan.tokens(), ElementsAre(0, 1));
  EXPECT_THAT(w.plan.services(), ElementsAre(service::fill, service::host, service::fill));
  EXPECT_EQ(w.plan.slots()[1], no_slot);
  ASSERT_TRUE(w.next_group());
  EXPECT_THAT(w.plan.services(), ElementsAre(service::fill, service::host));
  EXPECT_EQ(w.plan.host_count(), 1U);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_EQ(w.stats().bypasses, 1U) << "a visit's, not a group's";
  EXPECT_EQ(w.stats().misses, 4U);
  EXPECT_EQ(w.stats().fills, 3U);
}

TEST(pager_groups, by_expert_uses_residents_first_and_fills_each_expert_once) {
  pager_walk w({.layout = shared(3), .split = visit_split::by_expert});
  w.visit(0, 0, {4, 5});
  ASSERT_EQ(w.try_plan(1, 0, {0, 1, 2, 5, 4, 3}), status::ok);
  EXPECT_TRUE(w.plan.expert_wise());
  EXPECT_THAT(w.plan.tokens(), ElementsAre(0, 1, 2));
  EXPECT_EQ(w.plan.groups(), 2U);
  EXPECT_THAT(w.plan.experts(), ElementsAre(5, 4, 0));
  ASSERT_TRUE(w.next_group());
  EXPECT_THAT(w.plan.experts(), ElementsAre(1, 2, 3));
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_EQ(w.stats().fills, 2U + 4U);
  EXPECT_EQ(w.stats().misses, 2U + 4U) << "no refills";
}

TEST(pager_groups, by_expert_passes_the_weights_of_the_whole_visit) {
  pager_walk<pager<gate_score>> w({.layout = shared(2), .split = visit_split::by_expert});
  w.visit(0, 0, {0, 1, 2, 3}, {0.9F, 0.1F, 0.2F, 0.8F});
  // Resident: 2 (0.2) and 3 (0.8). Without the weights, recency would also evict 2; so 3 is used less recently.
  w.visit(1, 0, {2, 2}, {0.1F, 0.1F});
  w.visit(2, 0, {5, 5}, {0.9F, 0.1F});
  EXPECT_THAT(w.readable(0), ElementsAre(3, 5));
}

}  // namespace
}  // namespace hotset::pager_groups_test
