// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One row of rates, moved towards 0.

#include <cmath>
#include <cstddef>
#include <span>

#include "hotset/core/platform/compiler.hpp"
#if HOTSET_X86_VECTORS
#include <immintrin.h>
#endif

namespace hotset::rate_kernels {

/// to[i] = rates[i] - step * rates[i], rounded once. Shape: both [n]. The reference of `decay`.
inline void decay_scalar(std::span<const float> rates, float step, std::span<float> to) noexcept {
  for (std::size_t i = 0; i < rates.size(); ++i) to[i] = std::fma(-step, rates[i], rates[i]);
}

#if HOTSET_X86_VECTORS
__attribute__((target("avx2,fma"))) inline void decay_avx2(std::span<const float> rates, float step,
                                                           std::span<float> to) noexcept {
  const __m256 by = _mm256_set1_ps(step);
  std::size_t i = 0;
  for (; i + 8 <= rates.size(); i += 8) {
    const __m256 now = _mm256_loadu_ps(&rates[i]);
    _mm256_storeu_ps(&to[i], _mm256_fnmadd_ps(by, now, now));
  }
  for (; i < rates.size(); ++i) to[i] = std::fma(-step, rates[i], rates[i]);
}
#endif

/// As decay_scalar, to the bit.
inline void decay(std::span<const float> rates, float step, std::span<float> to) noexcept {
#if HOTSET_X86_VECTORS
  static const bool vectors = best_vector_level() != vector_level::scalar;
  if (vectors) return decay_avx2(rates, step, to);
#endif
  decay_scalar(rates, step, to);
}

}  // namespace hotset::rate_kernels
