// SPDX-License-Identifier: Apache-2.0
// Visits in several groups, with speculation and other visits between them.

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache_steps.hpp"
#include "hotset/miss/fetch_lowest.hpp"
#include "random_source.hpp"

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
  EXPECT_EQ(cache.resolve_next(stream, visit), status::invalid_argument);
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

// In the order that docs/embedding.md teaches: prefetch beside the kernels of a group.
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

// Copies on their way and the slots of an open visit may leave a visit nothing: then the copies give way.
TEST_F(slot_cache_wide, copies_on_their_way_give_way_to_a_visit_beside_an_open_one) {
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

TEST_F(slot_cache_wide, copies_that_cannot_be_taken_back_are_waited_for) {
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
  EXPECT_EQ(backend.poll(own), transfer_state::pending) << "nobody waited for it";
  EXPECT_EQ(cache.stats().prefetch_hits, 1U);
  cache.release(visit, stream);
  cache.release(other, stream);
  backend.run(stream);
}

TEST(slot_cache_groups, copies_for_the_visit_itself_are_waited_for_where_there_is_nothing_else) {
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

/// Random visits, most of them too large, of two open at a time; between their groups everything that takes slots.
template <class Pager>
void expect_room_in_every_group(typename Pager::config setup, std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  support::random_source random(seed);
  const auto shape = setup.layout.shape();
  scripted_backend backend(setup.layout.slots());
  scripted_backend::stream_type stream;
  slot_cache cache(Pager(std::move(setup)), backend, {.queue = {.most_waiting = 16}});
  auto visit = cache.make_visit();
  auto open = cache.make_visit();
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> others;
  const auto draw = [&](std::vector<std::int32_t>& to, std::uint64_t tokens) {
    to.resize(tokens * static_cast<std::size_t>(shape.top_k));
    for (auto& id : to) id = random.id_below(shape.experts + 1) - 1;
  };
  const auto speculate = [&](const visit_context& context) {
    std::vector<prefetch_request> wanted;
    for (int n = 0; n < 6; ++n)
      wanted.push_back(
          {{layer_id{random.id_below(shape.layers)}, expert_id{random.id_below(shape.experts)}},
           context.step + random.below(2)});
    ASSERT_EQ(cache.prefetch(context, wanted, stream), status::ok);
    if (random.one_in(3)) {
      const std::vector<expert_key> keys{wanted[0].key, wanted[1].key};
      const auto warmed = cache.warm(keys, stream);
      ASSERT_TRUE(warmed == status::ok || warmed == status::visit_unfinished) << describe(warmed);
    }
    if (random.one_in(4)) {
      const auto forgotten = cache.invalidate(layer_id{random.id_below(shape.layers)});
      ASSERT_TRUE(forgotten == status::ok || forgotten == status::busy) << describe(forgotten);
    }
    if (random.one_in(3) && backend.poll(backend.last()) == transfer_state::pending)
      (void)backend.wait(backend.last());
  };
  std::uint64_t groups = 0;
  for (step_id step = 0; step < 60; ++step) {
    backend.refuse_cancels = random.one_in(2);
    if (random.one_in(2)) {
      draw(others, 1);
      routing_view view;
      view.layer = layer_id{random.id_below(shape.layers)};
      view.step = step;
      view.experts = others;
      ASSERT_EQ(cache.resolve(view, stream, open), status::ok);
      if (random.one_in(2)) speculate(open.plan().context());
    }
    draw(ids, 1 + random.below(static_cast<std::uint64_t>(shape.max_tokens_per_visit)));
    routing_view view;
    view.layer = layer_id{random.id_below(shape.layers)};
    view.step = step;
    view.experts = ids;
    auto state = cache.resolve(view, stream, visit);
    while (true) {
      ASSERT_EQ(state, status::ok)
          << describe(state) << " in step " << step << " after group " << visit.plan().group();
      ++groups;
      if (random.one_in(2)) speculate(visit.plan().context());
      cache.release(visit, stream);
      if (random.one_in(2)) speculate(visit.plan().context());
      if (random.one_in(3)) cache.release(open, stream);
      if (!visit.more()) break;
      state = cache.resolve_next(stream, visit);
    }
    cache.release(open, stream);
    support::expect_consistent(cache.pager());
    if (random.one_in(2)) backend.run(stream);
  }
  EXPECT_GT(groups, 60U);
  EXPECT_GT(cache.stats().speculative_fills, 0U);
  backend.run(stream);
}

const geometry wide{.layers = 2, .experts = 12, .top_k = 2, .max_tokens_per_visit = 6};

TEST(slot_cache_groups, a_split_visit_never_fails_for_want_of_room_in_a_shared_pool) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed)
    for (const auto how : {visit_split::by_token, visit_split::by_expert})
      for (const auto guard : {prefetch_guard::none, prefetch_guard::named})
        expect_room_in_every_group<pager<lru>>(
            {.layout = pool_layout::shared(wide, 4 + static_cast<std::int64_t>(seed % 4)).value(),
             .split = how,
             .guard = guard},
            seed);
}

TEST(slot_cache_groups, a_split_visit_never_fails_for_want_of_room_in_a_pool_of_its_layer) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed)
    expect_room_in_every_group<pager<lru>>(
        {.layout = pool_layout::per_layer(wide, 4 + static_cast<std::int32_t>(seed % 3)).value()},
        seed);
}

TEST(slot_cache_groups, a_split_visit_never_fails_for_want_of_room_at_several_precisions) {
  auto shape = wide;
  shape.expert_bytes = {40};
  shape.lower_precisions = {{20}};
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const auto low = static_cast<std::int64_t>(2 + seed % 3);
    expect_room_in_every_group<pager<lru, always, fetch_lowest>>(
        {.layout =
             pool_layout::per_layer_by_precision(shape, std::vector<std::int64_t>{3, low}).value()},
        seed);
    expect_room_in_every_group<pager<lru, always, fetch_lowest>>(
        {.layout =
             pool_layout::shared_by_precision(shape, std::vector<std::int64_t>{3, low}).value()},
        seed);
  }
}

}  // namespace
}  // namespace hotset::slot_cache_groups_test
