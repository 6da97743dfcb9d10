// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/curve/miss_curve.hpp"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/planning/curve/decayed_histogram.hpp"

namespace hotset::miss_curve_test {
namespace {

/// A minimal type that satisfies the concept; each test below removes one member.
struct archetype {
  [[nodiscard]] double misses(std::size_t) const noexcept { return 0; }
  [[nodiscard]] std::size_t max_slots() const noexcept { return 0; }
};
struct throwing : archetype {
  [[nodiscard]] double misses(std::size_t) const { return 0; }
};
struct endless {
  [[nodiscard]] double misses(std::size_t) const noexcept { return 0; }
};
TEST(miss_curve, takes_the_archetype_and_nothing_less) {
  EXPECT_TRUE(miss_curve<archetype>);
  EXPECT_FALSE(miss_curve<throwing>);
  EXPECT_FALSE(miss_curve<endless>);
}

TEST(miss_curve_ref, reads_the_curve_that_it_refers_to) {
  const sampled_miss_curve table({4, 2, 1});
  auto live = decayed_histogram::create({.slots = 5}).value();
  live.add(2);
  live.end_burst();
  const std::vector<miss_curve_ref> views{table, live};
  EXPECT_EQ(views[0].misses(1), 2);
  EXPECT_EQ(views[0].max_slots(), 2U);
  EXPECT_EQ(views[1].misses(1), 1);
  EXPECT_EQ(views[1].max_slots(), 5U);
  const miss_curve_ref copy = views[0];
  EXPECT_EQ(copy.misses(2), 1);
}

TEST(miss_curve_ref, of_nothing_never_misses) {
  EXPECT_EQ(miss_curve_ref().misses(3), 0);
  EXPECT_EQ(miss_curve_ref().max_slots(), 0U);
}

TEST(sampled_miss_curve, is_linear_between_capacities) {
  const sampled_miss_curve curve({10, 4, 4, 1}, 5);
  EXPECT_EQ(curve.max_slots(), 15U);
  EXPECT_DOUBLE_EQ(curve.misses(0), 10);
  EXPECT_DOUBLE_EQ(curve.misses(1), 8.8);
  EXPECT_DOUBLE_EQ(curve.misses(5), 4);
  EXPECT_DOUBLE_EQ(curve.misses(9), 4);
  EXPECT_DOUBLE_EQ(curve.misses(14), 1.6);
  EXPECT_DOUBLE_EQ(curve.misses(15), 1);
  EXPECT_DOUBLE_EQ(curve.misses(1000), 1);
}

TEST(sampled_miss_curve, is_per_step) {
  const std::vector<std::uint64_t> counts{10, 5};
  const auto curve = sampled_miss_curve::per_step(counts, 4);
  EXPECT_DOUBLE_EQ(curve.misses(0), 2.5);
  EXPECT_DOUBLE_EQ(curve.misses(1), 1.25);
}

TEST(sampled_miss_curve, of_nothing_never_misses) { EXPECT_EQ(sampled_miss_curve().misses(3), 0); }

}  // namespace
}  // namespace hotset::miss_curve_test
