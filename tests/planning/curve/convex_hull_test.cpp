// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/curve/convex_hull.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "budget_samples.hpp"

namespace hotset::convex_hull_test {
namespace {

std::vector<hull_corner> hull_of(const std::vector<double>& misses) {
  std::vector<hull_corner> points;
  for (const auto m : misses) points.push_back({points.size(), m});
  return lower_hull(points);
}
std::vector<std::size_t> slots_of(const std::vector<hull_corner>& hull) {
  std::vector<std::size_t> slots;
  for (const auto& corner : hull) slots.push_back(corner.slots);
  return slots;
}

TEST(convex_hull, has_corners_where_no_line_between_others_lies_below) {
  // A cliff: nothing is gained up to 3, then all.
  EXPECT_THAT(slots_of(hull_of({9, 9, 9, 0, 0})), testing::ElementsAre(0U, 3U, 4U));
  // Points on a line are no corners.
  EXPECT_THAT(slots_of(hull_of({8, 6, 4, 2, 1})), testing::ElementsAre(0U, 3U, 4U));
  EXPECT_THAT(slots_of(hull_of({5})), testing::ElementsAre(0U));
  EXPECT_TRUE(hull_of({}).empty());
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
    const auto hull = hull_of(misses);
    for (std::size_t at = 0; at < misses.size(); ++at)
      ASSERT_NEAR(support::on_hull(hull, at), lowest_chord(misses, at), 1e-9)
          << "curve " << n << " at " << at;
  }
}

}  // namespace
}  // namespace hotset::convex_hull_test
