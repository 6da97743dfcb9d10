// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The lowest of a few ranks whose scores and positions lie side by side, found by looking at all of them.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "hotset/core/platform/assert.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/eviction/order/lowest_values.hpp"
#if HOTSET_X86_VECTORS
#include <immintrin.h>
#endif

namespace hotset {

/// What slots of a small pool are ordered by: their scores, of equals the position. Shapes: [64 * words]; what no set names may be
/// anything but NaN.
struct rank_rows {
  double* scores = nullptr;                  ///< infinite where nothing is held
  const std::uint64_t* positions = nullptr;  ///< below 2^52

  /// The most places that are looked at together.
  static constexpr std::size_t most = 256;
};

namespace detail {

/// Places in ascending rank, of those that were offered the lowest. Complexity: O(out) for each that is lower than the highest kept.
class lowest_kept {
 public:
  explicit lowest_kept(std::size_t most) noexcept : most_(std::min(most, rank_rows::most)) {}

  void offer(double score, std::uint64_t position, std::size_t place) noexcept {
    const entry offered{score, position, static_cast<std::uint32_t>(place)};
    if (size_ == most_ && !offered.goes_before(kept_[most_ - 1])) return;
    auto n = size_ < most_ ? size_++ : most_ - 1;
    for (; n > 0 && offered.goes_before(kept_[n - 1]); --n) kept_[n] = kept_[n - 1];
    kept_[n] = offered;
  }
  std::size_t write(std::span<std::uint32_t> to) const noexcept {
    for (std::size_t n = 0; n < size_; ++n) to[n] = kept_[n].place;
    return size_;
  }

 private:
  struct entry {
    double score;
    std::uint64_t position;
    std::uint32_t place;

