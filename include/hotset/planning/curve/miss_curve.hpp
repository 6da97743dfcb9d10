// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Miss curves: misses of pools of each size. The requirement, a view of any curve, and a tabulated curve.
///
/// | expression | meaning |
/// |---|---|
/// | `misses(slots)` | mean misses per step with this many slots; never grows with the slots |
/// | `max_slots()` | more slots change nothing |
///
/// Both are `noexcept` and may be called in any order.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "hotset/core/platform/assert.hpp"

namespace hotset {

// clang-format off: version 14 tears compound requirements apart
template <class C>
concept miss_curve = requires(const C curve, std::size_t slots) {
  { curve.misses(slots) }
  noexcept->std::same_as<double>;
  { curve.max_slots() }
  noexcept->std::same_as<std::size_t>;
};
// clang-format on

/// A view of any miss curve, so that curves of different types fit in one list. The curve must outlive it. Threads:
/// as the curve. Cost: one indirect call.
class miss_curve_ref {
 public:
  /// An empty curve: never misses.
  miss_curve_ref() = default;
  template <miss_curve Curve>
    requires(!std::same_as<Curve, miss_curve_ref>)
  miss_curve_ref(const Curve& curve)
  noexcept  // NOLINT(google-explicit-constructor): a view
      : curve_(&curve),
        misses_([](const void* c, std::size_t slots) noexcept {
          return static_cast<const Curve*>(c)->misses(slots);
        }),
        max_slots_(
            [](const void* c) noexcept { return static_cast<const Curve*>(c)->max_slots(); }) {}

  [[nodiscard]] double misses(std::size_t slots) const noexcept {
    return curve_ == nullptr ? 0.0 : misses_(curve_, slots);
  }
  [[nodiscard]] std::size_t max_slots() const noexcept {
    return curve_ == nullptr ? 0 : max_slots_(curve_);
  }

 private:
  const void* curve_ = nullptr;
  double (*misses_)(const void*, std::size_t) noexcept = nullptr;
  std::size_t (*max_slots_)(const void*) noexcept = nullptr;
};

static_assert(miss_curve<miss_curve_ref>);

/// A curve given at evenly spaced capacities, and linear between them.
/// Immutable. Threads: const use is safe. Memory: 8 bytes per capacity.
class sampled_miss_curve {
 public:
  sampled_miss_curve() : misses_(1, 0.0) {}
  /// misses: at 0, width, 2 width, ... slots. Pre: not empty, non-increasing; width >= 1.
  explicit sampled_miss_curve(std::vector<double> misses, std::size_t width = 1)
      : misses_(std::move(misses)), width_(width) {
    HOTSET_ASSERT(!misses_.empty() && width_ >= 1);
    HOTSET_ASSERT(std::is_sorted(misses_.rbegin(), misses_.rend()));
  }
  /// Curve of a whole trace, divided by its steps. Pre: steps >= 1.
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
