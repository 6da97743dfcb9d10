// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Roots, logarithms, powers and softmax in fixed point: equal bits on every machine.
///
/// pow, exp and log differ between C libraries, and compilers may fuse a * b + c.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/version.hpp"

namespace hotset {
namespace detail {

inline constexpr std::uint64_t ln2_q24 = 11629080;
inline constexpr std::uint64_t log2_e_q24 = 24204406;

/// log2 of the 32 leading bits of n with 30 fractional bits, by repeated squaring of the significand. Pre: n > 0.
[[nodiscard]] constexpr std::uint64_t log2_q30(std::uint64_t n) noexcept {
  const auto whole = static_cast<unsigned>(std::bit_width(n)) - 1U;
  // In [1, 2), 31 fractional bits.
  std::uint64_t significand = whole > 31 ? n >> (whole - 31U) : n << (31U - whole);
  std::uint64_t fraction = 0;
  for (int bit = 0; bit < 30; ++bit) {
    significand = (significand * significand) >> 31U;
    const std::uint64_t carry = significand >> 32U;  // no branch: its value is unpredictable
    fraction = (fraction << 1U) | carry;
    significand >>= carry;
  }
  return (std::uint64_t{whole} << 30U) | fraction;
}

/// ln(n) in units of 2^-18, rounded down. Pre: 0 < n < 2^62.
[[nodiscard]] constexpr std::int64_t ln_q18(std::uint64_t n) noexcept {
  return static_cast<std::int64_t>((log2_q30(n) * ln2_q24) >> 36U);
}

/// Square root, rounded down.
[[nodiscard]] constexpr std::uint64_t integer_sqrt(std::uint64_t n) noexcept {
  std::uint64_t root = 0;
  for (std::uint64_t bit = std::uint64_t{1} << 31U; bit != 0; bit >>= 1U)
    if ((root + bit) * (root + bit) <= n) root += bit;
  return root;
}

/// 2^-(1/2), 2^-(1/4), 2^-(1/8), ... with 31 fractional bits.
inline constexpr auto exp2_halvings_q31 = [] {
  std::array<std::uint64_t, 30> factors{};
  factors[0] = integer_sqrt(std::uint64_t{1} << 61U);
  for (std::size_t i = 1; i < factors.size(); ++i) factors[i] = integer_sqrt(factors[i - 1] << 31U);
  return factors;
}();

/// 2^40 * 2^-x for x with 30 fractional bits, at least 1.
[[nodiscard]] constexpr std::uint64_t exp2_minus_q40(std::uint64_t x) noexcept {
  const std::uint64_t whole = x >> 30U;
  if (whole >= 40) return 1;
  constexpr std::uint64_t one = std::uint64_t{1} << 31U;
  auto value = one;
  for (unsigned i = 0; i < 30; ++i) {  // no branch: the bits of x are unpredictable
    const std::uint64_t bit = (x >> (29U - i)) & 1U;
    value = (value * (one - bit * (one - exp2_halvings_q31[i]))) >> 31U;
  }
  return std::max<std::uint64_t>((value << 9U) >> whole, 1);
}

/// Writes masses proportional to e^logit: the greatest is 2^40, none is below 1. Returns their sum.
/// Units: logits in steps of 2^-18. Pre: equal sizes, 1..2^20; no two logits are 2^38 steps apart.
inline std::uint64_t softmax_masses(std::span<const std::int64_t> logits,
                                    std::span<std::uint64_t> masses) noexcept {
  const auto greatest = *std::ranges::max_element(logits);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto behind = static_cast<std::uint64_t>(greatest - logits[i]);
    total += masses[i] = exp2_minus_q40((behind * log2_e_q24) >> 12U);
  }
  return total;
}

/// mass / total, rounded once to double and once to float. Pre: total > 0.
[[nodiscard]] constexpr float share_of(std::uint64_t mass, std::uint64_t total) noexcept {
  return static_cast<float>(static_cast<double>(mass) / static_cast<double>(total));
}

/// Threshold for draws of 53 bits: the given share of them is below it.
[[nodiscard]] constexpr std::uint64_t chance_q53(double share) noexcept {
  return static_cast<std::uint64_t>(share * 0x1p53);
}

/// A factor in steps of 2^-24, truncated.
[[nodiscard]] constexpr std::int64_t factor_q24(double factor) noexcept {
  return static_cast<std::int64_t>(factor * 0x1p24);
}

/// A product in steps of 2^-18, rounded to nearest. Pre: below 2^63 before rounding.
[[nodiscard]] constexpr std::int64_t product_q18(std::int64_t factor_q24,
                                                 std::int64_t draw_q24) noexcept {
  return (factor_q24 * draw_q24 + (std::int64_t{1} << 29U)) >> 30U;
}

}  // namespace detail
}  // namespace hotset
