// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/control/marginal_value.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::marginal_value_test {
namespace {

marginal_value::config example() {
  return {.limits = {.budget_bytes = 1000,
                     .slot_bytes = 10,
                     .block_bytes = 2,
                     .min_cap = 4,
                     .max_cap = 64,
                     .min_blocks = 50},
          .seconds_per_expert_miss = 1,
          .seconds_per_kv_miss = 1,
          .decay = 0.5,
          .grid = 61,
          .gate = 0.02,
          .max_move = 8,
          .dead_zone = 1};
}

/// A reuse distance and its count.
struct reuse {
  std::uint32_t distance = 0;
  int times = 0;
};
using reuses = std::vector<reuse>;
expert_kv_split burst(marginal_value& controller, std::uint64_t cap, const reuses& experts,
                      const reuses& blocks = {}) {
  for (const auto& r : experts)
    for (int i = 0; i < r.times; ++i) controller.on_expert(r.distance);
  for (const auto& r : blocks)
    for (int i = 0; i < r.times; ++i) controller.on_block(r.distance);
  return controller.end_burst(cap);
}
/// The cap after this many equal bursts.
std::uint64_t after(int bursts, marginal_value& controller, std::uint64_t cap,
                    const reuses& experts, const reuses& blocks = {}) {
  for (int i = 0; i < bursts; ++i) cap = burst(controller, cap, experts, blocks).cap;
  return cap;
}

TEST(marginal_value, moves_to_the_distance_of_the_reuse) {
  auto controller = marginal_value::create(example()).value();
  std::uint64_t cap = 10;
  for (int n = 0; n < 10; ++n) {
    const auto to = burst(controller, cap, {{40, 100}}, {{200, 100}});
    EXPECT_LE(to.cap, cap + 8) << "burst " << n;  // the rate limit
    EXPECT_LE(to.cap * 10 + to.blocks * 2, 1000U);
    cap = to.cap;
  }
  // 40 experts (400 bytes) and 200 blocks (400) both fit.
  EXPECT_GE(cap, 40U);
  EXPECT_EQ(controller.end_burst(cap).seconds, 0);
}

// Two modes: near reuse that any cap serves, and far reuse. Between them no single step gains anything.
TEST(marginal_value, crosses_the_gap_between_two_modes) {
  auto controller = marginal_value::create(example()).value();
  EXPECT_GE(after(8, controller, 12, {{3, 1000}, {60, 300}}, {{10, 1000}}), 60U);
}

TEST(marginal_value, a_small_gain_is_not_worth_a_move) {
  const auto moved = [](double gate) {
    auto config = example();
    config.gate = gate;
    auto controller = marginal_value::create(config).value();
    // The far ones are missed at every cap below 64.
    return burst(controller, 20, {{64, 1000}, {30, 100}}, {{400, 1000}}).cap;
  };
  EXPECT_EQ(moved(0.2), 20U);
  EXPECT_GT(moved(0.02), 20U);
}

// Hazard 23: noise around an optimum moves nothing.
TEST(marginal_value, does_not_thrash_within_the_dead_zone) {
  auto config = example();
  config.dead_zone = 3;
  config.gate = 0;
  auto controller = marginal_value::create(config).value();
  for (int n = 0; n < 20; ++n)
    EXPECT_EQ(burst(controller, 40, {{n % 2 == 0 ? 39U : 42U, 100}}, {{100, 1}}).cap, 40U) << n;
}

// The move needs 9 slots, at most 8 per burst: the last slot has the whole gain.
TEST(marginal_value, a_move_that_was_cut_short_is_finished) {
  auto controller = marginal_value::create(example()).value();
  EXPECT_EQ(after(2, controller, 31, {{40, 100}}), 40U);
  EXPECT_EQ(after(1, controller, 40, {{41, 10000}}), 40U) << "the dead zone holds again";
}

TEST(marginal_value, never_goes_below_the_admission_floor) {
  auto controller = marginal_value::create(example()).value();
  const auto cap = after(10, controller, 60, {{64, 1000}});
  EXPECT_EQ(cap, 64U);
  EXPECT_GE(controller.end_burst(cap).blocks, 50U);
  auto config = example();
  config.limits.min_blocks = 200;
  auto floored = marginal_value::create(config).value();
  EXPECT_EQ(config.split().largest_cap(), 60U);
  EXPECT_EQ(after(10, floored, 50, {{60, 1000}}), 60U);
  EXPECT_EQ(floored.end_burst(60).binds, binding::floor);
}

// Without decay in the estimate the controller would keep the first phase's split.
TEST(marginal_value, follows_a_shift) {
  auto controller = marginal_value::create(example()).value();
  const auto cap = after(12, controller, 30, {{60, 500}}, {{40, 500}});
  EXPECT_GE(cap, 60U);
  EXPECT_LE(after(20, controller, cap, {{5, 500}}, {{450, 500}}), 10U);
}

// A pool seen for the first time requests nothing yet.
TEST(marginal_value, first_uses_move_nothing) {
  auto controller = marginal_value::create(example()).value();
  EXPECT_EQ(burst(controller, 20, {{0, 100000}}, {{0, 3}}).cap, 20U);
}

TEST(marginal_value, refuses_invalid_values) {
  const auto why = [](auto change) {
    auto config = example();
    change(config);
    const auto bad = config.validate();
    return bad ? bad->message : std::string("accepted");
  };
  EXPECT_EQ(why([](auto&) {}), "accepted");
  EXPECT_THAT(why([](auto& c) { c.limits.budget_bytes = 100; }),
              testing::HasSubstr("140 bytes or more"));
  EXPECT_EQ(why([](auto& c) { c.grid = 1; }), "marginal_value grid = 1, accepted: 2 or more");
  EXPECT_EQ(why([](auto& c) { c.max_move = 0; }),
            "marginal_value max_move = 0, accepted: 1 or more");
  EXPECT_THAT(why([](auto& c) { c.gate = 1; }), testing::HasSubstr("gate = 1.000000"));
  EXPECT_THAT(why([](auto& c) { c.decay = 1; }), testing::HasSubstr("decay = 1.000000"));
  EXPECT_EQ(why([](auto& c) {
              c.limits.block_bytes = 0;
              c.limits.min_blocks = 0;
            }),
            "marginal_value block_bytes = 0, accepted: 1 or more");
  EXPECT_FALSE(marginal_value::create({}));
}

}  // namespace
}  // namespace hotset::marginal_value_test
