// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sums of products of one layer's stored maps with the rows of several tokens, and the best of such sums.
///
/// Maps lie in blocks of 16: for each expert the 16 maps' values side by side, so that a vector's lanes are maps and nothing is
/// added across lanes. With AVX-512 a slice is read once, in order, for all tokens of a call that fit into registers: eight tokens then
/// take half the time.
/// Promise: every level adds the same products in the same order with fused operations, for any number of tokens, so
/// that all levels give the same bits, and so the same place.

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hotset/core/platform/compiler.hpp"
#if HOTSET_X86_VECTORS
#include <immintrin.h>
#endif

namespace hotset {

/// How a store keeps probabilities.
enum class map_storage : std::uint8_t { fp32, fp16, int8 };

namespace map_kernels {

inline constexpr std::size_t lanes = 16;         ///< maps of a block
inline constexpr std::size_t codes_in_word = 4;  ///< of int8: experts side by side
inline constexpr float digit = 64.0F;            ///< of int8: a row's code is two digits below this
/// The largest code of a row's value.
inline constexpr int most_row_code = 4095;
/// The largest code of a stored value.
inline constexpr int most_map_code = 255;

/// One layer's maps, or whole blocks of them.
/// Shape: fp32 and fp16: [blocks, experts, 16]; int8: [blocks, words, 16, 4], codes of absent experts 0.
struct slice {
  const std::byte* maps = nullptr;
  const float* steps = nullptr;  ///< of int8: [blocks, 16], what a code of 1 stands for
  std::size_t blocks = 0;
  std::size_t experts = 0;

  [[nodiscard]] std::size_t words() const noexcept {
    return (experts + codes_in_word - 1) / codes_in_word;
  }
};

/// Rows of tokens, eight side by side. Of int8 only the codes are read, else only the values.
struct rows {
  const float* values = nullptr;  ///< [eights of tokens, experts, 8]
  /// [eights, words, 8] four codes of 8 bits, the upper digits.
  const std::int32_t* high = nullptr;
  const std::int32_t* low = nullptr;  ///< [eights, words, 8] the lower digits
  const float* steps = nullptr;       ///< [tokens], what a code of 1 stands for
  std::size_t tokens = 0;
};

/// Rows side by side.
inline constexpr std::size_t abreast = 8;
/// Where the first value of a token's row of `length` lies; the next ones follow `abreast` apart.
[[nodiscard]] constexpr std::size_t row_begin(std::size_t token, std::size_t length) noexcept {
  return token / abreast * abreast * length + token % abreast;
}

/// Exact for halves of 0 and more that are finite.
[[nodiscard]] inline float from_half(std::uint16_t half) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 13U) * 0x1p112F;
}
/// Rounds to nearest, ties to even. Pre: 0 <= value <= 1.
[[nodiscard]] inline std::uint16_t to_half(float value) noexcept {
  if (value < 0x1p-14F)  // the unit of 0.5 is that of the smallest halves
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value + 0.5F) - 0x3f000000U);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0xfffU + ((bits >> 13U) & 1U) - 0x38000000U) >> 13U);
}

/// The smallest step and codes that nothing lies above: step x code >= value.
template <class Code>
[[nodiscard]] float code_up(const float* values, std::size_t count, int most, Code code) noexcept {
  float highest = 0.0F;
  for (std::size_t i = 0; i < count; ++i) highest = values[i] > highest ? values[i] : highest;
  float step = highest / static_cast<float>(most);
  while (step * static_cast<float>(most) < highest)
    step = std::nextafter(step, std::numeric_limits<float>::max());
  for (std::size_t i = 0; i < count; ++i) {
    int found = step > 0.0F ? static_cast<int>(values[i] / step) : 0;
    while (static_cast<float>(found) * step < values[i]) ++found;
    code(i, found);
  }
  return step;
}

