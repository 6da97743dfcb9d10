// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Draws from the normal distribution in fixed point, equal on every machine.

#include <cstdint>

#include "hotset/core/numbers/splitmix64.hpp"
#include "lab/traces/synthetic/integer_math.hpp"

namespace hotset {

/// Mean 0, variance 1 within 2^-20, in steps of 2^-24.
///
/// Rule: Marsaglia's polar method. A word of splitmix64 gives a point: u = 2 a + 1 - 2^31, a its bits 33..63, and v
///       likewise from bits 2..32. A point with s = u^2 + v^2 of at least 2^62 is rejected. Otherwise u r / sqrt(s)
///       is a draw and v r / sqrt(s) the next one, r = sqrt(-2 ln(s / 2^62)), at most 9.2; roots are rounded down,
///       quotients towards 0.
class normal_draws {
 public:
  explicit constexpr normal_draws(std::uint64_t seed) noexcept : random_(seed) {}

  std::int64_t next() noexcept {
    if (has_second_) {
      has_second_ = false;
      return second_;
    }
    std::int64_t u = 0;
    std::int64_t v = 0;
    std::uint64_t s = 0;
    do {
      const auto word = random_.next();
      u = coordinate(word >> 33U);
      v = coordinate((word >> 2U) & 0x7fffffffU);
      s = static_cast<std::uint64_t>(u * u + v * v);
    } while (s >= std::uint64_t{1} << 62U);
    const auto halvings = (std::uint64_t{62} << 30U) - detail::log2_q30(s);
    const auto radius =
        static_cast<std::int64_t>(detail::integer_sqrt((halvings * detail::ln2_q24) >> 5U));
    const auto length = static_cast<std::int64_t>(detail::integer_sqrt(s));
    second_ = v * radius / length;
    has_second_ = true;
    return u * radius / length;
  }

 private:
  static constexpr std::int64_t coordinate(std::uint64_t bits) noexcept {
    return 2 * static_cast<std::int64_t>(bits) + 1 - (std::int64_t{1} << 31U);
  }

  splitmix64 random_;
  std::int64_t second_ = 0;
  bool has_second_ = false;
};

}  // namespace hotset
