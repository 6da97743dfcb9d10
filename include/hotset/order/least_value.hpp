// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The values of a layer's residents, and the least of them; the least worth of many layers.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/vector_level.hpp"
#if HOTSET_X86_VECTORS
#include <immintrin.h>
#endif

namespace hotset::inline v0 {

/// The value of what is not resident.
inline constexpr float absent_value = std::numeric_limits<float>::infinity();

namespace detail {

inline void residents_scalar(std::span<const float> values, std::span<const slot_id> slots,
                             std::span<float> to, std::size_t from = 0) noexcept {
  for (std::size_t i = from; i < to.size(); ++i)
    to[i] = slots[i] == no_slot ? absent_value : values[i];
}
template <class T>
T least_scalar(std::span<const T> row) noexcept {
  T least = row[0];
  for (const auto value : row) least = value < least ? value : least;
  return least;
}
template <class T, class Take>
void each_equal_scalar(std::span<const T> row, T value, Take take) {
  for (std::size_t i = 0; i < row.size(); ++i)
    if (row[i] == value) take(i);
}

#if HOTSET_X86_VECTORS
__attribute__((target("avx2"))) inline float least_avx2(std::span<const float> row) noexcept {
  const __m256 first = _mm256_set1_ps(row[0]);
  __m256 least[4] = {first, first, first, first};  // each waits for itself alone
  std::size_t i = 0;
  for (; i + 32 <= row.size(); i += 32)
    for (std::size_t v = 0; v < 4; ++v)
      least[v] = _mm256_min_ps(least[v], _mm256_loadu_ps(&row[i + 8 * v]));
  for (; i + 8 <= row.size(); i += 8) least[0] = _mm256_min_ps(least[0], _mm256_loadu_ps(&row[i]));
  const __m256 eight =
      _mm256_min_ps(_mm256_min_ps(least[0], least[1]), _mm256_min_ps(least[2], least[3]));
  __m128 four = _mm_min_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_min_ps(four, _mm_movehl_ps(four, four));
  float out = _mm_cvtss_f32(_mm_min_ss(four, _mm_movehdup_ps(four)));
  for (; i < row.size(); ++i) out = row[i] < out ? row[i] : out;
  return out;
}
__attribute__((target("avx2"))) inline double least_avx2(std::span<const double> row) noexcept {
  const __m256d first = _mm256_set1_pd(row[0]);
  __m256d least[4] = {first, first, first, first};
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
__attribute__((target("avx2"))) inline void residents_avx2(std::span<const float> values,
                                                           std::span<const slot_id> slots,
                                                           std::span<float> to) noexcept {
  const __m256i none = _mm256_set1_epi32(number(no_slot));
  std::size_t i = 0;
  for (; i + 8 <= to.size(); i += 8) {
    const __m256i slot = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&slots[i]));
    const __m256 is_absent = _mm256_castsi256_ps(_mm256_cmpeq_epi32(slot, none));
    _mm256_storeu_ps(&to[i], _mm256_blendv_ps(_mm256_loadu_ps(&values[i]),
                                              _mm256_set1_ps(absent_value), is_absent));
  }
  residents_scalar(values, slots, to, i);
}
/// Which are equal to a value, a bit each. Pre: at most 64.
__attribute__((target("avx2"))) inline std::uint64_t equal_avx2(std::span<const float> row,
                                                                float value) noexcept {
  const __m256 wanted = _mm256_set1_ps(value);
  std::uint64_t out = 0;
  std::size_t i = 0;
  for (; i + 8 <= row.size(); i += 8) {
    const __m256 is_equal = _mm256_cmp_ps(_mm256_loadu_ps(&row[i]), wanted, _CMP_EQ_OQ);
    out |= std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_ps(is_equal))} << i;
  }
  for (; i < row.size(); ++i) out |= std::uint64_t{row[i] == value ? 1U : 0U} << i;
  return out;
}
__attribute__((target("avx2"))) inline std::uint64_t equal_avx2(std::span<const double> row,
                                                                double value) noexcept {
  const __m256d wanted = _mm256_set1_pd(value);
  std::uint64_t out = 0;
  std::size_t i = 0;
  for (; i + 4 <= row.size(); i += 4) {
    const __m256d is_equal = _mm256_cmp_pd(_mm256_loadu_pd(&row[i]), wanted, _CMP_EQ_OQ);
    out |= std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_pd(is_equal))} << i;
  }
  for (; i < row.size(); ++i) out |= std::uint64_t{row[i] == value ? 1U : 0U} << i;
  return out;
}
#endif

}  // namespace detail

/// to[i] = values[i] where slots[i] is a slot, absent_value elsewhere. Shapes: all [n]. Complexity: O(n), vectorised.
inline void residents_only(std::span<const float> values, std::span<const slot_id> slots,
                           std::span<float> to, [[maybe_unused]] vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar) return detail::residents_avx2(values, slots, to);
#endif
  detail::residents_scalar(values, slots, to);
}
/// Pre: row is not empty, and has no NaN. Complexity: O(row), vectorised.
template <class T>
[[nodiscard]] T least_value(std::span<const T> row, [[maybe_unused]] vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar) return detail::least_avx2(row);
#endif
  return detail::least_scalar(row);
}
/// Calls take(i) for each row[i] == value, in ascending order. Complexity: O(row), vectorised.
template <class T, class Take>
void each_equal(std::span<const T> row, T value, [[maybe_unused]] vector_level level,
                Take take) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar) {
    for (std::size_t from = 0; from < row.size(); from += 64)
      for (auto found = detail::equal_avx2(
               row.subspan(from, std::min<std::size_t>(64, row.size() - from)), value);
           found != 0; found &= found - 1)
        take(from + static_cast<std::size_t>(std::countr_zero(found)));
    return;
  }
#endif
  detail::each_equal_scalar(row, value, take);
}

}  // namespace hotset::inline v0
