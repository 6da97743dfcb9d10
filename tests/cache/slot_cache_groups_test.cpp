// SPDX-License-Identifier: Apache-2.0
// Visits in several groups, with speculation and other visits between them.

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache_steps.hpp"

namespace hotset::slot_cache_groups_test {
namespace {

using support::scripted_backend;
using support::slot_cache_steps;
using support::slot_cache_wide;

// --- a plan belongs to its visit ---

struct two_visits : slot_cache_wide {
  two_visits() : other(cache.make_visit()) {
    EXPECT_EQ(resolve(0, 0, {0, 1, 2, 3, 4, 5, 6, 7}), status::ok);
    EXPECT_TRUE(visit.more());
    cache.release(visit, stream);
  }
  cache_visit other;
};

TEST_F(two_visits, the_next_group_is_that_of_its_own_visit) {
  cache.abandon(visit, stream);
  ASSERT_EQ(resolve(other, 1, 1, {0, 1, 2, 3, 4, 5, 6, 7}), status::ok);
  ASSERT_TRUE(other.more());
  cache.release(other, stream);
  EXPECT_EQ(cache.resolve_next(stream, visit), status::no_plan) << "the other one has come";
  EXPECT_FALSE(visit.is_open());
  ASSERT_EQ(cache.resolve_next(stream, other), status::ok);
  EXPECT_EQ(other.plan().context().layer, 1);
  cache.release(other, stream);
  backend.run(stream);
}

TEST_F(two_visits, a_visit_without_groups_has_no_next_one) {
  EXPECT_EQ(cache.resolve_next(stream, other), status::no_plan);
  ASSERT_EQ(cache.resolve_next(stream, visit), status::ok) << "the other one is not in the way";
  cache.release(visit, stream);
}

TEST_F(two_visits, a_visit_may_move_between_its_groups) {
  other = std::move(visit);
  EXPECT_EQ(cache.resolve_next(stream, visit), status::no_plan);
  ASSERT_EQ(cache.resolve_next(stream, other), status::ok);
  EXPECT_FALSE(other.more());
  cache.release(other, stream);
}

TEST_F(two_visits, a_group_that_failed_is_tried_again) {
  backend.accept = 0;
  EXPECT_EQ(cache.resolve_next(stream, visit), status::fill_failed);
  EXPECT_EQ(cache.resolve_next(stream, visit), status::fill_failed);
  backend.accept = scripted_backend::all;
  ASSERT_EQ(cache.resolve_next(stream, visit), status::ok);
  cache.release(visit, stream);
}

// --- room for the groups that are left ---

// The order that docs/embedding.md recommends: prefetch beside the kernels of a group.
TEST_F(slot_cache_wide, prefetches_between_groups_wait_for_the_last_one) {
  ASSERT_EQ(resolve(0, 0, {0, 1, 2, 3, 4, 5, 6, 7}), status::ok);
  ASSERT_TRUE(visit.more());
  ASSERT_EQ(
      prefetch({{{1_layer, 2_expert}, 0}, {{1_layer, 3_expert}, 0}, {{0_layer, 7_expert}, 1}}),
      status::ok);
  cache.release(visit, stream);
  ASSERT_EQ(prefetch({{{1_layer, 4_expert}, 0}}), status::ok);
  EXPECT_EQ(cache.stats().speculative_fills, 0U);
  EXPECT_EQ(cache.queue().size(), 4U);
  ASSERT_EQ(cache.resolve_next(stream, visit), status::ok);
  ASSERT_FALSE(visit.more());
  EXPECT_EQ(cache.stats().speculative_fills, 1U) << "one slot is not read by the last group";
  cache.release(visit, stream);
  whole(0, 1, {0, 1});
  backend.run(stream);
}

TEST_F(slot_cache_wide, warm_waits_for_the_last_group) {
  ASSERT_EQ(resolve(0, 0, {0, 1, 2, 3, 4, 5, 6, 7}), status::ok);
  cache.release(visit, stream);
  ASSERT_EQ(cache.invalidate(0_layer), status::ok) << "all slots are free now";
  const std::vector<expert_key> keys{
      {1_layer, 0_expert}, {1_layer, 1_expert}, {1_layer, 2_expert}, {1_layer, 3_expert}};
  EXPECT_EQ(cache.warm(keys, stream), status::visit_unfinished);
  ASSERT_EQ(prefetch({{{1_layer, 2_expert}, 0}, {{1_layer, 3_expert}, 0}}), status::ok);
  EXPECT_EQ(cache.stats().speculative_fills, 0U) << "free slots too are for the groups";
  ASSERT_EQ(cache.resolve_next(stream, visit), status::ok);
  cache.release(visit, stream);
  EXPECT_EQ(cache.warm(keys, stream), status::ok);
}

TEST(slot_cache_groups, prefetches_into_other_pools_go_on) {
  scripted_backend backend(6);
  scripted_backend::stream_type stream;
  slot_cache cache(pager<lru>({.layout = pool_layout::per_layer(support::cache_shape, 3).value()}),
                   backend);
  auto visit = cache.make_visit();
  const std::vector<std::int32_t> ids{0, 1, 2, 3, 4, 5};
  ASSERT_EQ(cache.resolve({.experts = ids}, stream, visit), status::ok);
  ASSERT_TRUE(visit.more());
  cache.release(visit, stream);
  const std::vector<prefetch_request> wanted{{{1_layer, 2_expert}, 0}, {{0_layer, 7_expert}, 1}};
  ASSERT_EQ(cache.prefetch(visit.plan().context(), wanted, stream), status::ok);
  EXPECT_NE(cache.pager().locate({1_layer, 2_expert}), no_slot);
  EXPECT_EQ(cache.pager().locate({0_layer, 7_expert}), no_slot);
  while (visit.more()) {
    ASSERT_EQ(cache.resolve_next(stream, visit), status::ok);
    cache.release(visit, stream);
  }
}

// If pending copies and an open visit's slots leave too little room, the copies are cancelled.
TEST_F(slot_cache_wide, pending_copies_make_room_for_a_visit_beside_an_open_one) {
  ASSERT_EQ(resolve(0, 0, {0, 1}), status::ok);
  ASSERT_EQ(
      prefetch({{{1_layer, 2_expert}, 0}, {{1_layer, 3_expert}, 1}, {{1_layer, 4_expert}, 1}}),
      status::ok);
  ASSERT_EQ(cache.stats().speculative_fills, 3U);
  auto other = cache.make_visit();
  ASSERT_EQ(resolve(other, 0, 1, {2, 6}), status::ok);
  EXPECT_EQ(cache.stats().cancelled_prefetches, 1U) << "one slot was enough";
  EXPECT_EQ(locate(1, 4), no_slot);
  EXPECT_NE(locate(1, 3), no_slot);
  EXPECT_EQ(pins_of(0, 0), 1U);
  cache.release(visit, stream);
  cache.release(other, stream);
  support::expect_consistent(cache.pager());
  backend.run(stream);
}

TEST_F(slot_cache_wide, copies_that_cannot_be_cancelled_are_waited_for) {
  backend.refuse_cancels = true;
  ASSERT_EQ(resolve(0, 0, {0, 1}), status::ok);
  ASSERT_EQ(
      prefetch({{{1_layer, 2_expert}, 0}, {{1_layer, 3_expert}, 1}, {{1_layer, 4_expert}, 1}}),
      status::ok);
  auto other = cache.make_visit();
  ASSERT_EQ(resolve(other, 0, 1, {2, 6}), status::ok);
  EXPECT_EQ(cache.stats().cancelled_prefetches, 0U);
  EXPECT_EQ(cache.stats().prefetch_hits, 1U);
  cache.release(visit, stream);
  cache.release(other, stream);
  support::expect_consistent(cache.pager());
  backend.run(stream);
}

TEST_F(slot_cache_wide, copies_for_the_visit_itself_are_the_last_to_give_way) {
  ASSERT_EQ(resolve(0, 0, {0, 1}), status::ok);
  ASSERT_EQ(
      prefetch({{{1_layer, 3_expert}, 0}, {{1_layer, 4_expert}, 0}, {{1_layer, 2_expert}, 1}}),
      status::ok);
  ASSERT_NE(locate(1, 2), no_slot);
  const auto own = backend.last();
  auto other = cache.make_visit();
  ASSERT_EQ(resolve(other, 0, 1, {2, 6}), status::ok);
  EXPECT_EQ(backend.poll(own), transfer_state::pending) << "no call waited for it";
  EXPECT_EQ(cache.stats().prefetch_hits, 1U);
  cache.release(visit, stream);
  cache.release(other, stream);
  backend.run(stream);
}

TEST(slot_cache_groups, waits_for_the_visits_own_copies_if_nothing_else_is_left) {
  scripted_backend backend(4);
  scripted_backend::stream_type stream;
  slot_cache cache(pager<lru>({.layout = pool_layout::shared(support::cache_shape, 4).value()}),
                   backend);
  auto open = cache.make_visit();
  auto visit = cache.make_visit();
  const std::vector<std::int32_t> ids{0, 1};
  ASSERT_EQ(cache.resolve({.experts = ids}, stream, open), status::ok);
  const std::vector<prefetch_request> wanted{{{1_layer, 2_expert}, 0}, {{1_layer, 3_expert}, 0}};
  ASSERT_EQ(cache.prefetch(open.plan().context(), wanted, stream), status::ok);
  ASSERT_EQ(cache.stats().speculative_fills, 2U);
  const std::vector<std::int32_t> tokens{2, 6, 3, 7};
  ASSERT_EQ(cache.resolve({.layer = 1_layer, .experts = tokens}, stream, visit), status::ok);
  EXPECT_EQ(cache.stats().cancelled_prefetches, 0U);
  cache.release(visit, stream);
  while (visit.more()) {
    ASSERT_EQ(cache.resolve_next(stream, visit), status::ok);
    cache.release(visit, stream);
  }
  cache.release(open, stream);
  support::expect_consistent(cache.pager());
  backend.run(stream);
}

}  // namespace
}  // namespace hotset::slot_cache_groups_test
