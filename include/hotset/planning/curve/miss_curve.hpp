// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on a miss curve: what a pool of so many slots would have missed.
///
/// | expression | meaning |
/// |---|---|
/// | `misses(slots)` | misses of a step, on average, with so many slots; never grows with them |
/// | `max_slots()` | from here on nothing changes |
///
/// Both are `noexcept` and may be asked in any order.

#include <concepts>
#include <cstddef>

#include "hotset/version.hpp"

// clang-format 14 tears compound requirements apart.
// clang-format off
namespace hotset {

template <class C>
concept miss_curve = requires(const C curve, std::size_t slots) {
  { curve.misses(slots) } noexcept -> std::same_as<double>;
  { curve.max_slots() } noexcept -> std::same_as<std::size_t>;
};

}  // namespace hotset
