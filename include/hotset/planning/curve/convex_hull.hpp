// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The lower convex hull of a miss curve: what mixtures of capacities could reach, and what an allocator may trust.
///
/// Rule: the corners are the capacities that no line between two others lies below; between corners, the line.
/// Source: Talus (Beckmann and Sanchez, HPCA 2015) for why hulls; Andrew's monotone chain for how.

#include <cstddef>
#include <vector>

#include "hotset/version.hpp"

namespace hotset {

/// A capacity and its misses, or what they cost.
struct hull_corner {
  std::size_t slots = 0;
  double misses = 0;
};

/// The corners of the hull of points. Pre: slots rise strictly from point to point. Complexity: O(points).
[[nodiscard]] inline std::vector<hull_corner> lower_hull(const std::vector<hull_corner>& points) {
  // Twice the area of a triangle: negative where `b` lies above the line from a to c.
  const auto turn = [](const hull_corner& a, const hull_corner& b, const hull_corner& c) {
    const auto ab = static_cast<double>(b.slots - a.slots);
    const auto ac = static_cast<double>(c.slots - a.slots);
    return ab * (c.misses - a.misses) - ac * (b.misses - a.misses);
  };
  std::vector<hull_corner> corners;
  for (const auto& point : points) {
    while (corners.size() >= 2 && turn(corners[corners.size() - 2], corners.back(), point) <= 0)
      corners.pop_back();
    corners.push_back(point);
  }
  return corners;
}

}  // namespace hotset
