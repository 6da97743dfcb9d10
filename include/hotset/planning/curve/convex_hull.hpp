// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The lower convex hull of a miss curve: what mixtures of capacities could reach, and what an allocator may trust.
///
/// Rule: the corners are the capacities that no line between two others lies below; between corners, the line.
/// Source: Talus (Beckmann and Sanchez, HPCA 2015) for why hulls; Andrew's monotone chain for how.

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "hotset/planning/curve/miss_curve.hpp"

namespace hotset {

/// Immutable. Threads: const use is safe. Misses below the first corner are those of the first corner.
class convex_hull {
 public:
  /// A capacity and its misses.
  struct corner {
    std::size_t slots = 0;
    double misses = 0;
  };

  convex_hull() = default;
  /// Of the capacities first..curve.max_slots(). Complexity: O(capacities).
  template <miss_curve Curve>
  explicit convex_hull(const Curve& curve, std::size_t first = 0) {
    const auto last = std::max(first, curve.max_slots());
    for (auto slots = first; slots <= last; ++slots) add({slots, curve.misses(slots)});
  }
  /// Pre: slots rise strictly from corner to corner.
  explicit convex_hull(const std::vector<corner>& points) {
    for (const auto& point : points) add(point);
  }

  [[nodiscard]] const std::vector<corner>& corners() const noexcept { return corners_; }
  [[nodiscard]] std::size_t max_slots() const noexcept {
    return corners_.empty() ? 0 : corners_.back().slots;
  }
  /// Complexity: O(log corners).
  [[nodiscard]] double misses(std::size_t slots) const noexcept {
    if (corners_.empty()) return 0;
    const auto after = std::upper_bound(corners_.begin(), corners_.end(), slots,
                                        [](std::size_t n, const corner& c) { return n < c.slots; });
    if (after == corners_.begin()) return corners_.front().misses;
    if (after == corners_.end()) return corners_.back().misses;
    const auto& low = *(after - 1);
    const auto share =
        static_cast<double>(slots - low.slots) / static_cast<double>(after->slots - low.slots);
    return low.misses + share * (after->misses - low.misses);
  }

 private:
  /// Twice the area of a triangle: negative where `b` lies above the line from a to c.
  static double turn(const corner& a, const corner& b, const corner& c) noexcept {
    const auto ab = static_cast<double>(b.slots - a.slots);
    const auto ac = static_cast<double>(c.slots - a.slots);
    return ab * (c.misses - a.misses) - ac * (b.misses - a.misses);
  }
  void add(corner point) {
    while (corners_.size() >= 2 && turn(corners_[corners_.size() - 2], corners_.back(), point) <= 0)
      corners_.pop_back();
    corners_.push_back(point);
  }

  std::vector<corner> corners_;
};

static_assert(miss_curve<convex_hull>);

}  // namespace hotset
