// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/control/marginal_value.hpp"

#include <cstdint>
#include <string>

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

void reuse_experts(marginal_value& controller, std::uint32_t distance, int times) {
  for (int i = 0; i < times; ++i) controller.on_expert(distance);
}
void reuse_blocks(marginal_value& controller, std::uint32_t distance, int times) {
  for (int i = 0; i < times; ++i) controller.on_block(distance);
}

TEST(marginal_value, walks_to_where_the_reuse_is) {
  auto controller = marginal_value::create(example()).value();
  std::uint64_t cap = 10;
  for (int burst = 0; burst < 10; ++burst) {
    reuse_experts(controller, 40, 100);
    reuse_blocks(controller, 200, 100);
    const auto to = controller.end_burst(cap);
    EXPECT_LE(to.cap, cap + 8) << "burst " << burst;  // the rate limit
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
  std::uint64_t cap = 12;
  for (int burst = 0; burst < 8; ++burst) {
    reuse_experts(controller, 3, 1000);
    reuse_experts(controller, 60, 300);
    reuse_blocks(controller, 10, 1000);
    cap = controller.end_burst(cap).cap;
  }
  EXPECT_GE(cap, 60U);
}

TEST(marginal_value, a_small_gain_is_not_worth_a_move) {
  auto config = example();
  config.gate = 0.2;
  auto controller = marginal_value::create(config).value();
  reuse_experts(controller, 64, 1000);  // missed whatever the cap below 64
  reuse_experts(controller, 30, 100);
  reuse_blocks(controller, 400, 1000);
  EXPECT_EQ(controller.end_burst(20).cap, 20U);
  config.gate = 0.02;
  auto eager = marginal_value::create(config).value();
  reuse_experts(eager, 64, 1000);
  reuse_experts(eager, 30, 100);
  reuse_blocks(eager, 400, 1000);
  EXPECT_GT(eager.end_burst(20).cap, 20U);
}

// Hazard 23: noise around an optimum moves nothing.
TEST(marginal_value, does_not_thrash_within_the_dead_zone) {
  auto config = example();
  config.dead_zone = 3;
  config.gate = 0;
  auto controller = marginal_value::create(config).value();
  std::uint64_t cap = 40;
  for (int burst = 0; burst < 20; ++burst) {
    reuse_experts(controller, burst % 2 == 0 ? 39 : 42, 100);
    reuse_blocks(controller, 100, 1);
    const auto to = controller.end_burst(cap);
    EXPECT_EQ(to.cap, 40U) << "burst " << burst;
    cap = to.cap;
  }
}

// 9 slots away, at most 8 a burst: the last one is worth all that the move was made for.
TEST(marginal_value, a_move_that_was_cut_short_is_finished) {
  auto controller = marginal_value::create(example()).value();
  std::uint64_t cap = 31;
  for (int burst = 0; burst < 2; ++burst) {
    reuse_experts(controller, 40, 100);
    cap = controller.end_burst(cap).cap;
  }
  EXPECT_EQ(cap, 40U);
  // From there on the dead zone holds again.
  reuse_experts(controller, 41, 10000);
  EXPECT_EQ(controller.end_burst(cap).cap, 40U);
}

TEST(marginal_value, never_goes_below_the_admission_floor) {
  auto controller = marginal_value::create(example()).value();
  std::uint64_t cap = 60;
  for (int burst = 0; burst < 10; ++burst) {
    reuse_experts(controller, 64, 1000);
    const auto to = controller.end_burst(cap);
    EXPECT_GE(to.blocks, 50U);
    cap = to.cap;
  }
  EXPECT_EQ(cap, 64U);
  auto config = example();
  config.limits.min_blocks = 200;
  auto floored = marginal_value::create(config).value();
  EXPECT_EQ(config.split().largest_cap(), 60U);
  cap = 50;
  for (int burst = 0; burst < 10; ++burst) {
    reuse_experts(floored, 60, 1000);
    cap = floored.end_burst(cap).cap;
  }
  EXPECT_EQ(cap, 60U);
  EXPECT_EQ(floored.end_burst(cap).binds, binding::floor);
}

// Without decay in the estimate the controller would stay with the first phase.
TEST(marginal_value, follows_a_shift) {
  auto controller = marginal_value::create(example()).value();
  std::uint64_t cap = 30;
  for (int burst = 0; burst < 12; ++burst) {
    reuse_experts(controller, 60, 500);
    reuse_blocks(controller, 40, 500);
    cap = controller.end_burst(cap).cap;
  }
  EXPECT_GE(cap, 60U);
  for (int burst = 0; burst < 20; ++burst) {
    reuse_experts(controller, 5, 500);
    reuse_blocks(controller, 450, 500);
    cap = controller.end_burst(cap).cap;
  }
  EXPECT_LE(cap, 10U);
}

// A pool that is seen for the first time asks for nothing yet.
TEST(marginal_value, first_sights_move_nothing) {
  auto controller = marginal_value::create(example()).value();
  reuse_experts(controller, 0, 100000);
  reuse_blocks(controller, 0, 3);
  EXPECT_EQ(controller.end_burst(20).cap, 20U);
}

TEST(marginal_value, refuses_what_cannot_be) {
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
  EXPECT_THAT(why([](auto& c) { c.kv_bin = 0; }), testing::HasSubstr("width = 0"));
  EXPECT_EQ(why([](auto& c) {
              c.limits.block_bytes = 0;
              c.limits.min_blocks = 0;
            }),
            "marginal_value block_bytes = 0, accepted: 1 or more");
  EXPECT_FALSE(marginal_value::create({}));
}

}  // namespace
}  // namespace hotset::marginal_value_test
