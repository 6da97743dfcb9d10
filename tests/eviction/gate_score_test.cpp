// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/gate_score.hpp"

#include <gtest/gtest.h>

#include "reference_policies.hpp"

namespace hotset::gate_score_test {
namespace {

using reference::hand_walk;
using reference::shared;
using support::slot_ids;

TEST(gate_score, gathers_weights_over_visits_and_groups) {
  hand_walk<gate_score> w(shared(1, 3));
  w.begin(0, 0);
  w.fill(0, {0_layer, 4_expert}, 0.5);
  w.fill(1, {0_layer, 5_expert}, 0.25);
  w.fill(2, {0_layer, 6_expert}, 0.375);
  EXPECT_EQ(w.order(1, 0), slot_ids({1, 2, 0}));
  w.hit_again(1, 0.1875);  // the later group's own weights: 0.4375
  EXPECT_EQ(w.order(1, 0), slot_ids({2, 1, 0}));
  w.begin(1, 0);
  w.hit(2, 0.125);  // 0.5, a tie: 0 is less recent
  EXPECT_EQ(w.order(2, 0), slot_ids({1, 0, 2}));
}

TEST(gate_score, ema_can_fall) {
  hand_walk<gate_score> w(shared(1, 2), {.accumulate = gate_accumulate::ema, .decay = 0.5});
  w.begin(0, 0);
  w.fill(0, {0_layer, 4_expert}, 1.0);   // 0.5
  w.fill(1, {0_layer, 5_expert}, 0.75);  // 0.375
  EXPECT_EQ(w.order(1, 0), slot_ids({1, 0}));
  w.begin(1, 0);
  w.hit(0, 0.0);  // 0.25
  EXPECT_EQ(w.order(2, 0), slot_ids({0, 1}));
}

}  // namespace
}  // namespace hotset::gate_score_test