namespace detail {

template <class Value>
void add_dots_scalar(const slice& maps, const rows& of, float* sums, std::size_t stride,
                     Value value) noexcept {
  for (std::size_t b = 0; b < maps.blocks; ++b)
    for (std::size_t t = 0; t < of.tokens; ++t) {
      const float* const row = of.values + row_begin(t, maps.experts);
      std::array<std::array<float, lanes>, 2> parts{};
      for (std::size_t e = 0; e < maps.experts; ++e)
        for (std::size_t lane = 0; lane < lanes; ++lane)
          parts[e % 2][lane] = std::fma(value((b * maps.experts + e) * lanes + lane),
                                        row[e * abreast], parts[e % 2][lane]);
      for (std::size_t lane = 0; lane < lanes; ++lane)
        sums[t * stride + b * lanes + lane] += parts[0][lane] + parts[1][lane];
    }
}

[[nodiscard]] inline std::int32_t dot_of_codes(const std::uint8_t* codes,
                                               std::int32_t word) noexcept {
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < codes_in_word; ++i)
    sum +=
        codes[i] * static_cast<std::int32_t>((static_cast<std::uint32_t>(word) >> (8 * i)) & 0xffU);
  return sum;
}
inline void add_codes_scalar(const slice& maps, const rows& of, float* sums,
                             std::size_t stride) noexcept {
  const auto words = maps.words();
  const auto* const codes = reinterpret_cast<const std::uint8_t*>(maps.maps);
  for (std::size_t b = 0; b < maps.blocks; ++b)
    for (std::size_t t = 0; t < of.tokens; ++t)
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        std::int32_t high = 0;
        std::int32_t low = 0;
        for (std::size_t w = 0; w < words; ++w) {
          const auto* const four = codes + ((b * words + w) * lanes + lane) * codes_in_word;
          high += dot_of_codes(four, of.high[row_begin(t, words) + w * abreast]);
          low += dot_of_codes(four, of.low[row_begin(t, words) + w * abreast]);
        }
        auto& sum = sums[t * stride + b * lanes + lane];
        const float both = std::fma(static_cast<float>(high), digit, static_cast<float>(low));
        sum = std::fma(both, maps.steps[b * lanes + lane] * of.steps[t], sum);
      }
}

#if HOTSET_X86_VECTORS
#define HOTSET_AVX2 __attribute__((target("avx2,fma,f16c")))
#define HOTSET_AVX512 __attribute__((target("avx512f,avx512bw,avx512vnni,avx2,fma,f16c")))

/// Bytes that are asked for ahead of those that are read; reading past an array's end this way is harmless.
inline constexpr std::size_t ahead = 4096;
inline void fetch(const std::byte* at) noexcept {
  _mm_prefetch(reinterpret_cast<const char*>(at) + ahead, _MM_HINT_T0);
}

// AVX-512: a block of maps is one vector.

