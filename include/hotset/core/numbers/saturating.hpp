// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sums and products that saturate at the largest number: what is too large stays too large for any limit.

#include <cstdint>
#include <limits>

#include "hotset/version.hpp"

namespace hotset::detail {

/// a + b, or the largest number.
[[nodiscard]] constexpr std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) noexcept {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  return b > most - a ? most : a + b;
}
/// a * b, or the largest number.
[[nodiscard]] constexpr std::uint64_t saturating_product(std::uint64_t a,
                                                         std::uint64_t b) noexcept {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  return a != 0 && b > most / a ? most : a * b;
}

}  // namespace hotset::detail
