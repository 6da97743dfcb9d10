// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which values of a row are no greater than a bound.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
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
#if HOTSET_X86_VECTORS
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
#endif

inline std::uint64_t at_most(std::span<const double> row, double bound,
                             [[maybe_unused]] vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar) return at_most_avx2(row, bound);
#endif
  return at_most_scalar(row, bound);
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

}  // namespace hotset::inline v0