HOTSET_AVX512 inline __m512 load_16(const float* at) noexcept { return _mm512_load_ps(at); }
HOTSET_AVX512 inline __m512 load_16(const std::uint16_t* at) noexcept {
  return _mm512_maskz_cvtph_ps(0xffff, _mm256_load_si256(reinterpret_cast<const __m256i*>(at)));
}
template <std::size_t Tokens, class Element>
HOTSET_AVX512 void add_dots_avx512(const slice& maps, const rows& of, std::size_t first,
                                   float* sums, std::size_t stride) noexcept {
  const auto experts = maps.experts;
  const float* const row = of.values + row_begin(first, experts);
  const auto* at = reinterpret_cast<const Element*>(maps.maps);
  for (std::size_t b = 0; b < maps.blocks; ++b) {
    __m512 even[Tokens];
    __m512 odd[Tokens];
#pragma GCC unroll 8
    for (std::size_t t = 0; t < Tokens; ++t) even[t] = odd[t] = _mm512_setzero_ps();
    std::size_t e = 0;
    for (; e + 2 <= experts; e += 2, at += 2 * lanes) {
      fetch(reinterpret_cast<const std::byte*>(at));
      if constexpr (sizeof(Element) == 4) fetch(reinterpret_cast<const std::byte*>(at + lanes));
      const __m512 one = load_16(at);
      const __m512 two = load_16(at + lanes);
#pragma GCC unroll 8
      for (std::size_t t = 0; t < Tokens; ++t) {
        even[t] = _mm512_fmadd_ps(one, _mm512_set1_ps(row[e * abreast + t]), even[t]);
        odd[t] = _mm512_fmadd_ps(two, _mm512_set1_ps(row[(e + 1) * abreast + t]), odd[t]);
      }
    }
    if (e < experts) {
      const __m512 one = load_16(at);
      at += lanes;
#pragma GCC unroll 8
      for (std::size_t t = 0; t < Tokens; ++t)
        even[t] = _mm512_fmadd_ps(one, _mm512_set1_ps(row[e * abreast + t]), even[t]);
    }
#pragma GCC unroll 8
    for (std::size_t t = 0; t < Tokens; ++t) {
      float* const sum = sums + (first + t) * stride + b * lanes;
      _mm512_store_ps(sum, _mm512_add_ps(_mm512_load_ps(sum), _mm512_add_ps(even[t], odd[t])));
    }
  }
}
template <std::size_t Tokens>
HOTSET_AVX512 void add_codes_avx512(const slice& maps, const rows& of, std::size_t first,
                                    float* sums, std::size_t stride) noexcept {
  const auto words = maps.words();
  const std::int32_t* const high_digits = of.high + row_begin(first, words);
  const std::int32_t* const low_digits = of.low + row_begin(first, words);
  const auto* at = maps.maps;
  for (std::size_t b = 0; b < maps.blocks; ++b) {
    __m512i high[Tokens];
    __m512i low[Tokens];
#pragma GCC unroll 8
    for (std::size_t t = 0; t < Tokens; ++t) high[t] = low[t] = _mm512_setzero_si512();
    for (std::size_t w = 0; w < words; ++w, at += lanes * codes_in_word) {
      fetch(at);
      const __m512i codes = _mm512_load_si512(at);
#pragma GCC unroll 8
      for (std::size_t t = 0; t < Tokens; ++t) {
        high[t] =
            _mm512_dpbusd_epi32(high[t], codes, _mm512_set1_epi32(high_digits[w * abreast + t]));
        low[t] = _mm512_dpbusd_epi32(low[t], codes, _mm512_set1_epi32(low_digits[w * abreast + t]));
      }
    }
    const __m512 steps = _mm512_load_ps(maps.steps + b * lanes);
#pragma GCC unroll 8
    for (std::size_t t = 0; t < Tokens; ++t) {
      float* const sum = sums + (first + t) * stride + b * lanes;
      const __m512 both =
          _mm512_fmadd_ps(_mm512_maskz_cvtepi32_ps(0xffff, high[t]), _mm512_set1_ps(digit),
                          _mm512_maskz_cvtepi32_ps(0xffff, low[t]));
      const __m512 step = _mm512_mul_ps(steps, _mm512_set1_ps(of.steps[first + t]));
      _mm512_store_ps(sum, _mm512_fmadd_ps(both, step, _mm512_load_ps(sum)));
    }
  }
}

// AVX2: a block of maps is two vectors.

