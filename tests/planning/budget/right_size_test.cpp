// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/budget/right_size.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "hotset/planning/curve/sampled_miss_curve.hpp"

namespace hotset::right_size_test {
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

TEST(support_size, counts_the_most_used) {
  const std::vector<double> uses{1, 0, 6, 3};
  EXPECT_EQ(support_size(uses, 0.5), 1U);
  EXPECT_EQ(support_size(uses, 0.6), 1U);
  EXPECT_EQ(support_size(uses, 0.61), 2U);
  EXPECT_EQ(support_size(uses, 1), 3U);
  EXPECT_EQ(support_size(std::vector<double>(4, 0.0), 1), 0U);
  EXPECT_EQ(support_size({}, 1), 0U);
}

TEST(support_cap, covers_every_layer) {
  const std::vector<double> uses{9, 1, 0, 0, /* next layer */ 1, 1, 1, 1};
  EXPECT_EQ(support_cap(uses, 4, 0.9), 4U);
  EXPECT_EQ(support_cap(uses, 4, 0.5), 2U);
  EXPECT_EQ(support_cap({}, 4, 0.5), 0U);
}

}  // namespace
}  // namespace hotset::right_size_test
