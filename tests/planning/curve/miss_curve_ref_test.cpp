// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/curve/miss_curve_ref.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "hotset/planning/curve/convex_hull.hpp"
#include "hotset/planning/curve/decayed_histogram.hpp"
#include "hotset/planning/curve/sampled_miss_curve.hpp"

namespace hotset::miss_curve_ref_test {
namespace {

TEST(miss_curve_ref, asks_the_curve_that_it_views) {
  const sampled_miss_curve table({4, 2, 1});
  const convex_hull hull(table);
  decayed_histogram live({.slots = 5});
  live.add(2);
  live.end_burst();
  const std::vector<miss_curve_ref> views{table, hull, live};
  EXPECT_EQ(views[0].misses(1), 2);
  EXPECT_EQ(views[1].max_slots(), 2U);
  EXPECT_EQ(views[2].misses(1), 1);
  EXPECT_EQ(views[2].max_slots(), 5U);
  const miss_curve_ref copy = views[0];
  EXPECT_EQ(copy.misses(2), 1);
}

TEST(miss_curve_ref, of_nothing_never_misses) {
  EXPECT_EQ(miss_curve_ref().misses(3), 0);
  EXPECT_EQ(miss_curve_ref().max_slots(), 0U);
}

}  // namespace
}  // namespace hotset::miss_curve_ref_test
