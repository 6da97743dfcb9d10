// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A view of any miss curve, so that curves of different types can stand in one list.

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "hotset/planning/curve/miss_curve.hpp"

namespace hotset {

/// Owns nothing: the curve must outlive it. Threads: as the curve. Cost: one indirect call.
class miss_curve_ref {
 public:
  /// Of nothing: never misses.
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

}  // namespace hotset
