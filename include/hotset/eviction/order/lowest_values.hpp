// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The least of some values of a row, and which of them are about as low.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "hotset/core/platform/compiler.hpp"
#if HOTSET_X86_VECTORS
#include <immintrin.h>
#endif

namespace hotset {

/// Calls take(i) for each bit of a set, in ascending order.
template <class Take>
void each_member(std::span<const std::uint64_t> set, Take take) {
  for (std::size_t w = 0; w < set.size(); ++w)
    for (auto left = set[w]; left != 0; left &= left - 1)
      take(w * 64 + static_cast<std::size_t>(std::countr_zero(left)));
}

/// Members of a set, told without a branch: nobody can foretell in which word they are.
struct few_members {
  std::size_t first = 0;  ///< if there is any
  bool is_alone = true;   ///< there is no other

  explicit few_members(std::span<const std::uint64_t> set) noexcept {
    std::uint64_t others = 0;
    for (auto w = set.size(); w-- > 0;) {
      const auto low = set[w];
      const auto is_any = std::uint64_t{0} - ((low | (0 - low)) >> 63U);  // all bits, or none
      const auto at = w * 64 + static_cast<std::size_t>(std::countr_zero(low | last_bit));
      others |= (low & (low - 1)) | (first_ & is_any);
      first_ = (first_ & ~is_any) | ((at + 1) & is_any);
    }
    is_alone = others == 0;
    first = first_ - 1;
  }

 private:
  static constexpr std::uint64_t last_bit = std::uint64_t{1} << 63U;

  std::size_t first_ = 0;  ///< its number from 1 on
};

namespace detail {

template <class T>
T least_scalar(const T* row, std::span<const std::uint64_t> among) noexcept {
  T least = std::numeric_limits<T>::infinity();
  each_member(among, [&](std::size_t i) { least = row[i] < least ? row[i] : least; });
  return least;
}
template <class T>
void at_most_scalar(const T* row, T bound, std::span<const std::uint64_t> among,
                    std::uint64_t* found) noexcept {
  for (std::size_t w = 0; w < among.size(); ++w) {
    std::uint64_t out = 0;
    for (auto left = among[w]; left != 0; left &= left - 1) {
      const auto bit = static_cast<std::size_t>(std::countr_zero(left));
      out |= std::uint64_t{row[w * 64 + bit] <= bound ? 1U : 0U} << bit;
    }
    found[w] = out;
  }
}

#if HOTSET_X86_VECTORS
/// What the lowest bits name, infinity elsewhere.
__attribute__((target("avx2"))) inline __m256 named_avx2(const float* from,
                                                         std::uint64_t among) noexcept {
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i own = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(among & 0xffU)), bits);
  return _mm256_blendv_ps(_mm256_set1_ps(std::numeric_limits<float>::infinity()),
                          _mm256_loadu_ps(from),
                          _mm256_castsi256_ps(_mm256_cmpeq_epi32(own, bits)));
}
__attribute__((target("avx2"))) inline __m256d named_avx2(const double* from,
                                                          std::uint64_t among) noexcept {
  const __m256i bits = _mm256_setr_epi64x(1, 2, 4, 8);
  const __m256i own =
      _mm256_and_si256(_mm256_set1_epi64x(static_cast<long long>(among & 0xfU)), bits);
  return _mm256_blendv_pd(_mm256_set1_pd(std::numeric_limits<double>::infinity()),
                          _mm256_loadu_pd(from),
                          _mm256_castsi256_pd(_mm256_cmpeq_epi64(own, bits)));
}
__attribute__((target("avx2"))) inline float least_of(__m256 eight) noexcept {
  __m128 four = _mm_min_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_min_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_min_ss(four, _mm_movehdup_ps(four)));
}
__attribute__((target("avx2"))) inline double least_of(__m256d four) noexcept {
  const __m128d two = _mm_min_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_min_sd(two, _mm_unpackhi_pd(two, two)));
}
__attribute__((target("avx2"))) inline float least_avx2(
    const float* row, std::span<const std::uint64_t> among) noexcept {
  __m256 even = _mm256_set1_ps(std::numeric_limits<float>::infinity());
  __m256 odd = even;  // each waits for itself alone
  for (const auto word : among) {
    for (std::size_t i = 0; i < 64 && word != 0; i += 16) {
      even = _mm256_min_ps(even, named_avx2(row + i, word >> i));
      odd = _mm256_min_ps(odd, named_avx2(row + i + 8, word >> (i + 8)));
    }
    row += 64;
  }
  return least_of(_mm256_min_ps(even, odd));
}
__attribute__((target("avx2"))) inline double least_avx2(
    const double* row, std::span<const std::uint64_t> among) noexcept {
  __m256d even = _mm256_set1_pd(std::numeric_limits<double>::infinity());
  __m256d odd = even;
  for (const auto word : among) {
    for (std::size_t i = 0; i < 64 && word >> i != 0; i += 8) {
      even = _mm256_min_pd(even, named_avx2(row + i, word >> i));
      odd = _mm256_min_pd(odd, named_avx2(row + i + 4, word >> (i + 4)));
    }
    row += 64;
  }
  return least_of(_mm256_min_pd(even, odd));
}
__attribute__((target("avx2"))) inline void at_most_avx2(const float* row, float bound,
                                                         std::span<const std::uint64_t> among,
                                                         std::uint64_t* found) noexcept {
  const __m256 most = _mm256_set1_ps(bound);
  for (const auto word : among) {
    std::uint64_t out = 0;
    for (std::size_t i = 0; i < 64 && word != 0; i += 8) {
      const __m256 is_low = _mm256_cmp_ps(_mm256_loadu_ps(row + i), most, _CMP_LE_OQ);
      out |= std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_ps(is_low))} << i;
    }
    row += 64;
    *found++ = out & word;
  }
}
__attribute__((target("avx2"))) inline void at_most_avx2(const double* row, double bound,
                                                         std::span<const std::uint64_t> among,
                                                         std::uint64_t* found) noexcept {
  const __m256d most = _mm256_set1_pd(bound);
  for (const auto word : among) {
    std::uint64_t out = 0;
    for (std::size_t i = 0; i < 64 && word >> i != 0; i += 4) {
      const __m256d is_low = _mm256_cmp_pd(_mm256_loadu_pd(row + i), most, _CMP_LE_OQ);
      out |= std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_pd(is_low))} << i;
    }
    row += 64;
    *found++ = out & word;
  }
}