struct two_vectors {
  __m256 lower;
  __m256 upper;
};
HOTSET_AVX2 inline two_vectors load_8_and_8(const float* at) noexcept {
  return {_mm256_load_ps(at), _mm256_load_ps(at + 8)};
}
HOTSET_AVX2 inline two_vectors load_8_and_8(const std::uint16_t* at) noexcept {
  const auto* const half = reinterpret_cast<const __m128i*>(at);
  return {_mm256_cvtph_ps(_mm_load_si128(half)), _mm256_cvtph_ps(_mm_load_si128(half + 1))};
}
template <class Element>
HOTSET_AVX2 void add_dots_avx2(const slice& maps, const rows& of, std::size_t token, float* sums,
                               std::size_t stride) noexcept {
  const auto experts = maps.experts;
  const float* const row = of.values + row_begin(token, experts);
  const auto* at = reinterpret_cast<const Element*>(maps.maps);
  for (std::size_t b = 0; b < maps.blocks; ++b) {
    __m256 even_lower = _mm256_setzero_ps();
    __m256 even_upper = even_lower;
    __m256 odd_lower = even_lower;
    __m256 odd_upper = even_lower;
    std::size_t e = 0;
    for (; e + 2 <= experts; e += 2, at += 2 * lanes) {
      fetch(reinterpret_cast<const std::byte*>(at));
      if constexpr (sizeof(Element) == 4) fetch(reinterpret_cast<const std::byte*>(at + lanes));
      const auto one = load_8_and_8(at);
      const auto two = load_8_and_8(at + lanes);
      const __m256 of_one = _mm256_set1_ps(row[e * abreast]);
      const __m256 of_two = _mm256_set1_ps(row[(e + 1) * abreast]);
      even_lower = _mm256_fmadd_ps(one.lower, of_one, even_lower);
      even_upper = _mm256_fmadd_ps(one.upper, of_one, even_upper);
      odd_lower = _mm256_fmadd_ps(two.lower, of_two, odd_lower);
      odd_upper = _mm256_fmadd_ps(two.upper, of_two, odd_upper);
    }
    if (e < experts) {
      const auto one = load_8_and_8(at);
      at += lanes;
      even_lower = _mm256_fmadd_ps(one.lower, _mm256_set1_ps(row[e * abreast]), even_lower);
      even_upper = _mm256_fmadd_ps(one.upper, _mm256_set1_ps(row[e * abreast]), even_upper);
    }
    float* const sum = sums + token * stride + b * lanes;
    _mm256_store_ps(sum, _mm256_add_ps(_mm256_load_ps(sum), _mm256_add_ps(even_lower, odd_lower)));
    _mm256_store_ps(sum + 8,
                    _mm256_add_ps(_mm256_load_ps(sum + 8), _mm256_add_ps(even_upper, odd_upper)));
  }
}
/// Pairs of products fit into 16 bits: 2 x 255 x 63.
HOTSET_AVX2 inline __m256i add_products(__m256i sum, __m256i codes, std::int32_t digits) noexcept {
  const __m256i pairs = _mm256_maddubs_epi16(codes, _mm256_set1_epi32(digits));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
HOTSET_AVX2 inline void add_scaled(float* sum, const float* steps, float row_step, __m256i high,
                                   __m256i low) noexcept {
  const __m256 both =
      _mm256_fmadd_ps(_mm256_cvtepi32_ps(high), _mm256_set1_ps(digit), _mm256_cvtepi32_ps(low));
  const __m256 step = _mm256_mul_ps(_mm256_load_ps(steps), _mm256_set1_ps(row_step));
  _mm256_store_ps(sum, _mm256_fmadd_ps(both, step, _mm256_load_ps(sum)));
}
HOTSET_AVX2 inline void add_codes_avx2(const slice& maps, const rows& of, std::size_t token,
                                       float* sums, std::size_t stride) noexcept {
  const auto words = maps.words();
  const auto* at = maps.maps;
  for (std::size_t b = 0; b < maps.blocks; ++b) {
    __m256i high_lower = _mm256_setzero_si256();
    __m256i high_upper = high_lower;
    __m256i low_lower = high_lower;
    __m256i low_upper = high_lower;
    for (std::size_t w = 0; w < words; ++w, at += lanes * codes_in_word) {
      fetch(at);
      const auto* const codes = reinterpret_cast<const __m256i*>(at);
      const __m256i lower = _mm256_load_si256(codes);
      const __m256i upper = _mm256_load_si256(codes + 1);
      const auto high = of.high[row_begin(token, words) + w * abreast];
      const auto low = of.low[row_begin(token, words) + w * abreast];
      high_lower = add_products(high_lower, lower, high);
      high_upper = add_products(high_upper, upper, high);
      low_lower = add_products(low_lower, lower, low);
      low_upper = add_products(low_upper, upper, low);
    }
    float* const sum = sums + token * stride + b * lanes;
    const float* const steps = maps.steps + b * lanes;
    add_scaled(sum, steps, of.steps[token], high_lower, low_lower);
    add_scaled(sum + 8, steps + 8, of.steps[token], high_upper, low_upper);
  }
}

/// Calls `kernel` with as many tokens at once as there are registers for, which lie side by side.
template <class Kernel>
void in_groups(std::size_t tokens, Kernel kernel) noexcept {
  std::size_t t = 0;
  for (; t + 8 <= tokens; t += 8) kernel.template operator()<8>(t);
  for (; t + 4 <= tokens; t += 4) kernel.template operator()<4>(t);
  for (; t + 2 <= tokens; t += 2) kernel.template operator()<2>(t);
  for (; t < tokens; ++t) kernel.template operator()<1>(t);
}
template <class Element>
void add_dots_in_vectors(vector_level level, const slice& maps, const rows& of, float* sums,
                         std::size_t stride) noexcept {
  if (level == vector_level::avx512)
    in_groups(of.tokens, [&]<std::size_t Tokens>(std::size_t first) {
      add_dots_avx512<Tokens, Element>(maps, of, first, sums, stride);
    });
  else
    for (std::size_t t = 0; t < of.tokens; ++t) add_dots_avx2<Element>(maps, of, t, sums, stride);
}
inline void add_codes_in_vectors(vector_level level, const slice& maps, const rows& of, float* sums,
                                 std::size_t stride) noexcept {
  if (level == vector_level::avx512)
    in_groups(of.tokens, [&]<std::size_t Tokens>(std::size_t first) {
      add_codes_avx512<Tokens>(maps, of, first, sums, stride);
    });
  else
    for (std::size_t t = 0; t < of.tokens; ++t) add_codes_avx2(maps, of, t, sums, stride);
}
#endif

}  // namespace detail

