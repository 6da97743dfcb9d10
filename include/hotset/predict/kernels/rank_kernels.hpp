// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where each of some dozens of numbers stands among them: every one is compared with every other, which no guess goes wrong in.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "hotset/core/platform/compiler.hpp"
#if HOTSET_X86_VECTORS
#include <immintrin.h>
#endif

namespace hotset::rank_kernels {

/// places[i] becomes the number of keys that are greater than keys[i]: where it stands in descending order.
/// Equals stand in one place.
inline void rank_scalar(std::span<const std::uint32_t> keys,
                        std::span<std::uint32_t> places) noexcept {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::uint32_t greater = 0;
    for (const auto key : keys) greater += key > keys[i] ? 1U : 0U;
    places[i] = greater;
  }
}

#if HOTSET_X86_VECTORS
namespace detail {

/// The lanes that are before `count`.
__attribute__((target("avx2"))) inline __m256i first_lanes(std::size_t count) noexcept {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
__attribute__((target("avx2"))) inline void rank_avx2(std::span<const std::uint32_t> keys,
                                                      std::span<std::uint32_t> places) noexcept {
  const __m256i sign = _mm256_set1_epi32(std::numeric_limits<std::int32_t>::min());
  for (std::size_t i = 0; i < keys.size(); i += 8) {
    const __m256i lanes = first_lanes(keys.size() - i);
    const __m256i eight = _mm256_maskload_epi32(reinterpret_cast<const int*>(&keys[i]), lanes);
    const __m256i own = _mm256_xor_si256(eight, sign);
    __m256i greater = _mm256_setzero_si256();
    for (const auto key : keys) {
      const __m256i other = _mm256_xor_si256(_mm256_set1_epi32(static_cast<int>(key)), sign);
      greater = _mm256_sub_epi32(greater, _mm256_cmpgt_epi32(other, own));
    }
    _mm256_maskstore_epi32(reinterpret_cast<int*>(&places[i]), lanes, greater);
  }
}

}  // namespace detail
#endif

/// As rank_scalar. Shapes: both [n]. Complexity: O(n^2), for dozens.
inline void rank(std::span<const std::uint32_t> keys, std::span<std::uint32_t> places,
                 [[maybe_unused]] vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level >= vector_level::avx2) return detail::rank_avx2(keys, places);
#endif
  rank_scalar(keys, places);
}

}  // namespace hotset::rank_kernels
