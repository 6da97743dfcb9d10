// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Arithmetic on a row of experts' values, with fused operations in a fixed order: every level gives the same bits.

#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/platform/in_vectors.hpp"

namespace hotset {

namespace detail {

/// Adds eight partial sums in a fixed order. term(i) is the i-th summand.
template <class Sum, class Term>
Sum sum_of(std::size_t n, Term term) noexcept {
  std::array<Sum, 8> sums{};
  std::size_t i = 0;
  for (; i + sums.size() <= n; i += sums.size())
    for (std::size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += term(i + lane);
  for (std::size_t lane = 0; i < n; ++i, ++lane) sums[lane] += term(i);
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}
/// Sum of n values, in the same order at every level.
template <class Number>
Number sum(const Number* a, std::size_t n) noexcept {
  return sum_of<Number>(n, [a](std::size_t i) { return a[i]; });
}
/// Sum of n products, in the same order at every level.
inline float dot(const float* a, const float* b, std::size_t n) noexcept {
  return sum_of<float>(n, [a, b](std::size_t i) { return a[i] * b[i]; });
}

}  // namespace detail

namespace value_kernels {

/// A rate is fast * a + slow * b.
struct blend {
  float fast = 0;
  float slow = 0;
};
/// A value is (votes + rest * rate) * scale.
struct shares {
  float rest = 1;
  float scale = 1;
};

// Shapes: all [experts].

/// out = (votes + rest * rate) * scale + lately * fast.
// NOLINTNEXTLINE(bugprone-easily-swappable-parameters)
inline void share(std::span<const float> votes, std::span<const float> fast,
                  std::span<const float> slow, blend of, shares by, float lately,
                  std::span<float> out, vector_level level) noexcept {
  hotset::detail::in_vectors(level, [=] {
    for (std::size_t e = 0; e < out.size(); ++e) {
      const float rate = std::fma(of.fast, fast[e], of.slow * slow[e]);
      const float share = std::fma(by.rest, rate, votes[e]) * by.scale;
      out[e] = std::fma(lately, fast[e], share);
    }
  });
}
/// to = rates - step * rates, each rounded once. `to` must not overlap `rates`.
inline void decay(std::span<const float> rates, float step, std::span<float> to,
                  vector_level level) noexcept {
  hotset::detail::in_vectors(level, [=] {
    for (std::size_t e = 0; e < to.size(); ++e) to[e] = std::fma(-step, rates[e], rates[e]);
  });
}
/// to += times * what.
inline void add(std::span<const float> what, float times, std::span<float> to,
                vector_level level) noexcept {
  hotset::detail::in_vectors(level, [=] {
    for (std::size_t e = 0; e < to.size(); ++e) to[e] = std::fma(times, what[e], to[e]);
  });
}

}  // namespace value_kernels

}  // namespace hotset
