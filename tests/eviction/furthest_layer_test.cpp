// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/furthest_layer.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "reference_policies.hpp"

namespace hotset::furthest_layer_test {
namespace {

using reference::hand_walk;
using reference::shared;
using support::slot_ids;
using slots = std::vector<slot_id>;

TEST(furthest_layer, the_running_layer_is_evicted_first_the_next_one_last) {
  hand_walk<furthest_layer> w(shared(4, 6));
  w.begin(0, 0);
  w.fill(0, {0_layer, 4_expert});
  w.begin(0, 1);
  w.fill(1, {1_layer, 4_expert});
  w.fill(4, {1_layer, 5_expert});
  w.begin(0, 2);
  w.fill(2, {2_layer, 4_expert});
  w.begin(0, 3);
  w.fill(3, {3_layer, 4_expert});
  // At layer 1 the distances are 1: 3, 0: 2, 3: 1, 2: 0.
  EXPECT_EQ(w.order(1, 1), slot_ids({1, 4, 0, 3, 2}));
  EXPECT_EQ(w.order(1, 0), slot_ids({0, 3, 2, 1, 4}));
  EXPECT_EQ(w.order(1, 3), slot_ids({3, 2, 1, 4, 0}));
  w.begin(1, 1);
  w.hit(1);  // recency inside the layer
  EXPECT_EQ(w.order(1, 1), slot_ids({4, 1, 0, 3, 2}));
}

TEST(furthest_layer, chooses_from_another_layers_pool_too) {
  hand_walk<furthest_layer> w(
      pool_layout::per_layer({.layers = 3, .experts = 8, .top_k = 2}, 2).value());
  w.begin(0, 2);
  w.fill(4, {2_layer, 1_expert});
  w.fill(5, {2_layer, 2_expert});
  EXPECT_EQ(w.order_of(2_pool, 0, 0), slot_ids({4, 5}));
  EXPECT_EQ(w.order_of(1_pool, 0, 2), (slots{}));
}

}  // namespace
}  // namespace hotset::furthest_layer_test
