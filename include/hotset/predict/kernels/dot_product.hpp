// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sums of predictors whose bits do not depend on how a compiler uses vectors.

#include <array>
#include <cstddef>

#include "hotset/version.hpp"

namespace hotset::detail {

/// Eight sums side by side, added up in a fixed order. term(i) is the i-th summand.
template <class Term>
float sum_of(std::size_t n, Term term) noexcept {
  std::array<float, 8> sums{};
  std::size_t i = 0;
  for (; i + sums.size() <= n; i += sums.size())
    for (std::size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += term(i + lane);
  for (std::size_t lane = 0; i < n; ++i, ++lane) sums[lane] += term(i);
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}
/// Of n values, in one order at every level.
inline float sum(const float* a, std::size_t n) noexcept {
  return sum_of(n, [a](std::size_t i) { return a[i]; });
}
/// Of n products, in one order at every level.
inline float dot(const float* a, const float* b, std::size_t n) noexcept {
  return sum_of(n, [a, b](std::size_t i) { return a[i] * b[i]; });
}

}  // namespace hotset::detail
