// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A miss curve known at evenly spaced capacities, and on the line between them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/platform/assert.hpp"
#include "hotset/planning/curve/miss_curve.hpp"

namespace hotset {

/// Immutable. Threads: const use is safe. Memory: 8 bytes a capacity.
class sampled_miss_curve {
 public:
  sampled_miss_curve() : misses_(1, 0.0) {}
  /// misses: at 0, width, 2 width, ... slots. Pre: not empty, non-increasing; width >= 1.
  explicit sampled_miss_curve(std::vector<double> misses, std::size_t width = 1)
      : misses_(std::move(misses)), width_(width) {
    HOTSET_ASSERT(!misses_.empty() && width_ >= 1);
    HOTSET_ASSERT(std::is_sorted(misses_.rbegin(), misses_.rend()));
  }
  /// Of a whole trace, divided by its steps. Pre: steps >= 1.
  static sampled_miss_curve per_step(std::span<const std::uint64_t> misses, std::uint64_t steps) {
    std::vector<double> out(misses.size());
    std::transform(misses.begin(), misses.end(), out.begin(), [steps](std::uint64_t count) {
      return static_cast<double>(count) / static_cast<double>(steps);
    });
    return sampled_miss_curve(std::move(out));
  }

  [[nodiscard]] std::size_t max_slots() const noexcept { return (misses_.size() - 1) * width_; }
  /// Complexity: O(1).
  [[nodiscard]] double misses(std::size_t slots) const noexcept {
    const auto low = slots / width_;
    if (low >= misses_.size() - 1) return misses_.back();
    const auto share = static_cast<double>(slots % width_) / static_cast<double>(width_);
    return misses_[low] + share * (misses_[low + 1] - misses_[low]);
  }

 private:
  std::vector<double> misses_;
  std::size_t width_ = 1;
};

static_assert(miss_curve<sampled_miss_curve>);

}  // namespace hotset
