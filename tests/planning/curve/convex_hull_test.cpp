// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/curve/convex_hull.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/planning/curve/miss_curve.hpp"
#include "random_source.hpp"

namespace hotset::convex_hull_test {
namespace {

std::vector<std::size_t> slots_of(const convex_hull& hull) {
  std::vector<std::size_t> slots;
  for (const auto& corner : hull.corners()) slots.push_back(corner.slots);
  return slots;
}

// A cliff: nothing is gained up to 3, then all.
TEST(convex_hull, spans_a_cliff) {
  const convex_hull hull(sampled_miss_curve({9, 9, 9, 0, 0}));
  EXPECT_THAT(slots_of(hull), testing::ElementsAre(0U, 3U, 4U));
  EXPECT_DOUBLE_EQ(hull.misses(1), 6);
  EXPECT_DOUBLE_EQ(hull.misses(3), 0);
  EXPECT_DOUBLE_EQ(hull.misses(100), 0);
  EXPECT_EQ(hull.max_slots(), 4U);
}

TEST(convex_hull, points_on_a_line_are_no_corners) {
  EXPECT_THAT(slots_of(convex_hull(sampled_miss_curve({8, 6, 4, 2, 1}))),
              testing::ElementsAre(0U, 3U, 4U));
}

TEST(convex_hull, begins_where_it_is_told) {
  const convex_hull hull(sampled_miss_curve({9, 9, 4, 3, 2.5}), 2);
  EXPECT_THAT(slots_of(hull), testing::ElementsAre(2U, 3U, 4U));
  EXPECT_DOUBLE_EQ(hull.misses(0), 4);
}

TEST(convex_hull, of_nothing_is_nothing) {
  EXPECT_EQ(convex_hull().misses(3), 0);
  EXPECT_EQ(convex_hull().max_slots(), 0U);
  const convex_hull one(sampled_miss_curve({5}));
  EXPECT_EQ(one.misses(0), 5);
  EXPECT_EQ(one.misses(7), 5);
}

/// The lowest line between two points of the curve above each capacity.
double lowest_chord(const std::vector<double>& misses, std::size_t at) {
  double best = misses[at];
  for (std::size_t a = 0; a <= at; ++a)
    for (std::size_t b = at; b < misses.size(); ++b) {
      if (a == b) continue;
      const double share = static_cast<double>(at - a) / static_cast<double>(b - a);
      best = std::min(best, misses[a] + share * (misses[b] - misses[a]));
    }
  return best;
}

TEST(convex_hull, is_the_lowest_chord_everywhere) {
  support::random_source random(7);
  for (int n = 0; n < 300; ++n) {
    std::vector<double> misses(1 + static_cast<std::size_t>(random.below(24)));
    for (auto& m : misses) m = static_cast<double>(random.below(random.one_in(2) ? 4 : 1000));
    std::sort(misses.begin(), misses.end(), std::greater<>());
    const convex_hull hull{sampled_miss_curve(misses)};
    for (std::size_t at = 0; at < misses.size(); ++at)
      ASSERT_NEAR(hull.misses(at), lowest_chord(misses, at), 1e-9) << "curve " << n << " at " << at;
  }
}

}  // namespace
}  // namespace hotset::convex_hull_test
