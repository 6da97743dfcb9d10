// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Updates the similarities of all remembered rows by one visit, in vectors.
///
/// The use of one expert by one row is a bit; the bits of an expert over all rows are its plane. A similarity is an
/// integer, 32768 for equal routing throughout: every vector level gets the same bits.
/// Similarities lie in blocks of 256 rows, in the order in which shifts align the bits of a plane's 16-bit lanes: row
/// r is at place_of(r).

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/platform/compiler.hpp"
#if HOTSET_X86_VECTORS
#include <immintrin.h>
#endif

namespace hotset::history_kernels {

inline constexpr std::size_t block = 256;         ///< rows
inline constexpr std::size_t words_of_block = 4;  ///< 64-bit words
inline constexpr std::uint32_t alike = 32768;  ///< similarity of rows with equal routing throughout
inline constexpr std::size_t most_planes_at_once = 15;  ///< maximum matches in four bits
inline constexpr std::size_t places_beyond = 4;  ///< spare room after the places of all candidates

/// Place of a row's similarity.
[[nodiscard]] constexpr std::size_t place_of(std::size_t row) noexcept {
  return (row & ~std::size_t{255}) | ((row & 15U) << 4U) | ((row >> 4U) & 15U);
}
/// Row of a place: place_of is its own inverse.
[[nodiscard]] constexpr std::size_t row_at(std::size_t place) noexcept { return place_of(place); }

/// One visit: each similarity s becomes s - floor(s * decay / 65536) + gain * matches, where `matches` is the number
/// of the visit's experts in the row.
struct visit {
  /// One plane per expert of the visit, one bit per row.
  std::span<const std::uint64_t* const> planes;
  std::uint16_t decay = 0;
  std::uint16_t gain = 0;
};

/// Reference implementation of move_on.
inline void move_on_scalar(const visit& now, std::span<const std::uint16_t> from,
                           std::span<std::uint16_t> to) noexcept {
  for (std::size_t row = 0; row < to.size(); ++row) {
    std::uint32_t matches = 0;
    for (const auto* const plane : now.planes)
      matches += static_cast<std::uint32_t>((plane[row / 64] >> (row % 64)) & 1U);
    const std::uint32_t s = from[place_of(row)];
    const auto faded = s - ((s * now.decay) >> 16U);
    to[place_of(row)] = static_cast<std::uint16_t>(faded + now.gain * matches);
  }
}
/// Writes the places whose similarity is at least 1 and usable, in ascending order; returns their number. They
/// include the `wanted` greatest.
inline std::size_t candidates_scalar(std::span<const std::uint16_t> similar,
                                     std::span<const std::uint16_t> usable, std::size_t,
                                     std::span<std::uint16_t> places) noexcept {
  std::size_t count = 0;
  for (std::size_t i = 0; i < similar.size(); ++i)
    if ((similar[i] & usable[i]) != 0) places[count++] = static_cast<std::uint16_t>(i);
  return count;
}

#if HOTSET_X86_VECTORS
namespace detail {

/// Sums of up to 15 bits in each place of a block, as four bits.
struct counters {
  __m256i ones;
  __m256i twos;
  __m256i fours;
  __m256i eights;
};
__attribute__((target("avx2"))) inline __m256i load_block(const std::uint64_t* plane,
                                                          std::size_t at) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(plane + at * words_of_block));
}
/// Adds the carries `twos` to the twos, fours and eights; the ones stay.
__attribute__((target("avx2"))) inline void carry(counters& sums, __m256i twos) noexcept {
  const __m256i fours = _mm256_and_si256(sums.twos, twos);
  sums.twos = _mm256_xor_si256(sums.twos, twos);
  const __m256i eights = _mm256_and_si256(sums.fours, fours);
  sums.fours = _mm256_xor_si256(sums.fours, fours);
  sums.eights = _mm256_xor_si256(sums.eights, eights);
}
__attribute__((target("avx2"))) inline counters count(std::span<const std::uint64_t* const> planes,
                                                      std::size_t at) noexcept {
  const __m256i none = _mm256_setzero_si256();
  counters sums{none, none, none, none};
  std::size_t p = 0;
  for (; p + 2 <= planes.size(); p += 2) {
    const __m256i a = load_block(planes[p], at);
    const __m256i b = load_block(planes[p + 1], at);
    const __m256i half = _mm256_xor_si256(a, b);
    carry(sums, _mm256_or_si256(_mm256_and_si256(a, b), _mm256_and_si256(half, sums.ones)));
    sums.ones = _mm256_xor_si256(half, sums.ones);
  }
  if (p < planes.size()) {
    const __m256i a = load_block(planes[p], at);
    carry(sums, _mm256_and_si256(a, sums.ones));
    sums.ones = _mm256_xor_si256(a, sums.ones);
  }
  return sums;
}
/// Gathers every fourth bit of the four sums: the count of bit 4 q + r of a lane is the q-th group of four bits of
/// the r-th vector.
__attribute__((target("avx2"))) inline __m256i every_fourth(const counters& sums, int r) noexcept {
  const __m256i mask = _mm256_set1_epi16(0x1111);
  const __m128i by = _mm_cvtsi32_si128(r);
  const __m256i ones = _mm256_and_si256(_mm256_srl_epi16(sums.ones, by), mask);
  const __m256i twos = _mm256_and_si256(_mm256_srl_epi16(sums.twos, by), mask);
  const __m256i fours = _mm256_and_si256(_mm256_srl_epi16(sums.fours, by), mask);
  const __m256i eights = _mm256_and_si256(_mm256_srl_epi16(sums.eights, by), mask);
  return _mm256_or_si256(
      _mm256_or_si256(ones, _mm256_slli_epi16(twos, 1)),
      _mm256_or_si256(_mm256_slli_epi16(fours, 2), _mm256_slli_epi16(eights, 3)));
}
__attribute__((target("avx2"))) inline void move_on_avx2(const visit& now,
                                                         std::span<const std::uint16_t> before,
                                                         std::span<std::uint16_t> after) noexcept {
  const __m256i decay = _mm256_set1_epi16(static_cast<short>(now.decay));
  const __m256i gain = _mm256_set1_epi16(static_cast<short>(now.gain));
  const __m256i low = _mm256_set1_epi16(0xf);
  for (std::size_t at = 0; at < after.size() / block; ++at) {
    const counters sums = count(now.planes, at);
    const auto* const from = reinterpret_cast<const __m256i*>(before.data() + at * block);
    auto* const to = reinterpret_cast<__m256i*>(after.data() + at * block);
    for (int r = 0; r < 4; ++r) {
      __m256i fields = every_fourth(sums, r);
      for (int q = 0; q < 4; ++q, fields = _mm256_srli_epi16(fields, 4)) {
        const __m256i s = _mm256_loadu_si256(from + 4 * q + r);
        const __m256i faded = _mm256_sub_epi16(s, _mm256_mulhi_epu16(s, decay));
        const __m256i matches = _mm256_and_si256(fields, low);
        _mm256_storeu_si256(to + 4 * q + r,
                            _mm256_add_epi16(faded, _mm256_mullo_epi16(matches, gain)));
      }
    }
  }
}

