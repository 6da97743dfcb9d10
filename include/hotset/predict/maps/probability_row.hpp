// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Checks a row of router probabilities and normalises it to sum 1.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "hotset/core/router_scores.hpp"

namespace hotset {

namespace probability_row {

/// Accepted difference between a row's sum and 1; softmax in half precision or bfloat16 stays within it.
inline constexpr double tolerance = 0.01;

/// Returns the sum of the row; 0 if a value is negative or NaN, or if the sum differs from 1 by more than the
/// tolerance.
[[nodiscard]] inline double sum_of(std::span<const float> row) noexcept {
  double sum = 0;
  for (const auto p : row) {
    if (!(p >= 0.0F)) return 0;
    sum += static_cast<double>(p);
  }
  return std::abs(sum - 1.0) <= tolerance ? sum : 0;
}
/// Writes the row divided by its sum. Returns false, and writes zeros, for an invalid row. `row` and `out` may be the
/// same.
inline bool normalise(std::span<const float> row, std::span<float> out) noexcept {
  const auto sum = sum_of(row);
  for (std::size_t e = 0; e < row.size(); ++e)
    out[e] = sum > 0 ? static_cast<float>(static_cast<double>(row[e]) / sum) : 0.0F;
  return sum > 0;
}
/// Writes the softmax. Returns false, and writes zeros, if no score is finite or one is NaN or plus infinity.
inline bool softmax(std::span<const float> scores, std::span<float> out) noexcept {
  constexpr auto infinity = std::numeric_limits<float>::infinity();
  if (!std::ranges::all_of(scores, [](float s) { return s < infinity; })) {
    std::ranges::fill(out, 0.0F);
    return false;
  }
  hotset::softmax(scores, out);
  return std::ranges::any_of(out, [](float p) { return p > 0; });
}

}  // namespace probability_row

}  // namespace hotset
