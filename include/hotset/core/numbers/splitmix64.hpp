// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Random 64-bit words; the same seed gives the same words on every machine.

#include <bit>
#include <cstdint>

#include "hotset/version.hpp"

namespace hotset {

/// Source: splitmix64 by Steele, Lea and Flood. It has 64 bits of state and a full period of 2^64.
class splitmix64 {
 public:
  explicit constexpr splitmix64(std::uint64_t seed) noexcept : state_(seed) {}
  constexpr std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31U);
  }
  /// Uniform in [0, bound), unbiased. Pre: bound > 0.
  constexpr std::uint64_t below(std::uint64_t bound) noexcept {
    const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(bound | 1U);
    std::uint64_t draw = next() & mask;
    while (draw >= bound) draw = next() & mask;
    return draw;
  }
  /// Uniform in [0, 1), a multiple of 2^-53.
  constexpr double uniform() noexcept { return static_cast<double>(next() >> 11U) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace hotset
