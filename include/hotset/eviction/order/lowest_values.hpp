// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds the least of selected values of a row, and the values that are about as low.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/slot_mask.hpp"
#if HOTSET_X86_VECTORS
#include <immintrin.h>
#endif

namespace hotset {

namespace detail {

#if HOTSET_X86_VECTORS
/// Compiled together with its bound, because the next comparison waits for the result.
template <class BoundOf>
__attribute__((target("avx2"))) double lowest_avx2(const double* row,
                                                   std::span<const std::uint64_t> among,
                                                   std::uint64_t* found,
                                                   BoundOf bound_of) noexcept {
  const __m256d absent = _mm256_set1_pd(std::numeric_limits<double>::infinity());
  // Four chains: a minimum waits for the one before.
  __m256d least_of[4] = {absent, absent, absent, absent};
  for (std::size_t w = 0; w < among.size(); ++w) {
    const __m256i bits = _mm256_set1_epi64x(static_cast<long long>(among[w]));
    // Moves a value's bit to the sign, which a blend reads.
    __m256i to_sign = _mm256_setr_epi64x(63, 62, 61, 60);
    for (std::size_t i = 0; i < 64 && among[w] >> i != 0; i += 16)
      for (std::size_t n = 0; n < 4; ++n) {
        const __m256d is_named = _mm256_castsi256_pd(_mm256_sllv_epi64(bits, to_sign));
        const __m256d values = _mm256_loadu_pd(row + w * 64 + i + n * 4);
        least_of[n] = _mm256_min_pd(least_of[n], _mm256_blendv_pd(absent, values, is_named));
        to_sign = _mm256_sub_epi64(to_sign, _mm256_set1_epi64x(4));
      }
  }
  const __m256d four = _mm256_min_pd(_mm256_min_pd(least_of[0], least_of[1]),
                                     _mm256_min_pd(least_of[2], least_of[3]));
  const __m128d two = _mm_min_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  const double least = _mm_cvtsd_f64(_mm_min_sd(two, _mm_unpackhi_pd(two, two)));
  const __m256d most = _mm256_set1_pd(bound_of(least));
  for (std::size_t w = 0; w < among.size(); ++w) {
    std::uint64_t low = 0;
    for (std::size_t i = 0; i < 64 && among[w] >> i != 0; i += 16)
      for (std::size_t n = 0; n < 4; ++n) {
        const __m256d values = _mm256_loadu_pd(row + w * 64 + i + n * 4);
        const auto four_low = _mm256_movemask_pd(_mm256_cmp_pd(values, most, _CMP_LE_OQ));
        low |= std::uint64_t{static_cast<std::uint32_t>(four_low)} << (i + n * 4);
      }
    found[w] = low & among[w];
  }
  return least;
}
#endif

}  // namespace detail

/// Returns the least of the values that `among` names, or infinity if it names none. Sets `found` to those of them
/// that are at most bound_of(least). Shapes: row [64 * words], may end in values that are never named; among, found
/// [words], one bit per value. Pre: no named value is NaN. Complexity: O(words), vectorised.
template <class BoundOf>
double lowest_values(const double* row, std::span<const std::uint64_t> among, std::uint64_t* found,
                     BoundOf bound_of, [[maybe_unused]] vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar) return detail::lowest_avx2(row, among, found, bound_of);
#endif
  double least = std::numeric_limits<double>::infinity();
  each_member(among, [&](std::size_t i) { least = row[i] < least ? row[i] : least; });
  const double most = bound_of(least);
  for (std::size_t w = 0; w < among.size(); ++w) {
    found[w] = 0;
    each_member(among.subspan(w, 1), [&](std::size_t i) {
      found[w] |= std::uint64_t{row[w * 64 + i] <= most ? 1U : 0U} << i;
    });
  }
  return least;
}

}  // namespace hotset
