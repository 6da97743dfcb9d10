// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Divides a budget so that the next byte saves the same time for every consumer.
///
/// Rule: each consumer's seconds are replaced by their convex hull from its floor to its cap. All begin at their
///   floors; the steepest piece of any hull, in seconds per byte, takes its bytes next. If a piece no longer fits, it
///   takes the whole units that fit, and the rest goes to smaller units. Ties: the first consumer; equal consumers
///   get even shares.
/// Source: WiSP eq. 5, for any number of consumers; Fox 1966 for the greedy choice on convex curves.
/// Deviations: units are whole. For convex curves and equal units the result is the optimum. Otherwise, on the hulls,
///   it is within one unit's gain of the optimum with fractional units.
/// Cost: O(units to build the hulls, corners * log consumers).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "hotset/planning/budget/allocation.hpp"
#include "hotset/planning/budget/even_shares.hpp"

namespace hotset {

/// A capacity, and its misses or their cost.
struct hull_corner {
  std::size_t slots = 0;
  double misses = 0;
};

/// Returns the lower convex hull of points: the capacities that lie above no line between two others. Mixtures of
/// capacities can reach it. Source: Talus (Beckmann and Sanchez, HPCA 2015) for why hulls; Andrew's monotone chain
/// for how. Pre: slots rise strictly from point to point. Complexity: O(points).
[[nodiscard]] inline std::vector<hull_corner> lower_hull(const std::vector<hull_corner>& points) {
  // Twice the area of a triangle: negative if `b` lies above the line from a to c.
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

/// Threads: const use is safe.
class equimarginal {
 public:
  /// Returns the division with its certificate, or why the budget cannot be divided.
  [[nodiscard]] result<allocation> allocate(std::span<const memory_consumer> consumers,
                                            std::uint64_t total_bytes) const {
    if (auto bad = validate_consumers(consumers, total_bytes)) return *std::move(bad);
    std::vector<hull> hulls;
    hulls.reserve(consumers.size());
    auto left = total_bytes;
    for (const auto& c : consumers) {
      hulls.emplace_back(c);
      left -= c.min_units * c.unit_bytes;
    }
    const auto bound = fill(hulls, left);
    std::vector<std::uint64_t> units;
    units.reserve(hulls.size());
    for (const auto& h : hulls) units.push_back(h.units());
    auto out = priced(consumers, even_shares(consumers, std::move(units)));
    out.bound = bound;
    for (std::size_t i = 0; i < hulls.size(); ++i) {
      auto& h = hulls[i];
      h.stand_at(out.units[i]);
      out.gain_per_byte.push_back(h.gain_per_byte());
      out.loss_per_byte.push_back(h.loss_per_byte());
    }
    return out;
  }

 private:
  /// One consumer's hull, and the position reached on it.
  class hull {
   public:
    explicit hull(const memory_consumer& c)
        : corners_(corners_of(c)), unit_bytes_(c.unit_bytes), units_(c.min_units) {}

    [[nodiscard]] std::uint64_t units() const noexcept { return units_; }
    [[nodiscard]] std::uint64_t unit_bytes() const noexcept { return unit_bytes_; }
    /// Units to the next corner; 0 at the cap.
    [[nodiscard]] std::uint64_t ahead() const noexcept {
      return at_ + 1 < corners_.size() ? corners_[at_ + 1].slots - units_ : 0;
    }
    /// Moves to any number of units. Pre: min_units <= units <= the cap.
    void stand_at(std::uint64_t units) noexcept {
      units_ = units;
      at_ = 0;
      while (at_ + 1 < corners_.size() && corners_[at_ + 1].slots <= units) ++at_;
    }
    [[nodiscard]] double gain_per_byte() const noexcept { return slope(at_); }
    [[nodiscard]] double loss_per_byte() const noexcept {
      if (units_ > corners_[at_].slots) return slope(at_);
      return at_ == 0 ? std::numeric_limits<double>::infinity() : slope(at_ - 1);
    }
    [[nodiscard]] double seconds() const noexcept {
      return corners_[at_].misses - gain_per_byte() * static_cast<double>(unit_bytes_) *
                                        static_cast<double>(units_ - corners_[at_].slots);
    }

   private:
    static std::vector<hull_corner> corners_of(const memory_consumer& c) {
      std::vector<hull_corner> points;
      for (auto units = c.min_units; units <= c.cap(); ++units)
        points.push_back({static_cast<std::size_t>(units), c.seconds(units)});
      return lower_hull(points);
    }
    [[nodiscard]] double slope(std::size_t piece) const noexcept {
      if (piece + 1 >= corners_.size()) return 0;
      const auto& from = corners_[piece];
      const auto& to = corners_[piece + 1];
      return (from.misses - to.misses) / static_cast<double>(to.slots - from.slots) /
             static_cast<double>(unit_bytes_);
    }

    std::vector<hull_corner> corners_;  ///< misses in seconds
    std::uint64_t unit_bytes_ = 1;
    std::uint64_t units_ = 0;
    std::size_t at_ = 0;  ///< last corner reached
  };

  /// Takes the steepest pieces first, until nothing useful fits. Returns the seconds with fractional units.
  static double fill(std::vector<hull>& hulls, std::uint64_t left) {
    using piece = std::pair<double, std::size_t>;
    const auto later = [](const piece& a, const piece& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    };
    std::priority_queue<piece, std::vector<piece>, decltype(later)> pieces(later);
    const auto offer = [&](std::size_t i) {
      if (const auto gain = hulls[i].gain_per_byte(); gain > 0) pieces.emplace(gain, i);
    };
    const auto seconds = [&] {
      double total = 0;
      for (const auto& h : hulls) total += h.seconds();
      return total;
    };
    for (std::size_t i = 0; i < hulls.size(); ++i) offer(i);
    std::optional<double> bound;
    while (!pieces.empty()) {
      const auto [gain, i] = pieces.top();
      pieces.pop();
      auto& h = hulls[i];
      const auto wanted = h.ahead();
      const auto taken = std::min(wanted, left / h.unit_bytes());
      h.stand_at(h.units() + taken);
      left -= taken * h.unit_bytes();
      if (taken == wanted) {
        offer(i);
      } else if (!bound) {
        bound = seconds() - gain * static_cast<double>(left);
      }
    }
    return bound ? *bound : seconds();
  }
};

}  // namespace hotset
