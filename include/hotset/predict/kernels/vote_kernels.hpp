// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Counts the votes of similar tokens for the experts that their later tokens used, by distance.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/policy/policy_config.hpp"
#include "hotset/predict/history/first_uses.hpp"
#include "hotset/predict/kernels/history_kernels.hpp"
#if HOTSET_X86_VECTORS
#include <immintrin.h>
#endif

namespace hotset {

/// Weight of a past token's vote by its similarity to the running token: w = exp(sharpness * (similarity - 0.7)),
/// similarity 0..1 in steps of 1/2048. A table lookup by the upper bits of a similarity gives all processors the same
/// weight.
/// Memory: 16 KiB. Threads: const use is safe.
class similarity_weights {
 public:
  /// Refuses a sharpness outside 0..80.
  [[nodiscard]] static validation check(double sharpness) {
    return detail::refuse_unless(sharpness >= 0 && sharpness <= 80, "similar rows sharpness",
                                 sharpness, "0..80");
  }
  /// Pre: check(sharpness) returns no error.
  explicit similarity_weights(double sharpness) : weights_((2 * history_kernels::alike) >> shift) {
    for (std::size_t i = 0; i < weights_.size(); ++i)
      weights_[i] =
          static_cast<float>(std::exp(sharpness * ((static_cast<double>(i) + 0.5) / one - 0.7)));
  }
  /// Weight of a similarity of routing_history.
  [[nodiscard]] float operator[](std::uint16_t similarity) const noexcept {
    return weights_[similarity >> shift];
  }

 private:
  static constexpr unsigned shift = 4;
  static constexpr double one = static_cast<double>(history_kernels::alike >> shift);

  std::vector<float> weights_;
};

namespace vote_kernels {

/// Worth of a vote by the number in first_uses; [0] is the worth of an expert without a use.
using counts = std::array<float, first_uses::most_horizon + 1>;

/// Vote of one similar token: its numbers in first_uses, their worth, and its weight.
struct ballot {
  const std::uint32_t* numbers = nullptr;
  const counts* of_numbers = nullptr;
  float weight = 0;
};

/// votes[e] = sum over the ballots, in order, of weight * of_numbers[number of e].
inline void count_scalar(std::span<const ballot> ballots, std::span<float> votes) noexcept {
  std::fill_n(votes.data(), votes.size(), 0.0F);
  for (const auto& one : ballots) {
    counts weighted;  // rounded before they are added, so that all processors agree
    for (std::size_t n = 0; n < weighted.size(); ++n)
      weighted[n] = one.weight * (*one.of_numbers)[n];
    for (std::size_t e = 0; e < votes.size(); ++e) {
      const auto word = one.numbers[first_uses::word_of(e)];
      votes[e] += weighted[word >> first_uses::shift_of(e) & 15U];
    }
  }
}
#if HOTSET_X86_VECTORS
namespace detail {

/// Far: numbers above 7 may occur; a lookup of eight lanes covers only 0..7.
template <bool Far>
__attribute__((target("avx2"))) inline void count_avx2(std::span<const ballot> ballots,
                                                       std::span<float> votes) noexcept {
  constexpr std::size_t vectors = first_uses::experts_at_once / 8;
  for (std::size_t group = 0; group < votes.size() / first_uses::experts_at_once; ++group) {
    __m256 sums[vectors];
    for (auto& sum : sums) sum = _mm256_setzero_ps();
    for (const auto& one : ballots) {
      const __m256 weight = _mm256_set1_ps(one.weight);
      const __m256 near = _mm256_mul_ps(weight, _mm256_loadu_ps(one.of_numbers->data()));
      const __m256 far = _mm256_mul_ps(weight, _mm256_loadu_ps(one.of_numbers->data() + 8));
      const __m256i numbers = _mm256_loadu_si256(
          reinterpret_cast<const __m256i*>(one.numbers + group * first_uses::words_at_once));
      for (std::size_t v = 0; v < vectors; ++v) {
        const __m256i at = _mm256_srli_epi32(numbers, static_cast<int>(4 * v));
        __m256 votes_of = _mm256_permutevar8x32_ps(near, at);
        if constexpr (Far)
          votes_of = _mm256_blendv_ps(votes_of, _mm256_permutevar8x32_ps(far, at),
                                      _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
        sums[v] = _mm256_add_ps(sums[v], votes_of);
      }
    }
    for (std::size_t v = 0; v < vectors; ++v)
      _mm256_storeu_ps(votes.data() + group * first_uses::experts_at_once + v * 8, sums[v]);
  }
}
}  // namespace detail
#endif

/// Same bits as count_scalar. If `far`, numbers above 7 are looked up too. Shapes: votes, a multiple of 64; each
/// ballot has as many numbers.
/// Pre: no number is above 7 unless `far`.
inline void count(std::span<const ballot> ballots, [[maybe_unused]] bool far,
                  std::span<float> votes, [[maybe_unused]] vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar)
    return far ? detail::count_avx2<true>(ballots, votes)
               : detail::count_avx2<false>(ballots, votes);
#endif
  count_scalar(ballots, votes);
}
}  // namespace vote_kernels

}  // namespace hotset
