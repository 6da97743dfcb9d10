// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/control/right_sizing.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/planning/curve/miss_curve.hpp"
#include "random_source.hpp"

namespace hotset::right_sizing_test {
namespace {

TEST(right_size, is_the_fewest_slots_that_reach_the_target) {
  const sampled_miss_curve curve({10, 8, 5, 5, 1, 1});
  EXPECT_EQ(right_size(curve, 10, 0.0), 0U);
  EXPECT_EQ(right_size(curve, 10, 0.2), 1U);
  EXPECT_EQ(right_size(curve, 10, 0.21), 2U);
  EXPECT_EQ(right_size(curve, 10, 0.5), 2U);
  EXPECT_EQ(right_size(curve, 10, 0.9), 4U);
  EXPECT_EQ(right_size(curve, 10, 0.91), std::nullopt);
}

TEST(support_cap, counts_the_most_used_of_the_widest_layer) {
  const std::vector<double> one{1, 0, 6, 3};
  EXPECT_EQ(support_cap(one, 4, 0.5), 1U);
  EXPECT_EQ(support_cap(one, 4, 0.6), 1U);
  EXPECT_EQ(support_cap(one, 4, 0.61), 2U);
  EXPECT_EQ(support_cap(one, 4, 1), 3U);
  EXPECT_EQ(support_cap(std::vector<double>(4, 0.0), 4, 1), 0U);
  EXPECT_EQ(support_cap({}, 4, 1), 0U);
  const std::vector<double> two{9, 1, 0, 0, /* next layer */ 1, 1, 1, 1};
  EXPECT_EQ(support_cap(two, 4, 0.9), 4U);
  EXPECT_EQ(support_cap(two, 4, 0.5), 2U);
}

right_sizing::config example() {
  return {.limits = {.budget_bytes = 1000,
                     .slot_bytes = 20,
                     .block_bytes = 3,
                     .min_cap = 2,
                     .max_cap = 8,
                     .min_blocks = 30},
          .experts = 8,
          .coverage = 0.9,
          .dead_zone = 0};
}

right_sizing law_of(const right_sizing::config& config) {
  return right_sizing::create(config).value();
}

// The widest layer decides: 90 % of the second layer's uses need four experts.
TEST(right_sizing, experts_get_the_support_and_kv_the_rest) {
  const std::vector<double> uses{95, 5,  0,  0, 0, 0, 0, 0,  //
                                 40, 30, 15, 8, 4, 2, 1, 0};
  EXPECT_EQ(law_of(example()).target(uses), (pool_sizes{4, 306}));
  auto all = example();
  all.coverage = 1;
  EXPECT_EQ(law_of(all).target(uses), (pool_sizes{7, 286}));
}

TEST(right_sizing, never_goes_below_the_floors) {
  auto config = example();
  const std::vector<double> one{1, 0, 0, 0, 0, 0, 0, 0};
  const std::vector<double> everything(8, 1.0);
  EXPECT_EQ(law_of(config).target(one), (pool_sizes{2, 320}));
  EXPECT_EQ(law_of(config).target(everything), (pool_sizes{8, 280}));
  config.limits.min_blocks = 300;  // leaves five slots
  EXPECT_EQ(law_of(config).target(everything), (pool_sizes{5, 300}));
}

TEST(right_sizing, an_unknown_user_moves_nothing) {
  EXPECT_EQ(law_of(example()).next({6, 293}, std::vector<double>(16, 0.0)), (pool_sizes{6, 293}));
}

// Hazard 23: noise moves memory.
TEST(right_sizing, a_small_move_is_not_made) {
  auto config = example();
  config.dead_zone = 1;
  const auto law = law_of(config);
  const std::vector<double> four{40, 30, 15, 8, 4, 2, 1, 0};
  EXPECT_EQ(law.next({5, 300}, four), (pool_sizes{5, 300}));
  EXPECT_EQ(law.next({6, 293}, four), (pool_sizes{4, 306}));
  EXPECT_EQ(law.next({2, 320}, four), (pool_sizes{4, 306}));
}

// Compares with the definition: no smaller cap covers every layer, and no budget is exceeded.
TEST(right_sizing, is_the_smallest_cap_that_covers_every_layer) {
  support::random_source random(4);
  for (int n = 0; n < 2000; ++n) {
    auto config = example();
    config.coverage = 0.05 + 0.01 * static_cast<double>(random.below(96));
    std::vector<double> uses;
    for (int i = 0; i < 24; ++i) uses.push_back(static_cast<double>(random.below(50)));
    const auto to = law_of(config).target(uses);
    EXPECT_LE(to.cap * 20 + to.blocks * 3, 1000U);
    const auto covers = [&](std::size_t cap) {
      for (std::size_t l = 0; l < 3; ++l) {
        std::vector<double> layer(uses.begin() + static_cast<std::ptrdiff_t>(8 * l),
                                  uses.begin() + static_cast<std::ptrdiff_t>(8 * (l + 1)));
        double total = 0;
        for (const auto u : layer) total += u;
        double kept = 0;
        for (std::size_t i = 0; i < cap; ++i) {
          const auto most = std::max_element(layer.begin(), layer.end());
          kept += *most;
          *most = 0;
        }
        if (kept < config.coverage * total) return false;
      }
      return true;
    };
    EXPECT_TRUE(covers(to.cap));
    if (to.cap > config.limits.min_cap) {
      EXPECT_FALSE(covers(to.cap - 1));
    }
  }
}

TEST(right_sizing, refuses_invalid_values) {
  const auto why = [](auto change) {
    auto config = example();
    change(config);
    return config.validate().value().message;
  };
  EXPECT_EQ(why([](auto& c) { c.experts = 0; }), "right_sizing experts = 0, accepted: 1 or more");
  EXPECT_EQ(why([](auto& c) { c.coverage = 0; }),
            "right_sizing coverage = 0.000000, accepted: more than 0, at most 1");
  EXPECT_EQ(why([](auto& c) { c.limits.block_bytes = 0; }),
            "right_sizing block_bytes = 0, accepted: 1 or more");
  auto config = example();
  config.limits.budget_bytes = 2 * 20 + 30 * 3 - 1;
  EXPECT_FALSE(right_sizing::create(config));
}

}  // namespace
}  // namespace hotset::right_sizing_test
