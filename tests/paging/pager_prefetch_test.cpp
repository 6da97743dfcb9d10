// SPDX-License-Identifier: Apache-2.0
// Speculative fills: guards, late hits, refusals; warm starts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pager_walk.hpp"
#include "random_source.hpp"

namespace hotset::pager_prefetch_test {
namespace {

using support::pager_walk;
using support::told_lru;
using testing::ElementsAre;
using testing::IsEmpty;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4};

pool_layout shared(std::int64_t slots) { return pool_layout::shared(shape, slots).value(); }

// Hazard 3: a row names a slot before its bytes have arrived.
TEST(pager_prefetch, a_filling_slot_is_in_no_row_until_it_has_arrived) {
  pager_walk w({.layout = shared(4)});
  const auto fills = w.prefetch(0, 0, {{{1_layer, 5_expert}, 0}});
  ASSERT_EQ(fills.size(), 1U);
  EXPECT_TRUE(fills[0].speculative);
  EXPECT_THAT(w.readable(1), IsEmpty());
  EXPECT_THAT(w.placed(1), ElementsAre(5));
  EXPECT_EQ(w.decisions.slot(fills[0].slot).state, slot_state::filling);
  w.arrive(fills);
  EXPECT_THAT(w.readable(1), ElementsAre(5));
  EXPECT_EQ(w.stats().speculative_fills, 1U);
  EXPECT_EQ(w.stats().fills, 0U);
}

TEST(pager_prefetch, a_late_hit_joins_the_fence_list_and_may_be_read_from_then_on) {
  pager_walk w({.layout = shared(4)});
  const auto fills = w.prefetch(0, 0, {{{0_layer, 5_expert}, 0}});
  w.visit(0, 0, {5, 1});
  EXPECT_THAT(w.plan.late_slots(), ElementsAre(fills[0].slot));
  EXPECT_EQ(w.plan.services()[0], service::hit);
  EXPECT_THAT(w.readable(0), ElementsAre(1, 5));
  EXPECT_EQ(w.stats().hits, 1U);
  EXPECT_EQ(w.stats().prefetch_hits, 1U);
  w.visit(1, 0, {5, 1});
  EXPECT_THAT(w.plan.late_slots(), IsEmpty());
  EXPECT_EQ(w.stats().prefetch_hits, 1U) << "only the first use is the prefetcher's";
}

TEST(pager_prefetch, an_early_copy_is_a_prefetch_hit_and_not_late) {
  pager_walk w({.layout = shared(4)});
  w.arrive(w.prefetch(0, 0, {{{0_layer, 5_expert}, 0}}));
  w.visit(0, 0, {5, 5});
  EXPECT_THAT(w.plan.late_slots(), IsEmpty());
  EXPECT_EQ(w.stats().prefetch_hits, 1U);
  EXPECT_EQ(w.stats().compulsory_misses, 0U);
}

TEST(pager_prefetch, late_hits_of_later_groups_join_their_own_fence_list) {
  pager_walk w({.layout = shared(4)});
  const auto fills = w.prefetch(0, 0, {{{0_layer, 5_expert}, 0}});
  ASSERT_EQ(w.try_plan(0, 0, {0, 1, 2, 3, 5, 4}), status::ok);
  ASSERT_TRUE(w.plan.more());
  std::vector<slot_id> late;
  while (true) {
    ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
    late.insert(late.end(), w.plan.late_slots().begin(), w.plan.late_slots().end());
    if (!w.plan.more()) break;
    ASSERT_EQ(w.decisions.plan_next(w.plan), status::ok);
  }
  EXPECT_THAT(late, ElementsAre(fills[0].slot));
}

// Hazard 12: a prefetch evicts experts in use.
TEST(pager_prefetch, named_protects_requested_and_read_experts) {
  for (const auto guard : {prefetch_guard::none, prefetch_guard::named}) {
    pager_walk w({.layout = shared(5), .guard = guard});
    w.visit(0, 0, {0, 1});
    w.visit(0, 1, {0, 1});
    w.visit(1, 0, {2, 2});  // order: (0,0) (0,1) (1,0) (1,1) (0,2)
    w.decisions.pin(w.decisions.locate({0_layer, 1_expert}));  // an open visit reads it
    w.prefetch(1, 0, {{{0_layer, 0_expert}, 2}});              // requested, resident
    w.prefetch(1, 0, {{{1_layer, 7_expert}, 1}});
    if (guard == prefetch_guard::none)
      EXPECT_THAT(w.placed(0), ElementsAre(1, 2)) << "whatever the policy picks";
    else
      EXPECT_THAT(w.placed(0), ElementsAre(0, 1, 2)) << "a named key stays";
    EXPECT_THAT(w.placed(1), guard == prefetch_guard::none ? testing::ElementsAreArray({0, 1, 7})
                                                           : testing::ElementsAreArray({1, 7}));
  }
}

TEST(pager_prefetch, a_request_is_over_with_the_visit_that_it_was_meant_for) {
  pager_walk w({.layout = shared(5)});
  w.visit(0, 0, {0, 1});
  w.visit(0, 1, {0, 1});
  w.prefetch(0, 1, {{{0_layer, 0_expert}, 1}});
  w.visit(1, 0, {1, 2});                         // the visit came and did not use 0
  w.prefetch(1, 0, {{{1_layer, 7_expert}, 1}});  // now 0 may be evicted
  EXPECT_THAT(w.placed(0), ElementsAre(1, 2));
}

TEST(pager_prefetch, one_plan_takes_no_slot_twice_and_spares_its_own_better_requests) {
  pager_walk w({.layout = shared(6)});
  w.visit(0, 0, {0, 1, 2, 3});
  w.visit(0, 1, {0, 1});
  const auto fills = w.prefetch(0, 0,
                                {{{0_layer, 0_expert}, 1},
                                 {{0_layer, 6_expert}, 1},
                                 {{0_layer, 6_expert}, 1},
                                 {{1_layer, 1_expert}, 1},
                                 {{1_layer, 7_expert}, 1}});
  ASSERT_EQ(fills.size(), 2U);
  EXPECT_NE(fills[0].slot, fills[1].slot);
  EXPECT_THAT(w.placed(0), ElementsAre(0, 3, 6));
  EXPECT_THAT(w.placed(1), ElementsAre(0, 1, 7));
}

TEST(pager_prefetch, room_for_one_token_always_stays_and_refusals_are_counted) {
  pager_walk w({.layout = shared(4)});
  const auto fills = w.prefetch(0, 0,
                                {{{0_layer, 0_expert}, 0},
                                 {{0_layer, 1_expert}, 0},
                                 {{0_layer, 2_expert}, 0},
                                 {{0_layer, 3_expert}, 0}});
  EXPECT_EQ(fills.size(), 2U);
  EXPECT_EQ(w.stats().refused_prefetches, 2U);
  w.visit(0, 1, {6, 7});
  EXPECT_THAT(w.readable(1), ElementsAre(6, 7));
}

TEST(pager_prefetch, a_failed_copy_leaves_the_slot_free_and_the_key_absent) {
  pager_walk w({.layout = shared(4)});
  w.visit(0, 0, {0, 1});
  const auto fills = w.prefetch(0, 0, {{{0_layer, 5_expert}, 0}});
  w.decisions.failed(fills[0].slot, fills[0].generation);
  support::expect_consistent(w.decisions);
  EXPECT_EQ(w.decisions.locate({0_layer, 5_expert}), no_slot);
  EXPECT_EQ(w.decisions.slot(fills[0].slot).state, slot_state::free);
  EXPECT_EQ(w.stats().failed_fills, 1U);
  w.decisions.failed(fills[0].slot, fills[0].generation);
  w.decisions.arrived(fills[0].slot, fills[0].generation);
  EXPECT_EQ(w.stats().failed_fills, 1U);
  EXPECT_EQ(w.decisions.slot(fills[0].slot).state, slot_state::free);
}

TEST(pager_prefetch, requests_for_residents_and_no_expert_only_notify_the_policy) {
  support::told_lru::journal journal;
  pager_walk<pager<told_lru>> w({.layout = shared(5), .eviction = {&journal}});
  w.visit(0, 0, {0, 1});
  journal.lines.clear();
  w.prefetch(0, 0,
             {{{0_layer, 1_expert}, 1},
              {{9_layer, 9_expert}, 1},
              {{0_layer, no_expert}, 1},
              {{1_layer, 3_expert}, 1}});
  EXPECT_THAT(journal.lines, ElementsAre("prefetch 3", "request 1"));
  EXPECT_EQ(w.stats().refused_prefetches, 0U);
}

TEST(pager_prefetch, a_prefetched_key_that_is_evicted_unused_and_then_missed_is_a_collision) {
  pager_walk w({.layout = shared(4)});
  w.visit(0, 0, {0, 1});
  w.arrive(w.prefetch(0, 0, {{{1_layer, 5_expert}, 1}}));
  w.visit(0, 1, {0, 1});
  w.visit(1, 0, {2, 3});  // evicts 5, which step 1 was to use
  ASSERT_EQ(w.decisions.locate({1_layer, 5_expert}), no_slot);
  w.visit(1, 1, {5, 0});
  EXPECT_EQ(w.stats().collision_misses, 1U);
  EXPECT_EQ(w.stats().prefetch_hits, 0U);
}

TEST(pager_warm, residents_and_plan_warm_continue_as_if_nothing_had_been) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    const auto layout = random.one_in(2) ? shared(7) : pool_layout::per_layer(shape, 3).value();
    pager_walk before({.layout = layout});
    const auto ids = [&] {
      return std::vector<std::int32_t>{random.id_below(8), random.id_below(8)};
    };
    for (step_id step = 0; step < 20; ++step)
      for (const auto l : each<layer_id>(2)) before.visit(step, l, ids());
    pager_walk after({.layout = layout});
    const auto saved = before.decisions.residents();
    for (std::span<const expert_key> keys = saved; !keys.empty();) {
      const auto [planned, consumed] = after.decisions.plan_warm(keys, after.plan);
      ASSERT_EQ(planned, status::ok);
      ASSERT_NE(consumed, 0U);
      const std::vector<fill> fills(after.plan.fills().begin(), after.plan.fills().end());
      ASSERT_EQ(after.decisions.commit(after.plan), status::ok);
      after.arrive(fills);
      keys = keys.subspan(consumed);
    }
    ASSERT_EQ(after.decisions.residents(), saved);
    const auto old = before.stats();
    for (step_id step = 20; step < 60; ++step)
      for (const auto l : each<layer_id>(2)) {
        const auto wanted = ids();
        before.visit(step, l, wanted);
        after.visit(step, l, wanted);
        ASSERT_EQ(before.decisions.residents(), after.decisions.residents());
      }
    EXPECT_EQ(after.stats().hits, before.stats().hits - old.hits);
    EXPECT_EQ(after.stats().prefetch_hits, 0U) << "a warm start is no prediction";
  }
}