__attribute__((target("avx2"))) inline __m256i usable_at(const std::uint16_t* similar,
                                                         const std::uint16_t* usable) noexcept {
  return _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(similar)),
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(usable)));
}
/// All bits set in each lane that is at least `least`.
__attribute__((target("avx2"))) inline __m256i reached(__m256i s, __m256i least) noexcept {
  return _mm256_cmpeq_epi16(_mm256_max_epu16(s, least), s);
}
__attribute__((target("avx2"))) inline std::size_t count_reached(__m256i a, __m256i b,
                                                                 __m256i least) noexcept {
  const __m256i lanes = _mm256_packs_epi16(reached(a, least), reached(b, least));
  return static_cast<std::size_t>(
      std::popcount(static_cast<std::uint32_t>(_mm256_movemask_epi8(lanes))));
}
/// Returns a bound that at least `wanted` of the 32 lanes reach and few more do; 1 if fewer lanes are above 0. Always
/// runs five rounds with three comparisons each: an early exit would be mispredicted.
__attribute__((target("avx2"))) inline int reached_by(__m256i a, __m256i b,
                                                      std::size_t wanted) noexcept {
  int least = 0;
  for (int step = alike / 4; step >= 32; step /= 4) {
    int reached = 0;
    for (int times = 1; times <= 3; ++times) {
      const __m256i at = _mm256_set1_epi16(static_cast<short>(least + times * step));
      reached += count_reached(a, b, at) >= wanted ? 1 : 0;
    }
    least += reached * step;
  }
  return std::max(least, 1);
}
/// Always writes four places: the number of set bits is unpredictable, and a loop over it would be mispredicted.
inline std::size_t write_places(std::uint64_t found, std::size_t first,
                                std::uint16_t* to) noexcept {
  // Guard bit: countr_zero always finds one.
  constexpr std::uint64_t last = std::uint64_t{1} << 63U;
  const auto count = static_cast<std::size_t>(std::popcount(found));
  for (std::size_t n = 0; n < places_beyond || n < count; ++n, found &= found - 1)
    to[n] = static_cast<std::uint16_t>(first +
                                       static_cast<std::size_t>(std::countr_zero(found | last)));
  return count;
}
__attribute__((target("avx2"))) inline std::size_t candidates_avx2(
    std::span<const std::uint16_t> similar, std::span<const std::uint16_t> usable,
    std::size_t wanted, std::span<std::uint16_t> places) noexcept {
  __m256i even = _mm256_setzero_si256();
  __m256i odd = even;
  for (std::size_t i = 0; i < similar.size(); i += 32) {
    even = _mm256_max_epu16(even, usable_at(&similar[i], &usable[i]));
    odd = _mm256_max_epu16(odd, usable_at(&similar[i + 16], &usable[i + 16]));
  }
  // At least `wanted` lanes reach the bound, so every one of the greatest does.
  const int bound = wanted <= 32 ? reached_by(even, odd, wanted) : 1;
  const __m256i least = _mm256_set1_epi16(static_cast<short>(bound));
  std::size_t count = 0;
  for (std::size_t i = 0; i < similar.size(); i += 64) {
    std::uint64_t found = 0;
    for (std::size_t part = 0; part < 64; part += 32) {
      const __m256i low = reached(usable_at(&similar[i + part], &usable[i + part]), least);
      const __m256i high =
          reached(usable_at(&similar[i + part + 16], &usable[i + part + 16]), least);
      const __m256i lanes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
      found |= std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_epi8(lanes))} << part;
    }
    count += write_places(found, i, places.data() + count);
  }
  return count;
}

}  // namespace detail
#endif

