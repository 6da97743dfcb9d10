// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/history/row_ring.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "written_ids.hpp"

namespace hotset::row_ring_test {
namespace {

using support::expert_ids;
using testing::ElementsAre;
using row_id = row_ring::row_id;
constexpr auto no_row = row_ring::no_row;

constexpr geometry shape{.layers = 2, .experts = 16, .top_k = 2, .max_tokens_per_visit = 4};

/// A step of one sequence; its token routes the same ids in both layers.
row_id step_of(row_ring& ring, step_id step, row_id previous, const std::vector<expert_id>& ids) {
  ring.look_as_if_ended(true);
  ring.begin_step(step);
  const auto row = ring.oldest();
  ring.append(7, previous);
  for (std::size_t l = 0; l < 2; ++l) {
    ring.routed().write(l, row, ids);
    ring.see(layer_id{static_cast<std::int32_t>(l)});
  }
  return row;
}
bool is_whole(const row_ring& ring, row_id row) {
  return ring.whole()[history_kernels::place_of(row)] != 0;
}

TEST(row_ring, a_row_is_whole_after_its_step_and_followed_after_the_next) {
  row_ring ring(shape, 256, 4, 0);
  EXPECT_TRUE(ring.opens(0));
  const auto first = step_of(ring, 0, no_row, expert_ids({1, 2}));
  EXPECT_FALSE(ring.opens(0));
  EXPECT_TRUE(ring.has_seen(1_layer));
  EXPECT_FALSE(is_whole(ring, first));
  const auto second = step_of(ring, 1, first, expert_ids({3, 4}));
  EXPECT_TRUE(is_whole(ring, first));
  EXPECT_EQ(ring.successor(first), no_row);
  ring.look_as_if_ended(true);
  EXPECT_EQ(ring.successor(first), second);
  EXPECT_TRUE(is_whole(ring, second));
  ring.look_as_if_ended(false);
  EXPECT_EQ(ring.successor(first), no_row) << "looking leaves no trace";
  EXPECT_FALSE(is_whole(ring, second));
  EXPECT_EQ(ring.set(1_layer, second)[0], 0b11000U);
}

TEST(row_ring, the_oldest_row_makes_room_and_its_successor_has_none_before_it) {
  row_ring ring(shape, 256, 4, 0);
  auto last = no_row;
  for (step_id step = 0; step < 256; ++step) last = step_of(ring, step, last, expert_ids({1, 2}));
  EXPECT_EQ(ring.oldest(), 0);
  EXPECT_EQ(ring.after_oldest(0), 1);
  EXPECT_EQ(step_of(ring, 256, last, expert_ids({5, 6})), 0);
  EXPECT_EQ(ring.before()[history_kernels::place_of(1)], no_row);
  EXPECT_EQ(ring.before()[history_kernels::place_of(0)], history_kernels::place_of(255));
  EXPECT_FALSE(is_whole(ring, 0));
}

TEST(row_ring, gives_the_distance_to_an_experts_next_use_after_a_row) {
  row_ring ring(shape, 256, 4, 2);
  const auto first = step_of(ring, 0, no_row, expert_ids({0, 1}));
  auto last = first;
  for (step_id step = 1; step < 4; ++step)
    last = step_of(ring, step, last, {static_cast<expert_id>(step + 2), 9_expert});
  ring.look_as_if_ended(true);
  const auto later = ring.uses_after(0_layer, first);
  EXPECT_EQ(later.tokens, 2U);
  const auto number = [&](std::size_t e) {
    return later.numbers[e % 8] >> first_uses::shift_of(e) & 15U;
  };
  EXPECT_EQ(number(3), 1U);
  EXPECT_EQ(number(4), 2U);
  EXPECT_EQ(number(5), 0U) << "beyond the horizon";
  EXPECT_EQ(number(9), 1U) << "the first use";
  ring.look_as_if_ended(false);
  EXPECT_EQ(ring.uses_after(0_layer, static_cast<row_id>(first + 1)).tokens, 1U);
}

TEST(row_ring, saves_whole_rows_and_takes_them_up_again) {
  row_ring ring(shape, 256, 4, 0);
  auto last = no_row;
  for (step_id step = 0; step < 3; ++step) last = step_of(ring, step, last, expert_ids({1, 2}));
  auto saved = saved_history::of(shape);
  ring.save(saved);
  EXPECT_THAT(saved.before, ElementsAre(saved_history::none, 0)) << "the last step runs";
  row_ring other(shape, 256, 4, 0);
  other.restore(saved);
  auto again = saved_history::of(shape);
  other.save(again);
  EXPECT_EQ(again, saved);
  EXPECT_EQ(other.successor(0), 1);
  EXPECT_EQ(other.oldest(), 2);
}

}  // namespace
}  // namespace hotset::row_ring_test