__attribute__((target("avx512f"))) inline void take_lower(__m512& least, const float* from,
                                                          std::uint64_t among) noexcept {
  least = _mm512_mask_min_ps(least, static_cast<__mmask16>(among), least, _mm512_loadu_ps(from));
}
__attribute__((target("avx512f"))) inline void take_lower(__m512d& least, const double* from,
                                                          std::uint64_t among) noexcept {
  least = _mm512_mask_min_pd(least, static_cast<__mmask8>(among), least, _mm512_loadu_pd(from));
}
// Rows of doubles are often short: what is behind the last is not read.
// Forms without a mask would warn of their own undefined lanes.
__attribute__((target("avx512f"))) inline __m256d half_of(__m512d all, bool upper) noexcept {
  return upper ? _mm512_maskz_extractf64x4_pd(0xf, all, 1)
               : _mm512_maskz_extractf64x4_pd(0xf, all, 0);
}
__attribute__((target("avx512f"))) inline float least_avx512(
    const float* row, std::span<const std::uint64_t> among) noexcept {
  __m512 even = _mm512_set1_ps(std::numeric_limits<float>::infinity());
  __m512 odd = even;
  for (const auto word : among) {
    take_lower(even, row, word);
    take_lower(odd, row + 16, word >> 16U);
    take_lower(even, row + 32, word >> 32U);
    take_lower(odd, row + 48, word >> 48U);
    row += 64;
  }
  const __m512d all = _mm512_castps_pd(_mm512_maskz_min_ps(0xffff, even, odd));
  return least_of(
      _mm256_min_ps(_mm256_castpd_ps(half_of(all, false)), _mm256_castpd_ps(half_of(all, true))));
}
__attribute__((target("avx512f"))) inline double least_avx512(
    const double* row, std::span<const std::uint64_t> among) noexcept {
  __m512d even = _mm512_set1_pd(std::numeric_limits<double>::infinity());
  __m512d odd = even;
  for (const auto word : among) {
    for (std::size_t i = 0; i < 64 && word >> i != 0; i += 16) {
      take_lower(even, row + i, word >> i);
      take_lower(odd, row + i + 8, word >> (i + 8));
    }
    row += 64;
  }
  even = _mm512_maskz_min_pd(0xff, even, odd);
  return least_of(_mm256_min_pd(half_of(even, false), half_of(even, true)));
}
__attribute__((target("avx512f,avx512bw"))) inline void at_most_avx512(
    const float* row, float bound, std::span<const std::uint64_t> among,
    std::uint64_t* found) noexcept {
  const __m512 most = _mm512_set1_ps(bound);
  const auto lanes = [&](std::size_t i) __attribute__((target("avx512f,avx512bw"))) {
    return __mmask32{_mm512_cmp_ps_mask(_mm512_loadu_ps(row + i), most, _CMP_LE_OQ)};
  };
  for (const auto word : among) {
    const __mmask32 low = _mm512_kunpackw(lanes(16), lanes(0));
    const __mmask32 high = _mm512_kunpackw(lanes(48), lanes(32));
    *found++ = _mm512_kunpackd(high, low) & word;
    row += 64;
  }
}
__attribute__((target("avx512f,avx512bw"))) inline void at_most_avx512(
    const double* row, double bound, std::span<const std::uint64_t> among,
    std::uint64_t* found) noexcept {
  const __m512d most = _mm512_set1_pd(bound);
  const auto lanes = [&](std::size_t i) __attribute__((target("avx512f,avx512bw"))) {
    return __mmask16{_mm512_cmp_pd_mask(_mm512_loadu_pd(row + i), most, _CMP_LE_OQ)};
  };
  for (const auto word : among) {
    std::uint64_t out = 0;
    for (std::size_t i = 0; i < 64 && word >> i != 0; i += 16)
      out |= std::uint64_t{_mm512_kunpackb(lanes(i + 8), lanes(i))} << i;
    *found++ = out & word;
    row += 64;
  }
}

