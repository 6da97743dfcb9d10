// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/budget/configurator.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/planning/curve/miss_curve.hpp"
#include "random_source.hpp"

namespace hotset::configurator_test {
namespace {

/// Experts fall by 10 a slot to cap 8; KV has a step at 20 blocks.
struct example {
  sampled_miss_curve experts{{80, 70, 60, 50, 40, 30, 20, 10, 0}};
  sampled_miss_curve kv;
  configurator config;
  example() {
    std::vector<double> step(41, 0.0);
    std::fill(step.begin(), step.begin() + 20, 500.0);
    kv = sampled_miss_curve(step);
    config = {{.budget_bytes = 100,
               .slot_bytes = 10,
               .block_bytes = 2,
               .min_cap = 2,
               .max_cap = 8,
               .min_blocks = 5},
              experts,
              kv,
              1,
              1};
  }
};

TEST(configurator, keeps_kv_on_top_of_its_step_and_gives_the_rest_to_experts) {
  const example e;
  ASSERT_FALSE(e.config.validate());
  const auto found = e.config.best();
  EXPECT_EQ(found.cap, 6U);
  EXPECT_EQ(found.blocks, 20U);
  EXPECT_EQ(found.seconds, 20);
  EXPECT_EQ(found.kv_misses, 0);
  EXPECT_EQ(found.binds, binding::budget);
}

TEST(configurator, without_a_kv_curve_the_floor_binds) {
  example e;
  e.config.kv = {};
  e.config.budget_bytes = 75;
  const auto found = e.config.best();
  EXPECT_EQ(found.cap, 6U);
  EXPECT_EQ(found.blocks, 7U);
  EXPECT_EQ(found.binds, binding::floor);
  e.config.budget_bytes = 1000;
  EXPECT_EQ(e.config.best().binds, binding::full);
  EXPECT_EQ(e.config.best().cap, 8U);
}

// Slots that do not reduce the experts' cost go to KV.
TEST(configurator, ties_take_the_smallest_cap) {
  example e;
  const sampled_miss_curve flat({9, 9, 9, 4, 4, 4, 4, 4, 4});
  e.config.experts = flat;
  e.config.kv = {};
  EXPECT_EQ(e.config.best().cap, 3U);
  EXPECT_EQ(e.config.best().blocks, 35U);
  EXPECT_EQ(e.config.best().binds, binding::budget);
}

TEST(configurator, a_model_without_kv_has_no_blocks) {
  example e;
  e.config.block_bytes = 0;
  e.config.min_blocks = 0;
  e.config.kv = {};
  EXPECT_EQ(e.config.best().blocks, 0U);
  EXPECT_EQ(e.config.best().cap, 8U);
  e.config.budget_bytes = 55;
  EXPECT_EQ(e.config.best().cap, 5U);
  EXPECT_EQ(e.config.best().binds, binding::budget);
}

TEST(configurator, agrees_with_trying_everything) {
  support::random_source random(8);
  for (int n = 0; n < 2000; ++n) {
    const auto falling = [&](std::size_t points) {
      std::vector<double> misses(points);
      for (auto& m : misses) m = static_cast<double>(random.below(100));
      std::sort(misses.begin(), misses.end(), std::greater<>());
      return sampled_miss_curve(std::move(misses));
    };
    const auto experts = falling(9);
    const auto kv = falling(30);
    configurator config{{.budget_bytes = 40 + random.below(80),
                         .slot_bytes = 1 + random.below(9),
                         .block_bytes = 1 + random.below(4),
                         .min_cap = 1 + random.below(2),
                         .max_cap = 8,
                         .min_blocks = random.below(4)},
                        experts,
                        kv,
                        static_cast<double>(random.below(5)),
                        static_cast<double>(random.below(5))};
    ASSERT_FALSE(config.validate());
    double best = 1e9;
    for (std::uint64_t cap = config.min_cap; cap <= 8; ++cap)
      for (auto blocks = config.min_blocks; blocks <= 200; ++blocks)
        if (cap * config.slot_bytes + blocks * config.block_bytes <= config.budget_bytes)
          best = std::min(best, config.seconds_per_expert_miss * experts.misses(cap) +
                                    config.seconds_per_kv_miss * kv.misses(blocks));
    const auto found = config.best();
    EXPECT_DOUBLE_EQ(found.seconds, best) << "case " << n;
    EXPECT_GE(found.blocks, config.min_blocks);
    EXPECT_LE(found.cap * config.slot_bytes + found.blocks * config.block_bytes,
              config.budget_bytes);
  }
}

TEST(configurator, refuses_invalid_values) {
  example e;
  e.config.budget_bytes = 30;
  EXPECT_FALSE(e.config.validate());
  EXPECT_EQ(e.config.best().binds, binding::floor);
  e.config.budget_bytes = 29;
  EXPECT_THAT(e.config.validate()->message, testing::HasSubstr("30 bytes or more"));
  e = example();
  e.config.seconds_per_kv_miss = -1;
  EXPECT_EQ(e.config.validate()->message, "seconds of a miss below 0, accepted: 0 or more");
}

}  // namespace
}  // namespace hotset::configurator_test
