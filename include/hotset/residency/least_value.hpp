// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The values of a layer's residents, and the least of them.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "hotset/core/ids.hpp"
#include "hotset/core/vector_level.hpp"
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
inline float least_scalar(std::span<const float> row) noexcept {
  float least = row[0];
  for (const auto value : row) least = value < least ? value : least;
  return least;
}
template <class Take>
void each_equal_scalar(std::span<const float> row, float value, Take take, std::size_t from = 0) {
  for (std::size_t i = from; i < row.size(); ++i)
    if (row[i] == value) take(i);
}

#if HOTSET_X86_VECTORS
__attribute__((target("avx2"))) inline float least_avx2(std::span<const float> row) noexcept {
  __m256 least = _mm256_set1_ps(row[0]);
  std::size_t i = 0;
  for (; i + 8 <= row.size(); i += 8) least = _mm256_min_ps(least, _mm256_loadu_ps(&row[i]));
  float lanes[8];
  _mm256_storeu_ps(lanes, least);
  float out = least_scalar(lanes);
  for (; i < row.size(); ++i) out = row[i] < out ? row[i] : out;
  return out;
}
__attribute__((target("avx2"))) inline void residents_avx2(std::span<const float> values,
                                                           std::span<const slot_id> slots,
                                                           std::span<float> to) noexcept {
  const __m256i none = _mm256_set1_epi32(no_slot);
  std::size_t i = 0;
  for (; i + 8 <= to.size(); i += 8) {
    const __m256i slot = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&slots[i]));
    const __m256 is_absent = _mm256_castsi256_ps(_mm256_cmpeq_epi32(slot, none));
    _mm256_storeu_ps(&to[i], _mm256_blendv_ps(_mm256_loadu_ps(&values[i]),
                                              _mm256_set1_ps(absent_value), is_absent));
  }
  residents_scalar(values, slots, to, i);
}
/// Which of eight are equal to a value, a bit each.
__attribute__((target("avx2"))) inline std::uint32_t equal_avx2(const float* eight,
                                                                float value) noexcept {
  return static_cast<std::uint32_t>(
      _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(eight), _mm256_set1_ps(value), _CMP_EQ_OQ)));
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
[[nodiscard]] inline float least_value(std::span<const float> row,
                                       [[maybe_unused]] vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar) return detail::least_avx2(row);
#endif
  return detail::least_scalar(row);
}
/// Calls take(i) for each row[i] == value, in ascending order. Complexity: O(row), vectorised.
template <class Take>
void each_equal(std::span<const float> row, float value, [[maybe_unused]] vector_level level,
                Take take) noexcept {
  std::size_t from = 0;
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar)
    for (; from + 8 <= row.size(); from += 8)
      for (auto lanes = detail::equal_avx2(&row[from], value); lanes != 0; lanes &= lanes - 1)
        take(from + static_cast<std::size_t>(std::countr_zero(lanes)));
#endif
  detail::each_equal_scalar(row, value, take, from);
}

}  // namespace hotset::inline v0
