// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Says whether a number is a multiple of a divisor that is known beforehand, without a division.

#include <bit>
#include <cstdint>

#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// Source: Granlund and Montgomery, Division by Invariant Integers, 9: n is a multiple of d = odd * 2^s if and only if
///         n / odd modulo 2^64, rotated right by s, is at most (2^64 - 1) / d.
/// Complexity: one multiplication.
class multiples_of {
 public:
  /// Pre: divisor > 0.
  constexpr explicit multiples_of(std::uint64_t divisor) noexcept
      : shift_(std::countr_zero(divisor)),
        inverse_(inverse(divisor >> shift_)),
        most_(~std::uint64_t{0} / divisor) {
    HOTSET_ASSERT(divisor > 0);
  }

  [[nodiscard]] constexpr bool contains(std::uint64_t n) const noexcept {
    return quotient(n) <= most_;
  }
  /// The quotient of a multiple; for any other number, more than every quotient.
  [[nodiscard]] constexpr std::uint64_t quotient(std::uint64_t n) const noexcept {
    return std::rotr(n * inverse_, shift_);
  }

 private:
  /// Newton's iteration: each step doubles the number of right bits, of which an odd number itself has three.
  static constexpr std::uint64_t inverse(std::uint64_t odd) noexcept {
    std::uint64_t x = odd;
    for (int bits = 3; bits < 64; bits *= 2) x *= 2 - odd * x;
    return x;
  }

  int shift_;
  std::uint64_t inverse_;
  std::uint64_t most_;
};

}  // namespace hotset