/// sums[t][m] += the sum over the experts of map m times row t. Of int8 never less than that, but for rounding.
/// Pre: maps, steps and sums lie at multiples of 64 bytes (sums: each token's, fp16 maps: 32); this processor has `level`.
/// Shape: sums is [tokens, stride], of which the first 16 x blocks of each token are used.
inline void add_dots(vector_level level, map_storage storage, const slice& maps, const rows& of,
                     float* sums, std::size_t stride) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar) {
    if (storage == map_storage::fp32)
      return detail::add_dots_in_vectors<float>(level, maps, of, sums, stride);
    if (storage == map_storage::fp16)
      return detail::add_dots_in_vectors<std::uint16_t>(level, maps, of, sums, stride);
    return detail::add_codes_in_vectors(level, maps, of, sums, stride);
  }
#else
  static_cast<void>(level);
#endif
  if (storage == map_storage::int8) return detail::add_codes_scalar(maps, of, sums, stride);
  if (storage == map_storage::fp32) {
    const auto* const values = reinterpret_cast<const float*>(maps.maps);
    return detail::add_dots_scalar(maps, of, sums, stride,
                                   [values](std::size_t i) { return values[i]; });
  }
  const auto* const halves = reinterpret_cast<const std::uint16_t*>(maps.maps);
  detail::add_dots_scalar(maps, of, sums, stride,
                          [halves](std::size_t i) { return from_half(halves[i]); });
}

/// A place and what it is worth.
struct best_of {
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  float score = -std::numeric_limits<float>::infinity();
  std::uint32_t place = none;
};

