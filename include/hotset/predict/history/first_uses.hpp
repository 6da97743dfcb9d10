// SPDX-License-Identifier: Apache-2.0
#pragma once
/// For each remembered row and layer, how many tokens later its sequence first used each expert: a number of four bits, 0 for not as
/// far as is known. Whoever remembers the rows tells of the tokens after one when it is asked about it, and of each once.
///
/// Numbers of 64 experts are eight words of 32 bits: expert e is in word e % 8, at bit 4 * (e / 8), so that one shift brings the numbers of
/// eight experts to the front.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/platform/compiler.hpp"
#if HOTSET_X86_VECTORS
#include <immintrin.h>
#endif

namespace hotset {

namespace detail {

/// The word-th 64 experts: those that token t used first of these get the number first + t, unless they have one. Shape of
/// numbers: [8].
inline void number_scalar(std::span<const std::uint64_t* const> tokens, std::size_t word,
                          std::uint32_t first, std::uint32_t* numbers) noexcept {
  for (const auto* const used : tokens) {
    for (auto left = used[word]; left != 0; left &= left - 1) {
      const auto e = static_cast<unsigned>(std::countr_zero(left));
      const auto shift = e / 8 * 4;
      auto& eight = numbers[e % 8];
      if ((eight >> shift & 15U) == 0) eight |= first << shift;
    }
    ++first;
  }
}
#if HOTSET_X86_VECTORS
/// In each lane, bits 0, 8, 16 and 24 come to 0, 4, 8 and 12; the others are lost.
__attribute__((target("avx2"))) inline __m256i draw_together(__m256i bits) noexcept {
  bits = _mm256_and_si256(bits, _mm256_set1_epi32(0x01010101));
  bits = _mm256_and_si256(_mm256_or_si256(bits, _mm256_srli_epi32(bits, 4)),
                          _mm256_set1_epi32(0x00110011));
  return _mm256_and_si256(_mm256_or_si256(bits, _mm256_srli_epi32(bits, 8)),
                          _mm256_set1_epi32(0x1111));
}
__attribute__((target("avx2"))) inline void number_avx2(
    std::span<const std::uint64_t* const> tokens, std::size_t word, std::uint32_t first,
    std::uint32_t* numbers) noexcept {
  auto* const to = reinterpret_cast<__m256i*>(numbers);
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  __m256i now = _mm256_loadu_si256(to);
  __m256i by = _mm256_set1_epi32(static_cast<int>(first * 0x11111111U));
  for (const auto* const used : tokens) {
    const __m256i near = _mm256_set1_epi32(static_cast<int>(used[word] & 0xffffffffU));
    const __m256i far = _mm256_set1_epi32(static_cast<int>(used[word] >> 32U));
    const __m256i is_used =
        _mm256_or_si256(draw_together(_mm256_srlv_epi32(near, lane)),
                        _mm256_slli_epi32(draw_together(_mm256_srlv_epi32(far, lane)), 16));
    const __m256i half = _mm256_or_si256(now, _mm256_srli_epi32(now, 1));
    const __m256i numbered = _mm256_or_si256(half, _mm256_srli_epi32(half, 2));  // lowest bits
    const __m256i fresh = _mm256_andnot_si256(numbered, is_used);
    const __m256i all_of_each = _mm256_sub_epi32(_mm256_slli_epi32(fresh, 4), fresh);
    now = _mm256_or_si256(now, _mm256_and_si256(all_of_each, by));
    by = _mm256_add_epi32(by, _mm256_set1_epi32(0x11111111));
  }
  _mm256_storeu_si256(to, now);
}

#endif

}  // namespace detail

/// Threads: compatible. Nothing allocates after construction. Memory: half a byte for each row, layer and expert, these filled up
/// to whole 64s, and a byte for each row and layer.
class first_uses {
 public:
  static constexpr std::size_t most_horizon = 15;
  static constexpr std::size_t experts_at_once = 64;
  static constexpr std::size_t words_at_once = 8;  ///< that hold the numbers of so many experts

