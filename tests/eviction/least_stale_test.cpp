// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/least_stale.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/eviction/fifo.hpp"
#include "hotset/eviction/lru.hpp"
#include "random_source.hpp"
#include "reference_policies.hpp"

namespace hotset::least_stale_test {
namespace {

using reference::hand_walk;
using reference::shared;
using support::slot_ids;

/// Layer l holds slot l, filled in step 0.
hand_walk<least_stale> after_one_step(std::int32_t layers, stale_order order = stale_order::left) {
  hand_walk<least_stale> w(shared(layers, layers + 4), {.order = order});
  for (const auto l : each<layer_id>(layers)) {
    w.begin(0, l);
    w.fill(slot_id{number(l)}, {l, 4_expert});
  }
  return w;
}

TEST(least_stale, executed_layers_are_evicted_before_the_farthest_ahead) {
  auto w = after_one_step(4);
  w.begin(1, 0);
  w.fill(4, {0_layer, 5_expert});
  w.begin(1, 1);
  w.fill(5, {1_layer, 5_expert});
  // Stale and left: slots 0, 1. Current and left: 4, 5. Stale and right, farthest first: 3, 2.
  EXPECT_EQ(w.order(1, 1), slot_ids({0, 1, 4, 5, 3, 2}));
  EXPECT_EQ(w.order(1, 2), slot_ids({0, 1, 2, 4, 5, 3}));  // layer 2 is running: left
}

TEST(least_stale, keys_for_a_later_step_go_last_and_become_current_in_it) {
  auto w = after_one_step(4);
  w.begin(1, 0);
  w.hit(0);
  w.prefetch(4, {0_layer, 6_expert}, 2);
  w.request(1, 2);
  w.request(2, 2);
  // Current left 0; stale right 3; later left 4; later right 2, 1.
  EXPECT_EQ(w.order(1, 0), slot_ids({0, 3, 4, 2, 1}));
  EXPECT_EQ(w.order(2, 0), slot_ids({0, 4, 3, 2, 1}));  // 4, 2 and 1 are current in step 2
  EXPECT_EQ(w.order(3, 3), slot_ids({0, 4, 1, 2, 3}));  // all stale and left: layer, then arrival
}

TEST(least_stale, a_layer_without_stale_keys_gets_them_again_in_the_next_step) {
  auto w = after_one_step(3);
  w.begin(1, 0);
  w.hit(0);
  w.request(1, 1);
  w.request(2, 1);
  EXPECT_EQ(w.order(1, 0), slot_ids({0, 2, 1}));  // the search finds no stale slot
  w.prefetch(3, {1_layer, 7_expert}, 0);          // for a past step: stale
  EXPECT_EQ(w.order(1, 0), slot_ids({0, 3, 2, 1}));
  EXPECT_EQ(w.order(2, 2), slot_ids({0, 1, 3, 2}));
}

TEST(least_stale, more_layers_than_a_word_has_bits) {
  auto w = after_one_step(200);
  w.begin(1, 130);
  const auto order = w.order(1, 130);
  ASSERT_EQ(order.size(), 200U);
  for (std::size_t n = 0; n <= 130; ++n) EXPECT_EQ(order[n], n);
  for (std::size_t n = 131; n < 200; ++n) EXPECT_EQ(order[n], 330 - n);
  EXPECT_EQ(w.order(1, 63).at(64), 199);
  EXPECT_EQ(w.order(1, 127).at(128), 199);
  EXPECT_EQ(w.order(1, 199).back(), 199);
}

// SpecMD 4.2 and the caption of Figure 3, literally.
TEST(least_stale, order_stale_evicts_stale_before_current_keys) {
  auto w = after_one_step(4, stale_order::stale);
  w.begin(1, 0);
  w.fill(4, {0_layer, 5_expert});
  w.begin(1, 1);
  w.fill(5, {1_layer, 5_expert});
  // Stale left: slots 0, 1. Stale right, farthest first: 3, 2. Current left: 4, 5.
  EXPECT_EQ(w.order(1, 1), slot_ids({0, 1, 3, 2, 4, 5}));
  w.prefetch(6, {3_layer, 7_expert}, 1);
  w.prefetch(7, {0_layer, 6_expert}, 2);
  w.request(2, 2);
  // Current right: 6. Later left: 7. Later right: 2.
  EXPECT_EQ(w.order(1, 1), slot_ids({0, 1, 3, 4, 5, 6, 7, 2}));
}

TEST(least_stale, by_layer_the_nearest_ahead_is_evicted_next) {
  auto w = after_one_step(4, stale_order::layer);
  w.begin(1, 0);
  w.fill(4, {0_layer, 5_expert});
  w.begin(1, 1);
  w.fill(5, {1_layer, 5_expert});
  // Stale: slot 0 (executed), 1 (executed), 2, 3 (ahead). Current: 4, 5.
  EXPECT_EQ(w.order(1, 2), slot_ids({0, 1, 2, 3, 4, 5}));
  w.prefetch(6, {0_layer, 6_expert}, 2);
  w.request(3, 1);
  EXPECT_EQ(w.order(1, 1), slot_ids({0, 1, 2, 4, 5, 3, 6}));
}

/// Random single-use visits on both policies; they always agree.
template <class Other>
void expect_alike(hand_walk<least_stale>& stale, const pool_layout& layout) {
  hand_walk<Other> other(layout);
  std::vector<expert_key> held(layout.slots(), no_key);
  support::random_source random(5);
  for (step_id step = 0; step < 150; ++step)
    for (const auto l : each<layer_id>(layout.shape().layers)) {
      const auto order = other.order(step, l);
      ASSERT_EQ(stale.order(step, l), order);
      stale.begin(step, l);
      other.begin(step, l);
      const expert_key wanted{l, expert_id{random.id_below(8)}};
      if (const auto found = std::ranges::find(held, wanted); found != held.end()) {
        const auto slot = static_cast<slot_id>(found - held.begin());
        stale.hit(slot);
        other.hit(slot);
        continue;
      }
      auto slot = 0_slot;
      while (index_of(slot) < held.size() && (held[index_of(slot)] != no_key ||
                                              layout.pool_of_slot(slot) != layout.pool_of_layer(l)))
        ++slot;
      if (index_of(slot) == held.size()) {
        slot = order.front();
        stale.evict(slot);
        other.evict(slot);
      }
      held[index_of(slot)] = wanted;
      stale.fill(slot, wanted);
      other.fill(slot, wanted);
    }
}

TEST(least_stale, is_fifo_in_per_layer_scope) {
  const auto layout = pool_layout::per_layer({.layers = 2, .experts = 16, .top_k = 2}, 4).value();
  hand_walk<least_stale> stale(layout);
  expect_alike<fifo>(stale, layout);
}

TEST(least_stale, last_access_is_lru_while_nothing_is_prefetched) {
  const auto layout = shared(6, 14);
  hand_walk<least_stale> stale(layout, {.order = stale_order::last_access});
  expect_alike<lru>(stale, layout);
  const auto order = stale.order(200, 0);
  stale.request(order.front(), 200);
  EXPECT_NE(stale.order(200, 0), order);
}

}  // namespace
}  // namespace hotset::least_stale_test