namespace detail {

/// Ties to the lower place; nothing below or at minus infinity, and no NaN, is ever best.
inline void take_best_scalar(const float* sums, const float* weights, std::size_t first,
                             std::size_t count, best_of& best) noexcept {
  for (std::size_t i = 0; i < count; ++i)
    if (const float score = sums[i] * weights[i]; score > best.score)
      best = {score, static_cast<std::uint32_t>(first + i)};
}
/// The best of the lanes, each of which holds its first best block.
inline void take_best_lane(const std::array<float, lanes>& scores,
                           const std::array<std::uint32_t, lanes>& blocks, std::size_t first,
                           best_of& best) noexcept {
  best_of found;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const auto place = static_cast<std::uint32_t>(first + blocks[lane] * lanes + lane);
    if (scores[lane] > found.score || (scores[lane] == found.score && place < found.place))
      found = {scores[lane], place};
  }
  if (found.score > best.score) best = found;
}
#if HOTSET_X86_VECTORS
HOTSET_AVX2 inline void take_best_avx2(const float* sums, const float* weights, std::size_t first,
                                       std::size_t blocks, best_of& best) noexcept {
  alignas(32) std::array<float, lanes> score_of{};
  alignas(32) std::array<std::uint32_t, lanes> block_of{};
  for (std::size_t half = 0; half < lanes; half += 8) {
    __m256 scores = _mm256_set1_ps(-std::numeric_limits<float>::infinity());
    __m256 places = _mm256_setzero_ps();
    for (std::size_t b = 0; b < blocks; ++b) {
      const auto at = b * lanes + half;
      const __m256 score = _mm256_mul_ps(_mm256_load_ps(sums + at), _mm256_load_ps(weights + at));
      const __m256 better = _mm256_cmp_ps(score, scores, _CMP_GT_OQ);
      scores = _mm256_blendv_ps(scores, score, better);
      places = _mm256_blendv_ps(places, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(b))),
                                better);
    }
    _mm256_store_ps(score_of.data() + half, scores);
    _mm256_store_si256(reinterpret_cast<__m256i*>(block_of.data() + half),
                       _mm256_castps_si256(places));
  }
  take_best_lane(score_of, block_of, first, best);
}
HOTSET_AVX2 inline std::size_t find_block_avx2(const float* sums, const float* weights,
                                               std::size_t from, std::size_t blocks,
                                               float least) noexcept {
  const __m256 limit = _mm256_set1_ps(least);
  for (std::size_t b = from; b < blocks; ++b) {
    const auto at = b * lanes;
    const __m256 lower = _mm256_mul_ps(_mm256_load_ps(sums + at), _mm256_load_ps(weights + at));
    const __m256 upper =
        _mm256_mul_ps(_mm256_load_ps(sums + at + 8), _mm256_load_ps(weights + at + 8));
    if (_mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(lower, limit, _CMP_GE_OQ),
                                        _mm256_cmp_ps(upper, limit, _CMP_GE_OQ))) != 0)
      return b;
  }
  return blocks;
}
#endif
inline std::size_t find_block_scalar(const float* sums, const float* weights, std::size_t from,
                                     std::size_t blocks, float least) noexcept {
  for (std::size_t i = from * lanes; i < blocks * lanes; ++i)
    if (sums[i] * weights[i] >= least) return i / lanes;
  return blocks;
}

}  // namespace detail

/// Replaces `best` by the highest of sums[i] x weights[i], whose place is first + i, if that is higher; among equals the
/// lowest place. Sums of minus infinity and NaN never are. Pre: as add_dots; `blocks` < 2^28.
inline void take_best(vector_level level, const float* sums, const float* weights,
                      std::size_t first, std::size_t blocks, best_of& best) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar)
    return detail::take_best_avx2(sums, weights, first, blocks, best);
#else
  static_cast<void>(level);
#endif
  detail::take_best_scalar(sums, weights, first, blocks * lanes, best);
}

/// Returns the first block from `from` on of which some sums[i] x weights[i] >= least; `blocks` if there is none.
/// Pre: as add_dots.
[[nodiscard]] inline std::size_t find_block(vector_level level, const float* sums,
                                            const float* weights, std::size_t from,
                                            std::size_t blocks, float least) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar)
    return detail::find_block_avx2(sums, weights, from, blocks, least);
#else
  static_cast<void>(level);
#endif
  return detail::find_block_scalar(sums, weights, from, blocks, least);
}

}  // namespace map_kernels

}  // namespace hotset

#undef HOTSET_AVX2
#undef HOTSET_AVX512
