// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Votes of consecutive sets of experts: each expert gets the weight of the first set that it is in.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "hotset/core/vector_level.hpp"
#if HOTSET_X86_VECTORS
#include <immintrin.h>
#endif

namespace hotset::inline v0::vote_kernels {

inline constexpr std::size_t most_sets = 15;
inline constexpr std::size_t words_at_once = 2;  ///< sets are whole numbers of them

/// Weights of the sets, [0] is of none and 0.
using set_weights = std::array<float, most_sets + 1>;
/// Sets in order, the nearest first; bits from the number of experts on are 0.
using set_list = std::span<const std::uint64_t* const>;

/// Asks for what will be read soon.
inline void fetch_soon([[maybe_unused]] const std::uint64_t* set) noexcept {
#if defined(__GNUC__) && !defined(__CUDACC__)
  __builtin_prefetch(set);
#endif
}
/// votes[e] += weights[1 + the first set that e is in]. Shapes: sets of `words` words, votes [words * 64]. The reference.
inline void add_scalar(set_list sets, std::size_t words, const set_weights& weights,
                       std::span<float> votes) noexcept {
  for (std::size_t w = 0; w < words; ++w) {
    std::uint64_t unseen = ~std::uint64_t{0};
    for (std::size_t i = 0; i < sets.size(); ++i) {
      for (auto fresh = sets[i][w] & unseen; fresh != 0; fresh &= fresh - 1)
        votes[w * 64 + static_cast<std::size_t>(std::countr_zero(fresh))] += weights[i + 1];
      unseen &= ~sets[i][w];
    }
  }
}

#if HOTSET_X86_VECTORS
namespace detail {

/// The number of the first set that each of 128 experts is in, from 1; 0: of none. Each of a number's bits is in a vector.
template <std::size_t Bits>
struct numbers {
  __m128i bit[Bits];
};

template <std::size_t Bits, std::size_t Number>
__attribute__((target("avx2"), always_inline)) inline void enter(set_list sets, std::size_t w,
                                                                 __m128i& seen,
                                                                 numbers<Bits>& found) noexcept {
  if (Number > sets.size()) return;
  const __m128i set = _mm_loadu_si128(reinterpret_cast<const __m128i*>(sets[Number - 1] + w));
  const __m128i fresh = _mm_andnot_si128(seen, set);
  seen = _mm_or_si128(seen, set);
  for (std::size_t bit = 0; bit < Bits; ++bit)
    if ((Number >> bit) % 2 != 0) found.bit[bit] = _mm_or_si128(found.bit[bit], fresh);
}
template <std::size_t Bits, std::size_t... Index>
__attribute__((target("avx2"), always_inline)) inline numbers<Bits> number(
    set_list sets, std::size_t w, std::index_sequence<Index...>) noexcept {
  __m128i seen = _mm_setzero_si128();
  numbers<Bits> found;
  for (auto& bit : found.bit) bit = seen;
  (enter<Bits, Index + 1>(sets, w, seen, found), ...);
  return found;
}
/// The numbers of 32 experts, a byte each.
template <std::size_t Bits>
__attribute__((target("avx2"), always_inline)) inline __m256i bytes_of(
    const std::array<std::array<std::int32_t, 4>, Bits>& bits, std::size_t group) noexcept {
  const __m256i byte_of_lane = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2,
                                                2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit_of_lane = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ULL));
  __m256i out = _mm256_setzero_si256();
  for (std::size_t bit = 0; bit < Bits; ++bit) {
    const __m256i all = _mm256_shuffle_epi8(_mm256_set1_epi32(bits[bit][group]), byte_of_lane);
    const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(all, bit_of_lane), bit_of_lane);
    out = _mm256_or_si256(out,
                          _mm256_and_si256(is_set, _mm256_set1_epi8(static_cast<char>(1U << bit))));
  }
  return out;
}
/// Pre: fewer than 2^Bits sets.
template <std::size_t Bits>
__attribute__((target("avx2"))) inline void add_avx2(set_list sets, std::size_t words,
                                                     const set_weights& weights,
                                                     std::span<float> votes) noexcept {
  constexpr std::size_t most = (std::size_t{1} << Bits) - 1;
  const __m256 lower = _mm256_loadu_ps(weights.data());
  const __m256 upper = _mm256_loadu_ps(weights.data() + 8);
  for (std::size_t w = 0; w < words; w += words_at_once) {
    const auto found = number<Bits>(sets, w, std::make_index_sequence<most>());
    std::array<std::array<std::int32_t, 4>, Bits> bits;
    for (std::size_t bit = 0; bit < Bits; ++bit)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(bits[bit].data()), found.bit[bit]);
    float* to = votes.data() + w * 64;
    for (std::size_t group = 0; group < 4; ++group) {
      alignas(32) std::array<std::uint8_t, 32> of;
      _mm256_store_si256(reinterpret_cast<__m256i*>(of.data()), bytes_of<Bits>(bits, group));
      for (std::size_t e = 0; e < 32; e += 8, to += 8) {
        const __m256i at =
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(&of[e])));
        __m256 chosen = _mm256_permutevar8x32_ps(lower, at);
        if constexpr (Bits == 4)
          chosen = _mm256_blendv_ps(chosen, _mm256_permutevar8x32_ps(upper, at),
                                    _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
        _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), chosen));
      }
    }
  }
}

}  // namespace detail
#endif

/// As add_scalar, to the bit. Pre: sets.size() <= most_sets, words is a multiple of words_at_once.
inline void add(set_list sets, std::size_t words, const set_weights& weights,
                std::span<float> votes, [[maybe_unused]] vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar)
    return sets.size() < 8 ? detail::add_avx2<3>(sets, words, weights, votes)
                           : detail::add_avx2<4>(sets, words, weights, votes);
#endif
  add_scalar(sets, words, weights, votes);
}

}  // namespace hotset::inline v0::vote_kernels