TEST(pager_warm, takes_free_slots_only) {
  pager_walk w({.layout = shared(3)});
  w.visit(0, 0, {0, 1});
  const std::vector<expert_key> keys{
      {0_layer, 1_expert}, {1_layer, 4_expert}, {1_layer, 5_expert}, {9_layer, 9_expert}};
  ASSERT_EQ(w.decisions.plan_warm(keys, w.plan).code, status::ok);
  ASSERT_EQ(w.plan.fills().size(), 1U);
  EXPECT_EQ(w.plan.fills()[0].key, (expert_key{1_layer, 4_expert}));
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_THAT(w.placed(0), ElementsAre(0, 1));
  EXPECT_EQ(w.stats().refused_prefetches, 0U);
  EXPECT_EQ(w.stats().evictions, 0U);
}

TEST(pager_warm, a_warm_key_was_used_before) {
  pager_walk w({.layout = shared(2)});
  const std::vector<expert_key> keys{{0_layer, 1_expert}};
  ASSERT_EQ(w.decisions.plan_warm(keys, w.plan).code, status::ok);
  const auto f = w.plan.fills()[0];
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  w.arrive({f});
  w.visit(0, 0, {1, 1});
  w.visit(1, 0, {2, 3});
  w.visit(2, 0, {1, 1});
  EXPECT_EQ(w.stats().compulsory_misses, 2U) << "1 came back: that is no first use";
}

}  // namespace
}  // namespace hotset::pager_prefetch_test
