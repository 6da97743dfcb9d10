// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/curve/sampled_miss_curve.hpp"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace hotset::sampled_miss_curve_test {
namespace {

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
}  // namespace hotset::sampled_miss_curve_test