// One call for the least and what is as low: rows are short, and the next question waits for the answer.

template <class T, class BoundOf>
__attribute__((target("avx2"))) T lowest_avx2(const T* row, std::span<const std::uint64_t> among,
                                              std::uint64_t* found, BoundOf bound_of) noexcept {
  const T least = least_avx2(row, among);
  at_most_avx2(row, bound_of(least), among, found);
  return least;
}
template <class T, class BoundOf>
__attribute__((target("avx512f,avx512bw"))) T lowest_avx512(const T* row,
                                                            std::span<const std::uint64_t> among,
                                                            std::uint64_t* found,
                                                            BoundOf bound_of) noexcept {
  const T least = least_avx512(row, among);
  at_most_avx512(row, bound_of(least), among, found);
  return least;
}

/// The values of half a word, infinity for what is not named: they stay where they are until they are compared.
struct half_word {
  __m512d part[4];
};
__attribute__((target("avx512f"))) inline half_word named_avx512(const double* row,
                                                                 std::uint64_t among) noexcept {
  const __m512d absent = _mm512_set1_pd(std::numeric_limits<double>::infinity());
  half_word out;
  for (unsigned i = 0; i < 4; ++i)
    out.part[i] = _mm512_mask_loadu_pd(absent, static_cast<__mmask8>(among >> i * 8), row + i * 8);
  return out;
}
__attribute__((target("avx512f"))) inline __m512d least_avx512(const half_word& half) noexcept {
  const __m512d low = _mm512_maskz_min_pd(0xff, half.part[0], half.part[1]);
  const __m512d high = _mm512_maskz_min_pd(0xff, half.part[2], half.part[3]);
  return _mm512_maskz_min_pd(0xff, low, high);
}
__attribute__((target("avx512f"))) inline std::uint64_t at_most_avx512(const half_word& half,
                                                                       __m512d most) noexcept {
  std::uint64_t out = 0;
  for (unsigned i = 0; i < 4; ++i)
    out |= std::uint64_t{_mm512_cmp_pd_mask(half.part[i], most, _CMP_LE_OQ)} << i * 8;
  return out;
}
/// Halves are looked at whole: how many values one has is nothing that could be foretold.
template <class BoundOf>
__attribute__((target("avx512f"))) std::uint64_t lowest_avx512(const double* row,
                                                               std::uint64_t among,
                                                               BoundOf bound_of) noexcept {
  const auto near = named_avx512(row, among);
  if (among >> 32U == 0) {
    const __m512d eight = least_avx512(near);
    const double least = least_of(_mm256_min_pd(half_of(eight, false), half_of(eight, true)));
    return at_most_avx512(near, _mm512_set1_pd(bound_of(least)));
  }
  const auto far = named_avx512(row + 32, among >> 32U);
  const __m512d eight = _mm512_maskz_min_pd(0xff, least_avx512(near), least_avx512(far));
  const double least = least_of(_mm256_min_pd(half_of(eight, false), half_of(eight, true)));
  const __m512d most = _mm512_set1_pd(bound_of(least));
  return at_most_avx512(near, most) | at_most_avx512(far, most) << 32U;
}
#endif

}  // namespace detail

/// Words of a set of so many.
[[nodiscard]] constexpr std::size_t words_for(std::size_t size) noexcept {
  return (size + 63) / 64;
}

/// The least of the values of a row that `among` names, infinity where it names none; `found` becomes those of them that are no greater
/// than bound_of(it). Shapes: row [64 * words], may end in values that are never named; among, found [words], a bit a value.
/// Pre: no NaN among them. Complexity: O(words), vectorised.
template <class T, class BoundOf>
T lowest_values(const T* row, std::span<const std::uint64_t> among, std::uint64_t* found,
                BoundOf bound_of, [[maybe_unused]] vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level == vector_level::avx512) return detail::lowest_avx512(row, among, found, bound_of);
  if (level == vector_level::avx2) return detail::lowest_avx2(row, among, found, bound_of);
#endif
  const T least = detail::least_scalar(row, among);
  detail::at_most_scalar(row, bound_of(least), among, found);
  return least;
}

/// Of 64 values at most: those of `among` that are no greater than bound_of(the least of them), a bit each. Shape: row [64], may end
/// in values that are never named. Pre: no NaN among them; bound_of gives less than infinity. Complexity: O(1), vectorised.
template <class BoundOf>
std::uint64_t lowest_of_word(const double* row, std::uint64_t among, BoundOf bound_of,
                             vector_level level) noexcept {
#if HOTSET_X86_VECTORS
  if (level == vector_level::avx512) return detail::lowest_avx512(row, among, bound_of);
#endif
  std::uint64_t found = 0;
  lowest_values(row, std::span(&among, 1), &found, bound_of, level);
  return found;
}

}  // namespace hotset