    [[nodiscard]] bool goes_before(const entry& other) const noexcept {
      return score < other.score || (score == other.score && position < other.position);
    }
  };
  std::size_t most_;
  std::size_t size_ = 0;
  entry kept_[rank_rows::most];  // without a value until it is kept
};

#if HOTSET_X86_VECTORS
/// Of the lanes that four bits name all bits are set.
struct alignas(32) lane_masks {
  std::uint64_t of[16][4];
};
inline constexpr lane_masks named_lanes = [] {
  lane_masks out{};
  for (std::size_t four = 0; four < 16; ++four)
    for (std::size_t lane = 0; lane < 4; ++lane)
      out.of[four][lane] = (four >> lane & 1U) != 0 ? ~std::uint64_t{0} : 0;
  return out;
}();

__attribute__((target("avx2"))) inline __m256d four_at(const double* from) noexcept {
  return _mm256_loadu_pd(from);
}
/// Numbers below 2^52 as doubles of the same order.
__attribute__((target("avx2"))) inline __m256d four_at(const std::uint64_t* from) noexcept {
  const __m256d bits = _mm256_loadu_pd(static_cast<const double*>(static_cast<const void*>(from)));
  return _mm256_or_pd(bits, _mm256_set1_pd(0x1p52));
}
/// Infinity for what the lowest bits do not name.
template <class T>
__attribute__((target("avx2"))) inline __m256d named_at(const T* from,
                                                        std::uint64_t among) noexcept {
  const auto* const lanes = static_cast<const void*>(named_lanes.of[among & 0xfU]);
  return _mm256_blendv_pd(_mm256_set1_pd(std::numeric_limits<double>::infinity()), four_at(from),
                          _mm256_load_pd(static_cast<const double*>(lanes)));
}
/// So many of the values are no greater, unless there are fewer that are finite: the least of each of as many parts.
template <class T>
__attribute__((target("avx2"))) double bound_avx2(const T* row,
                                                  std::span<const std::uint64_t> among,
                                                  std::size_t count) noexcept {
  constexpr double most = std::numeric_limits<double>::max();
  if (count > 8) return most;
  __m256d even = _mm256_set1_pd(std::numeric_limits<double>::infinity());
  __m256d odd = even;
  for (const auto word : among) {
    for (std::size_t i = 0; i < 64 && word >> i != 0; i += 16) {
      const auto names = word >> i;
      even = _mm256_min_pd(even, named_at(row + i, names));
      odd = _mm256_min_pd(odd, named_at(row + i + 4, names >> 4U));
      even = _mm256_min_pd(even, named_at(row + i + 8, names >> 8U));
      odd = _mm256_min_pd(odd, named_at(row + i + 12, names >> 12U));
    }
    row += 64;
  }
  const __m256d four = count > 4 ? _mm256_max_pd(even, odd) : _mm256_min_pd(even, odd);
  const __m128d low = _mm256_castpd256_pd128(four);
  const __m128d high = _mm256_extractf128_pd(four, 1);
  const __m128d two = count > 2 ? _mm_max_pd(low, high) : _mm_min_pd(low, high);
  const __m128d swapped = _mm_unpackhi_pd(two, two);
  return std::min(most,
                  _mm_cvtsd_f64(count > 1 ? _mm_max_sd(two, swapped) : _mm_min_sd(two, swapped)));
}
template <int How>
__attribute__((target("avx2"))) inline std::uint64_t compared(__m256d values,
                                                              __m256d limit) noexcept {
  return static_cast<std::uint32_t>(_mm256_movemask_pd(_mm256_cmp_pd(values, limit, How)));
}
/// Writes which of the values that `among` names compare with the bound as `How` says; returns how many.
template <int How, class T>
__attribute__((target("avx2,popcnt"))) std::size_t compare_avx2(
    const T* row, double bound, std::span<const std::uint64_t> among,
    std::uint64_t* found) noexcept {
  const __m256d limit = _mm256_set1_pd(bound);
  std::size_t count = 0;
  for (const auto word : among) {
    std::uint64_t out = 0;
    for (std::size_t i = 0; i < 64 && word >> i != 0; i += 16)
      out |= (compared<How>(four_at(row + i), limit) |
              compared<How>(four_at(row + i + 4), limit) << 4U |
              compared<How>(four_at(row + i + 8), limit) << 8U |
              compared<How>(four_at(row + i + 12), limit) << 12U)
             << i;
    row += 64;
    *found++ = out & word;
    count += static_cast<std::size_t>(std::popcount(out & word));
  }
  return count;
}
/// Narrows `among` to places of which some are the lowest `count`, all of them. Many equal scores are told apart by position.
__attribute__((target("avx2,popcnt"))) inline void narrow_avx2(const rank_rows& rows,
                                                               std::span<std::uint64_t> among,
                                                               std::size_t count) noexcept {
  constexpr std::size_t few = 16;  // more than these cost less to look at again than to compare
  const auto bound = bound_avx2(rows.scores, among, count);
  if (compare_avx2<_CMP_LE_OQ>(rows.scores, bound, among, among.data()) <= count + few) return;
  std::uint64_t lower[rank_rows::most / 64] = {};
  const auto sure = compare_avx2<_CMP_LT_OQ>(rows.scores, bound, among, lower);
  if (sure >= count) {
    std::copy_n(lower, among.size(), among.begin());
    return;
  }
  for (std::size_t w = 0; w < among.size(); ++w) among[w] &= ~lower[w];
  const auto oldest = bound_avx2(rows.positions, among, count - sure);
  compare_avx2<_CMP_LE_OQ>(rows.positions, oldest, among, among.data());
  for (std::size_t w = 0; w < among.size(); ++w) among[w] |= lower[w];
}
#endif

}  // namespace detail

/// Writes the places that `among` names in ascending rank, as many as there is room for; returns how many. `among` is used up. Infinite
/// scores are left out. Shapes: of rank_rows. Complexity: O(words), vectorised, and O(out) for each of the few that are about as low.
inline std::size_t lowest_ranked(const rank_rows& rows, std::span<std::uint64_t> among,
                                 std::span<std::uint32_t> out,
                                 [[maybe_unused]] vector_level level) noexcept {
  HOTSET_ASSERT(among.size() <= rank_rows::most / 64);
  if (out.empty()) return 0;
#if HOTSET_X86_VECTORS
  if (level != vector_level::scalar) detail::narrow_avx2(rows, among, out.size());
#endif
  detail::lowest_kept kept(out.size());
  each_member(among, [&](std::size_t place) {
    if (rows.scores[place] < std::numeric_limits<double>::infinity())
      kept.offer(rows.scores[place], rows.positions[place], place);
  });
  return kept.write(out);
}

}  // namespace hotset
