// SPDX-License-Identifier: Apache-2.0
#include "hotset/budget/equimarginal.hpp"

#include <algorithm>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "budget_samples.hpp"

namespace hotset {
namespace {

using testing::ElementsAre;

TEST(equimarginal, gives_the_next_byte_where_it_saves_most) {
  const sampled_miss_curve steep({20, 10, 4, 2, 1});
  const sampled_miss_curve flat({9, 6, 3, 0});
  const std::vector<memory_consumer> consumers{
      {.curve = steep, .unit_bytes = 2, .seconds_per_miss = 1},
      {.curve = flat, .unit_bytes = 2, .seconds_per_miss = 1}};
  const auto found = equimarginal().allocate(consumers, 8);
  ASSERT_TRUE(found);
  // Gains of a unit: 10 6 2 1 and 3 3 3.
  EXPECT_THAT(found->units, ElementsAre(2U, 2U));
  EXPECT_DOUBLE_EQ(found->seconds, 7);
  EXPECT_DOUBLE_EQ(found->bound, 7);
  EXPECT_THAT(found->gain_per_byte, ElementsAre(1, 1.5));
  EXPECT_THAT(found->loss_per_byte, ElementsAre(3, 1.5));
}

TEST(equimarginal, a_cliff_is_climbed_at_once_or_not) {
  const sampled_miss_curve cliff({12, 12, 12, 0});
  const sampled_miss_curve slope({9, 6, 3, 0});
  const std::vector<memory_consumer> consumers{
      {.curve = cliff, .unit_bytes = 1, .seconds_per_miss = 1},
      {.curve = slope, .unit_bytes = 1, .seconds_per_miss = 1}};
  EXPECT_THAT(equimarginal().allocate(consumers, 3)->units, ElementsAre(3U, 0U));
  EXPECT_THAT(equimarginal().allocate(consumers, 4)->units, ElementsAre(3U, 1U));
}

TEST(equimarginal, what_is_left_goes_to_smaller_units) {
  const sampled_miss_curve one({10, 0});
  const sampled_miss_curve small({1, 0});
  const std::vector<memory_consumer> consumers{
      {.curve = one, .unit_bytes = 8, .seconds_per_miss = 1},
      {.curve = one, .unit_bytes = 8, .seconds_per_miss = 1},
      {.curve = small, .unit_bytes = 3, .seconds_per_miss = 1}};
  const auto found = equimarginal().allocate(consumers, 13);
  EXPECT_THAT(found->units, ElementsAre(1U, 0U, 1U));
  EXPECT_EQ(found->bytes, 11U);
  // 5 of the second unit's 8 bytes, were it cut.
  EXPECT_DOUBLE_EQ(found->bound, 10 - 10 * 5.0 / 8 + 1);
  EXPECT_EQ(found->gain_per_byte[0], 0);
  EXPECT_EQ(found->loss_per_byte[1], std::numeric_limits<double>::infinity());
}

TEST(equimarginal, bytes_that_help_nobody_are_left) {
  const sampled_miss_curve curve({3, 0, 0, 0});
  const std::vector<memory_consumer> consumers{
      {.curve = curve, .unit_bytes = 5, .seconds_per_miss = 1}};
  EXPECT_EQ(equimarginal().allocate(consumers, 100)->bytes, 5U);
}

TEST(equimarginal, is_the_optimum_for_convex_curves_and_equal_units) {
  support::random_source random(2);
  for (int n = 0; n < 3000; ++n) {
    const auto set = support::random_consumers(
        random, {.consumers = 1 + random.below(4), .unit_bytes = {3}, .convex = true});
    const auto total = support::floors_of(set.consumers) + random.below(50);
    const auto found = equimarginal().allocate(set.consumers, total);
    ASSERT_TRUE(found);
    ASSERT_NEAR(found->seconds, support::best_seconds(set.consumers, total), 1e-9) << "case " << n;
  }
}

/// Seconds on the hulls of a division, and of the largest gain of one unit anywhere.
double hull_seconds(const std::vector<memory_consumer>& consumers,
                    const std::vector<std::uint64_t>& units, double& largest_gain) {
  double seconds = 0;
  largest_gain = 0;
  for (std::size_t i = 0; i < consumers.size(); ++i) {
    const auto& c = consumers[i];
    std::vector<convex_hull::corner> points;
    for (auto u = c.min_units; u <= c.cap(); ++u)
      points.push_back({static_cast<std::size_t>(u), c.seconds(u)});
    const convex_hull hull(points);
    seconds += hull.misses(static_cast<std::size_t>(units[i]));
    for (auto u = c.min_units; u < c.cap(); ++u)
      largest_gain = std::max(largest_gain, hull.misses(static_cast<std::size_t>(u)) -
                                                hull.misses(static_cast<std::size_t>(u + 1)));
  }
  return seconds;
}

TEST(equimarginal, is_within_a_units_gain_of_the_bound_on_hulls) {
  support::random_source random(3);
  for (int n = 0; n < 3000; ++n) {
    const auto set = support::random_consumers(
        random,
        {.consumers = 1 + random.below(4), .unit_bytes = {1, 4, 5, 9}, .convex = random.one_in(2)});
    const auto total = support::floors_of(set.consumers) + random.below(60);
    const auto found = equimarginal().allocate(set.consumers, total);
    ASSERT_TRUE(found);
    double gain = 0;
    const auto reached = hull_seconds(set.consumers, found->units, gain);
    EXPECT_LE(reached, found->bound + gain + 1e-9) << "case " << n;
    // The bound is one: no whole units do better, on the curves or on their hulls.
    EXPECT_LE(found->bound, support::best_seconds(set.consumers, total) + 1e-9) << "case " << n;
    EXPECT_LE(found->bound, reached + 1e-9) << "case " << n;
  }
}

// No byte lies idle that some whole unit could use.
TEST(equimarginal, leaves_no_unit_that_fits_and_helps) {
  support::random_source random(4);
  for (int n = 0; n < 3000; ++n) {
    const auto set = support::random_consumers(
        random,
        {.consumers = 2 + random.below(4), .unit_bytes = {1, 4, 5, 9}, .convex = random.one_in(2)});
    const auto total = support::floors_of(set.consumers) + random.below(60);
    const auto found = equimarginal().allocate(set.consumers, total);
    ASSERT_TRUE(found);
    for (std::size_t i = 0; i < set.consumers.size(); ++i)
      EXPECT_TRUE(found->gain_per_byte[i] == 0 ||
                  set.consumers[i].unit_bytes > total - found->bytes)
          << "case " << n << ", consumer " << i;
  }
}

// The certificate: with equal units nothing is hindered by its size, and no byte wants to move.
TEST(equimarginal, with_equal_units_no_gain_exceeds_any_loss) {
  support::random_source random(5);
  for (int n = 0; n < 3000; ++n) {
    const auto set = support::random_consumers(
        random, {.consumers = 2 + random.below(4), .unit_bytes = {4}, .convex = random.one_in(2)});
    const auto total = support::floors_of(set.consumers) + random.below(60);
    const auto found = equimarginal().allocate(set.consumers, total);
    ASSERT_TRUE(found);
    const auto gain = *std::max_element(found->gain_per_byte.begin(), found->gain_per_byte.end());
    const auto loss = *std::min_element(found->loss_per_byte.begin(), found->loss_per_byte.end());
    EXPECT_LE(gain, loss + 1e-12) << "case " << n;
  }
}

}  // namespace
}  // namespace hotset