  /// Nothing is kept where horizon is 0. Pre: horizon <= most_horizon.
  first_uses(std::size_t layers, std::size_t rows, std::size_t experts, std::size_t horizon)
      : layers_(layers),
        horizon_(horizon),
        words_((experts + experts_at_once - 1) / experts_at_once * words_at_once),
        numbers_(horizon == 0 ? 0 : rows * layers * words_, 0),
        known_(horizon == 0 ? 0 : rows * layers, 0) {}

  /// Tokens after a row that are looked at.
  [[nodiscard]] std::size_t horizon() const noexcept { return horizon_; }
  /// Experts, filled up to whole 64s.
  [[nodiscard]] std::size_t experts() const noexcept {
    return words_ / words_at_once * experts_at_once;
  }
  /// So many tokens after the row are known. Pre, of this and all below: horizon() > 0.
  [[nodiscard]] std::size_t known(std::size_t layer, std::size_t row) const noexcept {
    return known_[row * layers_ + layer];
  }
  /// The numbers of a row in a layer; those above known() say nothing.
  [[nodiscard]] const std::uint32_t* of(std::size_t layer, std::size_t row) const noexcept {
    return numbers_.data() + (layer + row * layers_) * words_;
  }
  /// known() and of() will be asked for soon: memory answers many at once.
  void fetch(std::size_t layer, std::size_t row) const noexcept {
    fetch_soon(&known_[row * layers_ + layer]);
    fetch_soon(of(layer, row));
  }
  /// The tokens after those that are known used these, each a set of a bit an expert. Every level does the same. Pre: with them no
  /// more than horizon() are known; beyond experts() no bit is set.
  void add(std::size_t layer, std::size_t row, std::span<const std::uint64_t* const> tokens,
           [[maybe_unused]] vector_level level) noexcept {
    auto& known = known_[row * layers_ + layer];
    HOTSET_ASSERT(known + tokens.size() <= horizon_);
    auto* const numbers = numbers_.data() + (layer + row * layers_) * words_;
    number(tokens, known + 1U, numbers, level);
    known = static_cast<std::uint8_t>(known + tokens.size());
  }
  /// Where an expert's number begins in its word.
  [[nodiscard]] static constexpr unsigned shift_of(std::size_t expert) noexcept {
    return static_cast<unsigned>(expert % experts_at_once / words_at_once * 4);
  }
  /// No more than so many tokens after the row are known, in any layer.
  void forget_beyond(std::size_t row, std::size_t tokens) noexcept {
    for (auto& known : std::span(known_).subspan(row * layers_, layers_))
      known = std::min(known, static_cast<std::uint8_t>(tokens));
  }
  void forget_all() noexcept { std::ranges::fill(known_, std::uint8_t{0}); }

 private:
  /// Where `first` is 1 nothing is known of what the numbers were.
  void number(std::span<const std::uint64_t* const> tokens, std::uint32_t first,
              std::uint32_t* numbers, [[maybe_unused]] vector_level level) const noexcept {
    const std::size_t groups = words_ / words_at_once;
    if (first == 1) std::fill_n(numbers, words_, 0U);
    for (std::size_t word = 0; word < groups; ++word, numbers += words_at_once) {
#if HOTSET_X86_VECTORS
      if (level != vector_level::scalar)
        detail::number_avx2(tokens, word, first, numbers);
      else
#endif
        detail::number_scalar(tokens, word, first, numbers);
    }
  }

  std::size_t layers_;
  std::size_t horizon_;
  std::size_t words_;                      ///< of a row in a layer
  aligned_vector<std::uint32_t> numbers_;  ///< [rows, layers, words]
  std::vector<std::uint8_t> known_;        ///< [rows, layers]
};

}  // namespace hotset
