// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Arithmetic on a row of experts' values, with fused operations in one order: every level gives the same bits.

#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include "hotset/core/platform/compiler.hpp"
#if HOTSET_X86_VECTORS
#include <immintrin.h>
#endif

namespace hotset {

namespace detail {

/// Eight sums side by side, added up in a fixed order. term(i) is the i-th summand.
template <class Sum, class Term>
Sum sum_of(std::size_t n, Term term) noexcept {
  std::array<Sum, 8> sums{};
  std::size_t i = 0;
  for (; i + sums.size() <= n; i += sums.size())
    for (std::size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += term(i + lane);
  for (std::size_t lane = 0; i < n; ++i, ++lane) sums[lane] += term(i);
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}
/// Of n values, in one order at every level.
inline float sum(const float* a, std::size_t n) noexcept {
  return sum_of<float>(n, [a](std::size_t i) { return a[i]; });
}
/// Of n products, in one order at every level.
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

/// Of one expert.
inline float rate_of(float fast, float slow, blend of) noexcept {
  return std::fma(of.fast, fast, of.slow * slow);
}
/// The reference of share.
inline void share_scalar(std::span<const float> votes, std::span<const float> fast,
                         std::span<const float> slow, blend of, shares by, std::span<float> out,
                         std::size_t from = 0) noexcept {
  for (std::size_t e = from; e < out.size(); ++e)
    out[e] = std::fma(by.rest, rate_of(fast[e], slow[e], of), votes[e]) * by.scale;
}
/// Rates, moved towards 0 by a step: each rounded once. The reference of decay.
inline void decay_scalar(std::span<const float> rates, float step, std::span<float> out,
                         std::size_t from = 0) noexcept {
  for (std::size_t e = from; e < out.size(); ++e) out[e] = std::fma(-step, rates[e], rates[e]);
}
/// The reference of add.
inline void add_scalar(std::span<const float> what, float times, std::span<float> to,
                       std::size_t from = 0) noexcept {
  for (std::size_t e = from; e < to.size(); ++e) to[e] = std::fma(times, what[e], to[e]);
}

#if HOTSET_X86_VECTORS
namespace detail {
__attribute__((target("avx2,fma"))) inline void share_avx2(std::span<const float> votes,
                                                           std::span<const float> fast,
                                                           std::span<const float> slow, blend of,
                                                           shares by,
                                                           std::span<float> out) noexcept {
  std::size_t e = 0;
  for (; e + 8 <= out.size(); e += 8) {
    const __m256 late = _mm256_mul_ps(_mm256_set1_ps(of.slow), _mm256_loadu_ps(&slow[e]));
    const __m256 rate = _mm256_fmadd_ps(_mm256_set1_ps(of.fast), _mm256_loadu_ps(&fast[e]), late);
    const __m256 sum = _mm256_fmadd_ps(_mm256_set1_ps(by.rest), rate, _mm256_loadu_ps(&votes[e]));
    _mm256_storeu_ps(&out[e], _mm256_mul_ps(sum, _mm256_set1_ps(by.scale)));
  }
  share_scalar(votes, fast, slow, of, by, out, e);
}
__attribute__((target("avx2,fma"))) inline void add_avx2(std::span<const float> what, float times,
                                                         std::span<float> to) noexcept {
  std::size_t e = 0;
  for (; e + 8 <= to.size(); e += 8)
    _mm256_storeu_ps(&to[e], _mm256_fmadd_ps(_mm256_set1_ps(times), _mm256_loadu_ps(&what[e]),
                                             _mm256_loadu_ps(&to[e])));
  add_scalar(what, times, to, e);
}
__attribute__((target("avx2,fma"))) inline void decay_avx2(std::span<const float> rates, float step,
                                                           std::span<float> out) noexcept {
  std::size_t e = 0;
  for (; e + 8 <= out.size(); e += 8) {
    const __m256 now = _mm256_loadu_ps(&rates[e]);
    _mm256_storeu_ps(&out[e], _mm256_fnmadd_ps(_mm256_set1_ps(step), now, now));
  }
  decay_scalar(rates, step, out, e);
}
}  // namespace detail
#endif

/// out = (votes + rest * rate) * scale.
inline void share(std::span<const float> votes, std::span<const float> fast,
                  std::span<const float> slow, blend of, shares by, std::span<float> out,
                  [[maybe_unused]] vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar) return detail::share_avx2(votes, fast, slow, of, by, out);
#endif
  share_scalar(votes, fast, slow, of, by, out);
}
/// out = rates - step * rates.
inline void decay(std::span<const float> rates, float step, std::span<float> out,
                  [[maybe_unused]] vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar) return detail::decay_avx2(rates, step, out);
#endif
  decay_scalar(rates, step, out);
}
/// to += times * what.
inline void add(std::span<const float> what, float times, std::span<float> to,
                [[maybe_unused]] vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar) return detail::add_avx2(what, times, to);
#endif
  add_scalar(what, times, to);
}

}  // namespace value_kernels

}  // namespace hotset