/// Shapes: from, to [rows], a multiple of 256, the same array or disjoint; each plane one bit per row. Pre: no
/// similarity leaves 16 bits, which holds while gain * planes <= decay / 2.
inline void move_on(visit now, std::span<const std::uint16_t> from, std::span<std::uint16_t> to,
                    [[maybe_unused]] vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar) {
    const auto planes = now.planes;
    now.planes = planes.first(std::min(planes.size(), most_planes_at_once));
    detail::move_on_avx2(now, from, to);
    now.decay = 0;
    for (std::size_t p = now.planes.size(); p < planes.size(); p += now.planes.size()) {
      now.planes = planes.subspan(p, std::min(planes.size() - p, most_planes_at_once));
      detail::move_on_avx2(now, to, to);
    }
    return;
  }
#endif
  move_on_scalar(now, from, to);
}
/// Shapes: similar and usable (0 or 0xffff) [rows], a multiple of 256; places [rows + places_beyond]. Entries after
/// the last place are overwritten.
inline std::size_t candidates(std::span<const std::uint16_t> similar,
                              std::span<const std::uint16_t> usable, std::size_t wanted,
                              std::span<std::uint16_t> places,
                              [[maybe_unused]] vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar)
    return detail::candidates_avx2(similar, usable, wanted, places);
#endif
  return candidates_scalar(similar, usable, wanted, places);
}

}  // namespace hotset::history_kernels
