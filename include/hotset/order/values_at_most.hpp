// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which values of a row are no greater than a bound, and which are as low as its least.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "hotset/core/platform/vector_level.hpp"
#if HOTSET_X86_VECTORS
#include <immintrin.h>
#endif

namespace hotset::inline v0 {

namespace detail {

/// A bit each. Pre: at most 64.
inline std::uint64_t at_most_scalar(std::span<const double> row, double bound,
                                    std::size_t from = 0) noexcept {
  std::uint64_t out = 0;
  for (auto i = from; i < row.size(); ++i) out |= std::uint64_t{row[i] <= bound ? 1U : 0U} << i;
  return out;
}
inline double least_scalar(std::span<const double> row) noexcept {
  double least = row[0];
  for (const auto value : row) least = value < least ? value : least;
  return least;
}
#if HOTSET_X86_VECTORS
__attribute__((target("avx2"))) inline double least_avx2(std::span<const double> row) noexcept {
  const __m256d first = _mm256_set1_pd(row[0]);
  __m256d least[4] = {first, first, first, first};  // each waits for itself alone
  std::size_t i = 0;
  for (; i + 16 <= row.size(); i += 16)
    for (std::size_t v = 0; v < 4; ++v)
      least[v] = _mm256_min_pd(least[v], _mm256_loadu_pd(&row[i + 4 * v]));
  for (; i + 4 <= row.size(); i += 4) least[0] = _mm256_min_pd(least[0], _mm256_loadu_pd(&row[i]));
  const __m256d four =
      _mm256_min_pd(_mm256_min_pd(least[0], least[1]), _mm256_min_pd(least[2], least[3]));
  const __m128d two = _mm_min_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  double out = _mm_cvtsd_f64(_mm_min_sd(two, _mm_unpackhi_pd(two, two)));
  for (; i < row.size(); ++i) out = row[i] < out ? row[i] : out;
  return out;
}
/// A bit each. Pre: at most 64.
__attribute__((target("avx2"))) inline std::uint64_t at_most_avx2(std::span<const double> row,
                                                                  double bound) noexcept {
  const __m256d most = _mm256_set1_pd(bound);
  std::uint64_t out = 0;
  std::size_t i = 0;
  for (; i + 4 <= row.size(); i += 4) {
    const __m256d is_low = _mm256_cmp_pd(_mm256_loadu_pd(&row[i]), most, _CMP_LE_OQ);
    out |= std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_pd(is_low))} << i;
  }
  return out | at_most_scalar(row, bound, i);
}
/// A bit for each that is no greater than bound_of(the least): in one call, for rows are short. Pre: 1..64.
template <class BoundOf>
__attribute__((target("avx2"))) inline std::uint64_t lowest_avx2(std::span<const double> row,
                                                                 BoundOf bound_of) noexcept {
  return at_most_avx2(row, bound_of(least_avx2(row)));
}
/// As above. Forms without a mask would warn of their own undefined lanes.
template <class BoundOf>
__attribute__((target("avx512f"))) inline std::uint64_t lowest_avx512(std::span<const double> row,
                                                                      BoundOf bound_of) noexcept {
  constexpr __mmask8 all = 0xff;
  const auto rest = static_cast<__mmask8>((1U << row.size() % 8) - 1);
  const std::size_t whole = row.size() / 8 * 8;
  __m512d last = _mm512_set1_pd(std::numeric_limits<double>::infinity());
  if (rest != 0) last = _mm512_mask_loadu_pd(last, rest, row.data() + whole);
  __m512d even = last;  // each waits for itself alone
  __m512d odd = last;
  std::size_t i = 0;
  for (; i + 16 <= whole; i += 16) {
    even = _mm512_maskz_min_pd(all, even, _mm512_loadu_pd(&row[i]));
    odd = _mm512_maskz_min_pd(all, odd, _mm512_loadu_pd(&row[i + 8]));
  }
  if (i < whole) even = _mm512_maskz_min_pd(all, even, _mm512_loadu_pd(&row[i]));
  even = _mm512_maskz_min_pd(all, even, odd);
  const __m256d four = _mm256_min_pd(_mm512_maskz_extractf64x4_pd(0xf, even, 0),
                                     _mm512_maskz_extractf64x4_pd(0xf, even, 1));
  const __m128d two = _mm_min_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  const double least = _mm_cvtsd_f64(_mm_min_sd(two, _mm_unpackhi_pd(two, two)));
  const __m512d most = _mm512_set1_pd(bound_of(least));
  std::uint64_t out = 0;
  for (i = 0; i < whole; i += 8)
    out |= std::uint64_t{_mm512_cmp_pd_mask(_mm512_loadu_pd(&row[i]), most, _CMP_LE_OQ)} << i;
  if (rest != 0)
    out |= std::uint64_t{_mm512_mask_cmp_pd_mask(rest, last, most, _CMP_LE_OQ)} << whole;
  return out;
}
#endif

inline std::uint64_t at_most(std::span<const double> row, double bound,
                             [[maybe_unused]] vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar) return at_most_avx2(row, bound);
#endif
  return at_most_scalar(row, bound);
}
inline double least(std::span<const double> row, [[maybe_unused]] vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar) return least_avx2(row);
#endif
  return least_scalar(row);
}

}  // namespace detail

/// Calls take(i) for each row[i] <= bound, in ascending order. Complexity: O(row), vectorised.
template <class Take>
void each_at_most(std::span<const double> row, double bound, vector_level level, Take take) {
  for (std::size_t from = 0; from < row.size(); from += 64) {
    const auto part = row.subspan(from, std::min<std::size_t>(64, row.size() - from));
    for (auto found = detail::at_most(part, bound, level); found != 0; found &= found - 1)
      take(from + static_cast<std::size_t>(std::countr_zero(found)));
  }
}

/// Calls take(i) for each row[i] <= bound_of(the least of the row), in ascending order; for none of an empty row. Pre: no NaN.
/// Complexity: O(row), vectorised.
template <class BoundOf, class Take>
void each_lowest(std::span<const double> row, BoundOf bound_of, vector_level level, Take take) {
  if (row.empty()) return;
#if HOTSET_X86_VECTORS
  if (row.size() <= 64 && level != vector_level::scalar) {
    auto found = level == vector_level::avx512 ? detail::lowest_avx512(row, bound_of)
                                               : detail::lowest_avx2(row, bound_of);
    for (; found != 0; found &= found - 1) take(static_cast<std::size_t>(std::countr_zero(found)));
    return;
  }
#endif
  each_at_most(row, bound_of(detail::least(row, level)), level, take);
}

}  // namespace hotset::inline v0
