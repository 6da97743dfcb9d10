// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/gate_score.hpp"

#include <vector>

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

TEST(gate_score, keeps_the_score_of_an_evicted_key_and_counts_bypasses) {
  hand_walk<gate_score> w(shared(1, 2));
  w.begin(0, 0);
  w.fill(0, {0_layer, 4_expert}, 0.5);
  w.evict(0);
  w.bypass({0_layer, 5_expert}, 0.75);
  w.prefetch(0, {0_layer, 4_expert}, 1);
  w.prefetch(1, {0_layer, 5_expert}, 1);
  EXPECT_EQ(w.order(1, 0), slot_ids({0, 1}));
  w.begin(1, 0);
  w.hit(0, 0.5);
  EXPECT_EQ(w.order(2, 0), slot_ids({1, 0}));
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

TEST(gate_score, orders_doubles_as_integers) {
  const double values[] = {-2.5, -1e-300, 0.0, 1e-300, 0.5, 1.0, 1e300};
  for (std::size_t n = 1; n < std::size(values); ++n) {
    EXPECT_LT(detail::ordered_bits(values[n - 1]), detail::ordered_bits(values[n]));
    EXPECT_EQ(detail::from_ordered_bits(detail::ordered_bits(values[n])), values[n]);
  }
  EXPECT_EQ(detail::ordered_bits(-0.0), detail::ordered_bits(0.0));
}

TEST(gate_score, refuses_a_decay_out_of_range) {
  EXPECT_FALSE(gate_score::config{}.validate());
  EXPECT_TRUE(gate_score::config{.decay = 1.0}.validate());
  EXPECT_TRUE(gate_score::config{.decay = -0.1}.validate());
}

}  // namespace
}  // namespace hotset::gate_score_test
