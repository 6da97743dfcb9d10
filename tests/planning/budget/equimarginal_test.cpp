// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/budget/equimarginal.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "budget_samples.hpp"

namespace hotset::equimarginal_test {
namespace {

/// The lowest line between two points of a curve at `at`; `misses(x)` from first to last.
template <class Misses>
double lowest_chord(Misses misses, std::uint64_t first, std::uint64_t last, std::uint64_t at) {
  double best = misses(at);
  for (auto a = first; a < at; ++a)
    for (auto b = at + 1; b <= last; ++b) {
      const auto share = static_cast<double>(at - a) / static_cast<double>(b - a);
      best = std::min(best, misses(a) + share * (misses(b) - misses(a)));
    }
  return best;
}

TEST(convex_hull, has_corners_that_no_line_between_others_undercuts) {
  const auto slots_of = [](const std::vector<double>& misses) {
    std::vector<hull_corner> points;
    for (const auto m : misses) points.push_back({points.size(), m});
    std::vector<std::size_t> slots;
    for (const auto& corner : lower_hull(points)) slots.push_back(corner.slots);
    return slots;
  };
  EXPECT_THAT(slots_of({9, 9, 9, 0, 0}), testing::ElementsAre(0U, 3U, 4U)) << "a cliff";
  EXPECT_THAT(slots_of({8, 6, 4, 2, 1}), testing::ElementsAre(0U, 3U, 4U)) << "not on a line";
  EXPECT_THAT(slots_of({5}), testing::ElementsAre(0U));
  EXPECT_THAT(slots_of({}), testing::IsEmpty());
}

using testing::ElementsAre;

TEST(equimarginal, gives_the_next_byte_to_the_largest_saving) {
  const sampled_miss_curve steep({20, 10, 4, 2, 1});
  const sampled_miss_curve flat({9, 6, 3, 0});
  const std::vector<memory_consumer> consumers{
      {.curve = steep, .unit_bytes = 2, .seconds_per_miss = 1},
      {.curve = flat, .unit_bytes = 2, .seconds_per_miss = 1}};
  const auto found = equimarginal().allocate(consumers, 8);
  ASSERT_TRUE(found);
  // Gains per unit: 10 6 2 1 and 3 3 3.
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

TEST(equimarginal, the_remainder_goes_to_smaller_units) {
  const sampled_miss_curve one({10, 0});
  const sampled_miss_curve small({1, 0});
  const std::vector<memory_consumer> consumers{
      {.curve = one, .unit_bytes = 8, .seconds_per_miss = 1},
      {.curve = one, .unit_bytes = 8, .seconds_per_miss = 1},
      {.curve = small, .unit_bytes = 3, .seconds_per_miss = 1}};
  const auto found = equimarginal().allocate(consumers, 13);
  EXPECT_THAT(found->units, ElementsAre(1U, 0U, 1U));
  EXPECT_EQ(found->bytes, 11U);
  // 5 of the second unit's 8 bytes, if units could be divided.
  EXPECT_DOUBLE_EQ(found->bound, 10 - 10 * 5.0 / 8 + 1);
  EXPECT_EQ(found->gain_per_byte[0], 0);
  EXPECT_EQ(found->loss_per_byte[1], std::numeric_limits<double>::infinity());
}

TEST(equimarginal, bytes_that_help_no_consumer_remain) {
  const sampled_miss_curve curve({3, 0, 0, 0});
  const std::vector<memory_consumer> consumers{
      {.curve = curve, .unit_bytes = 5, .seconds_per_miss = 1}};
  EXPECT_EQ(equimarginal().allocate(consumers, 100)->bytes, 5U);
}

/// Consumers, a budget, and equimarginal's division.
struct divided {
  support::consumer_set set{};
  std::uint64_t total = 0;
  allocation found{};
};
/// Random consumers with these units.
divided divide(support::random_source& random, const std::vector<std::uint64_t>& unit_bytes,
               bool convex) {
  divided out;
  out.set = support::random_consumers(
      random, {.consumers = 1 + random.below(5), .unit_bytes = unit_bytes, .convex = convex});
  out.total = support::floors_of(out.set.consumers) + random.below(80);
  out.found = equimarginal().allocate(out.set.consumers, out.total).value();
  return out;
}
const std::vector<std::uint64_t> unequal{1, 4, 5, 9};
constexpr int cases = 3000;

TEST(equimarginal, is_the_optimum_for_convex_curves_and_equal_units) {
  support::random_source random(2);
  for (int n = 0; n < cases; ++n) {
    const auto [set, total, found] = divide(random, {3}, true);
    ASSERT_NEAR(found.seconds, support::best_seconds(set.consumers, total), 1e-9) << "case " << n;
  }
}

/// The convex hull of a consumer's curve, from its definition.
double hull_at(const memory_consumer& c, std::uint64_t units) {
  return lowest_chord([&](std::uint64_t u) { return c.seconds(u); }, c.min_units, c.cap(), units);
}
/// Saving per byte on the hull of one unit more than `units`.
double saved_by_next(const memory_consumer& c, std::uint64_t units) {
  return (hull_at(c, units) - hull_at(c, units + 1)) / static_cast<double>(c.unit_bytes);
}

TEST(equimarginal, is_within_a_units_gain_of_the_bound_on_hulls) {
  support::random_source random(3);
  for (int n = 0; n < cases; ++n) {
    const auto [set, total, found] = divide(random, unequal, random.one_in(2));
    double reached = 0;
    double gain = 0;
    for (std::size_t i = 0; i < set.consumers.size(); ++i) {
      const auto& c = set.consumers[i];
      reached += hull_at(c, found.units[i]);
      for (auto u = c.min_units; u < c.cap(); ++u)
        gain = std::max(gain, hull_at(c, u) - hull_at(c, u + 1));
    }
    EXPECT_LE(reached, found.bound + gain + 1e-9) << "case " << n;
  }
}

// Any remaining unit that fits helps no consumer.
TEST(equimarginal, gives_out_every_unit_that_fits_and_helps) {
  support::random_source random(4);
  for (int n = 0; n < cases; ++n) {
    const auto [set, total, found] = divide(random, unequal, random.one_in(2));
    for (std::size_t i = 0; i < set.consumers.size(); ++i)
      EXPECT_TRUE(found.gain_per_byte[i] == 0 || set.consumers[i].unit_bytes > total - found.bytes)
          << "case " << n << ", consumer " << i;
  }
}

// Optimality: with equal units, moving a unit from any consumer to another saves nothing.
TEST(equimarginal, with_equal_units_no_gain_exceeds_any_loss) {
  support::random_source random(5);
  for (int n = 0; n < cases; ++n) {
    const auto found = divide(random, {4}, random.one_in(2)).found;
    EXPECT_LE(std::ranges::max(found.gain_per_byte), std::ranges::min(found.loss_per_byte) + 1e-12)
        << "case " << n;
  }
}

/// The fewest seconds with divisible units: all units of all hulls, the best first.
double best_cut_seconds(const std::vector<memory_consumer>& consumers, std::uint64_t total) {
  std::vector<std::pair<double, std::uint64_t>> units;  // saving per byte, bytes
  double seconds = 0;
  auto left = total - support::floors_of(consumers);
  for (const auto& c : consumers) {
    seconds += hull_at(c, c.min_units);
    for (auto u = c.min_units; u < c.cap(); ++u)
      units.emplace_back(saved_by_next(c, u), c.unit_bytes);
  }
  std::sort(units.rbegin(), units.rend());
  for (const auto& [saved, bytes] : units) {
    const auto taken = std::min(bytes, left);
    seconds -= saved * static_cast<double>(taken);
    left -= taken;
  }
  return seconds;
}

TEST(equimarginal, its_bound_is_the_optimum_with_divisible_units) {
  support::random_source random(6);
  for (int n = 0; n < cases; ++n) {
    const auto [set, total, found] = divide(random, unequal, random.one_in(2));
    ASSERT_NEAR(found.bound, best_cut_seconds(set.consumers, total), 1e-9) << "case " << n;
  }
}

// The certificate gives, for every consumer, the value of one unit more or less.
TEST(equimarginal, its_certificate_is_that_of_the_curves) {
  support::random_source random(7);
  for (int n = 0; n < cases; ++n) {
    const auto [set, total, found] = divide(random, unequal, random.one_in(2));
    ASSERT_EQ(found.gain_per_byte.size(), set.consumers.size());
    ASSERT_EQ(found.loss_per_byte.size(), set.consumers.size());
    for (std::size_t i = 0; i < set.consumers.size(); ++i) {
      const auto& c = set.consumers[i];
      const auto units = found.units[i];
      const auto gain = units == c.cap() ? 0 : saved_by_next(c, units);
      ASSERT_NEAR(found.gain_per_byte[i], gain, 1e-9) << "case " << n << ", consumer " << i;
      if (units == c.min_units)
        ASSERT_EQ(found.loss_per_byte[i], std::numeric_limits<double>::infinity());
      else
        ASSERT_NEAR(found.loss_per_byte[i], saved_by_next(c, units - 1), 1e-9)
            << "case " << n << ", consumer " << i;
    }
  }
}

}  // namespace
}  // namespace hotset::equimarginal_test
