// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/pager_stats.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pager_walk.hpp"

namespace hotset::pager_stats_test {
namespace {

using support::pager_walk;
using support::picky;
using support::told_lru;
using testing::ElementsAre;

const geometry shape{
    .layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4, .expert_bytes = {10, 30}};

pool_layout shared(std::int64_t slots) { return pool_layout::shared(shape, slots).value(); }

// Hazard 9 needs it: the pager knows each visit's request class.
TEST(pager_stats, accesses_are_counted_by_request_class_and_layer) {
  pager_walk w({.layout = shared(6)});
  w.kind = request_class::prefill;
  w.visit(0, 0, {0, 1, 2, 3});
  w.kind = request_class::decode;
  w.visit(1, 0, {0, 4});
  w.kind = request_class::verify;
  w.visit(2, 1, {0, 1});
  const auto s = w.stats();
  EXPECT_EQ(s.by_kind[0], (access_counts{2, 1}));
  EXPECT_EQ(s.by_kind[1], (access_counts{4, 0}));
  EXPECT_EQ(s.by_kind[2], (access_counts{2, 0}));
  EXPECT_THAT(s.per_layer, ElementsAre(layer_counts{{6, 1}, 5, 50}, layer_counts{{2, 0}, 2, 60}));
  EXPECT_EQ(s.accesses, 8U);
  EXPECT_EQ(s.hits, 1U);
  EXPECT_EQ(s.misses, 7U);
}

// Hazard 31: hits are not the cost; bytes are counted.
TEST(pager_stats, bytes_are_those_of_the_layer) {
  pager_walk w({.layout = shared(6)});
  w.visit(0, 0, {0, 1});
  w.visit(0, 1, {0, 1});
  w.prefetch(0, 1, {{{1_layer, 7_expert}, 1}});
  EXPECT_EQ(w.stats().bytes_filled, 10U + 10 + 30 + 30 + 30);
  EXPECT_EQ(w.decisions.resident_bytes(0_pool), 110U);
}

TEST(pager_stats, steps_without_a_miss_are_counted) {
  pager_walk w({.layout = shared(4)});
  for (step_id step = 0; step < 5; ++step) {
    w.visit(step, 0, {0, 1});
    w.visit(step, 1, step == 3 ? std::vector<std::int32_t>{0, 5} : std::vector<std::int32_t>{0, 1});
  }
  EXPECT_EQ(w.stats().steps, 5U);
  EXPECT_EQ(w.stats().steps_with_miss, 3U) << "0, 3, and 4 for what 3 pushed out";
  EXPECT_EQ(w.stats().miss_free_steps(), 2U);
}

TEST(pager_stats, a_collision_is_a_miss_of_a_key_evicted_in_the_same_step) {
  pager_walk w({.layout = shared(2)});
  w.visit(0, 0, {0, 1});
  w.visit(0, 1, {0, 1});
  w.visit(0, 0, {0, 1});  // again in step 0
  EXPECT_EQ(w.stats().collision_misses, 2U);
  w.visit(1, 1, {0, 1});
  EXPECT_EQ(w.stats().collision_misses, 2U) << "evicted in an earlier step";
  EXPECT_EQ(w.stats().compulsory_misses, 4U);
}

// The next step is 0: otherwise every key would count as evicted in it.
TEST(pager_stats, the_largest_step_number_has_only_its_own_evictions) {
  pager_walk w({.layout = shared(2)});
  for (const auto& ids : {std::vector<std::int32_t>{0, 1}, {2, 3}, {0, 1}})
    w.visit(~step_id{0}, 0, ids);
  EXPECT_EQ(w.stats().compulsory_misses, 4U);
  EXPECT_EQ(w.stats().collision_misses, 2U);
}

/// With a removal sink, evictions are counted by another code path.
removal_listener listener(bool listens) {
  if (!listens) return {};
  return {.tell = [](void*, const removal&) noexcept {}};
}

TEST(pager_stats, bytes_evicted_in_the_same_step_are_counted_as_refetched) {
  for (const bool listens : {false, true}) {
    pager_walk w({.layout = shared(4), .removals = listener(listens)});
    w.visit(0, 0, {0, 1, 2, 3});
    w.visit(1, 0, {4, 5});  // evicts 0 and 1
    w.visit(1, 0, {0, 6});  // evicts 2 and 3
    EXPECT_EQ(w.stats().collision_misses, 1U);
    EXPECT_EQ(w.stats().bytes_refetched, 10U);
  }
}

// Refills of a group were evicted by the group before: no other policy would have kept them.
TEST(pager_stats, refills_of_a_split_visit_are_not_counted_as_refetched) {
  for (const bool listens : {false, true}) {
    pager_walk w({.layout = shared(4), .removals = listener(listens)});
    w.visit(0, 0, {4, 5, 6, 7});
    EXPECT_EQ(w.visit(1, 0, {0, 1, 2, 3, 4, 5}), 6U) << "4 and 5 go for the first group";
    EXPECT_EQ(w.stats().split_visits, 1U);
    EXPECT_EQ(w.stats().misses, 4U + 4) << "of the visit 4 and 5 are hits";
    EXPECT_EQ(w.stats().bytes_demand, 4U * 10 + 6 * 10);
    EXPECT_EQ(w.stats().bytes_refetched, 0U);
    w.visit(1, 0, {6, 7, 0, 1, 2, 3});  // all were evicted in this step
    EXPECT_EQ(w.stats().split_visits, 2U);
    EXPECT_GT(w.stats().collision_misses, 0U);
    EXPECT_EQ(w.stats().bytes_refetched, 0U);
  }
}

TEST(pager_stats, the_first_miss_of_a_key_that_was_only_prefetched_is_compulsory) {
  pager_walk w({.layout = shared(4)});
  w.arrive(w.prefetch(0, 0, {{{1_layer, 7_expert}, 0}, {{1_layer, 6_expert}, 0}}));
  w.visit(1, 1, {6, 6});
  w.visit(2, 0, {0, 1, 2, 3});  // evicts both
  ASSERT_EQ(w.stats().wasted_prefetches, 1U);
  ASSERT_EQ(w.stats().compulsory_misses, 4U);
  w.visit(3, 1, {6, 6});
  EXPECT_EQ(w.stats().compulsory_misses, 4U) << "it was used before it left";
  w.visit(4, 1, {7, 7});
  EXPECT_EQ(w.stats().compulsory_misses, 5U) << "it was not";
  w.visit(5, 0, {4, 5, 6, 7});
  w.visit(6, 1, {7, 7});
  EXPECT_EQ(w.stats().compulsory_misses, 9U) << "now it was";
}

TEST(pager_stats, a_refused_expert_is_a_miss_and_a_bypass) {
  support::told_lru::journal journal;
  pager_walk<pager<told_lru, picky>> w(
      {.layout = shared(2), .eviction = {&journal}, .admission = {{5_expert}}});
  w.visit(0, 0, {5, 1});
  EXPECT_EQ(w.plan.host_count(), 1U);
  EXPECT_THAT(w.plan.services(), ElementsAre(service::host, service::fill));
  EXPECT_THAT(journal.lines, ElementsAre("step 0 layer 0", "fill 1", "bypass 5"));
  w.visit(1, 0, {5, 1});
  const auto s = w.stats();
  EXPECT_EQ(s.misses, 3U);
  EXPECT_EQ(s.bypasses, 2U);
  EXPECT_EQ(s.fills, 1U);
  EXPECT_EQ(s.compulsory_misses, 2U) << "5 was used on the host in step 0";
  EXPECT_EQ(s.fills + s.bypasses, s.misses);
}

}  // namespace
}  // namespace hotset::pager_stats_test
