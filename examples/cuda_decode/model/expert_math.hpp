// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Arithmetic of an expert with one fixed order of rounding for host and device: both give the same bits.
///
/// Rule: a sum over a row is kept by 32 lanes. Lane l takes the groups of 8 neighbours number l, l + 32, l + 64, ...,
///       and adds their products from left to right, each with one fused multiply-add; then lane i adds lane i + 16,
///       i + 8, i + 4, i + 2, i + 1. The result does not depend on the batch or the expert's slot.
/// All products are added with fmaf, so that a compiler's contraction cannot change a bit.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cuda_decode/model/numbers.hpp"
#include "hotset/core/platform/compiler.hpp"

namespace cuda_decode {

inline constexpr std::uint32_t sum_lanes = 32;
/// Neighbours that a lane takes at a time; every row length is a multiple.
inline constexpr std::uint32_t sum_group = 8;
inline constexpr float norm_epsilon = 1e-6F;
inline constexpr std::uint32_t norm_lanes = 256;

/// One matrix of one expert in a slot, row-major, with its scales if the format has them.
struct matrix_view {
  const std::byte* values = nullptr;
  const std::byte* scales = nullptr;
  std::uint32_t columns = 0;
  std::uint32_t block_rows = 1;  ///< rows that share a scale
  std::uint32_t block_columns = 1;
};

namespace detail {

template <class Word, std::size_t Count>
HOTSET_HOST_DEVICE inline void read_words(Word (&to)[Count], const std::byte* from) noexcept {
  std::memcpy(to, __builtin_assume_aligned(from, sizeof(to)), sizeof(to));
}
[[nodiscard]] HOTSET_HOST_DEVICE inline std::size_t scale_at(const matrix_view& m,
                                                             std::uint32_t row,
                                                             std::uint32_t column) noexcept {
  const std::uint32_t blocks = (m.columns + m.block_columns - 1) / m.block_columns;
  return static_cast<std::size_t>(row / m.block_rows) * blocks + column / m.block_columns;
}

}  // namespace detail

/// Dequantises 8 weights of `row`, starting at `column`. Pre: `column` is a multiple of 8.
template <number_format Format>
HOTSET_HOST_DEVICE inline void read_weights(const matrix_view& m, std::uint32_t row,
                                            std::uint32_t column,
                                            float (&out)[sum_group]) noexcept {
  const std::size_t first = static_cast<std::size_t>(row) * m.columns + column;
  if constexpr (Format == number_format::bf16 || Format == number_format::f16) {
    std::uint32_t words[4];
    detail::read_words(words, m.values + first * 2);
    for (std::uint32_t i = 0; i < sum_group; ++i) {
      const std::uint32_t bits = (words[i / 2] >> (16 * (i % 2))) & 0xffffU;
      out[i] = Format == number_format::bf16 ? from_bf16(bits) : from_f16(bits);
    }
  } else if constexpr (Format == number_format::e4m3) {
    std::uint32_t words[2];
    detail::read_words(words, m.values + first);
    float scale[1];
    detail::read_words(scale, m.scales + detail::scale_at(m, row, column) * sizeof(float));
    for (std::uint32_t i = 0; i < sum_group; ++i)
      out[i] = from_e4m3((words[i / 4] >> (8 * (i % 4))) & 0xffU) * scale[0];
  } else {
    std::uint32_t words[1];
    detail::read_words(words, m.values + first / 2);
    const float scale =
        from_e8m0(static_cast<std::uint32_t>(m.scales[detail::scale_at(m, row, column)]));
    for (std::uint32_t i = 0; i < sum_group; ++i)
      out[i] = from_e2m1((words[0] >> (4 * i)) & 0xfU) * scale;
  }
}

/// Lane `lane`'s part of the product of a row and `in`.
template <number_format Format>
[[nodiscard]] HOTSET_HOST_DEVICE inline float lane_sum(const matrix_view& m, std::uint32_t row,
                                                       const float* in,
                                                       std::uint32_t lane) noexcept {
  float sum = 0;
  for (std::uint32_t column = lane * sum_group; column < m.columns;
       column += sum_lanes * sum_group) {
    float weights[sum_group];
    read_weights<Format>(m, row, column, weights);
    for (std::uint32_t i = 0; i < sum_group; ++i) sum = fmaf(weights[i], in[column + i], sum);
  }
  return sum;
}

/// x / (1 + e^-x), by an own polynomial, because the exponentials of C libraries and devices differ.
[[nodiscard]] HOTSET_HOST_DEVICE inline float silu(float x) noexcept {
  const float y = fminf(fmaxf(-x, -80.0F), 80.0F);
  const float n = rintf(y * 1.44269504F);
  const float r = fmaf(n, -1.42860677e-6F, fmaf(n, -0.693145752F, y));  // y - n log 2, |r| < 0.35
  float e = 1.98756915e-4F;
  e = fmaf(e, r, 1.39819995e-3F);
  e = fmaf(e, r, 8.33345205e-3F);
  e = fmaf(e, r, 4.16657962e-2F);
  e = fmaf(e, r, 1.66666657e-1F);
  e = fmaf(e, r, 0.5F);
  e = fmaf(fmaf(e, r, 1.0F), r, 1.0F);
  const float power =
      float_of(static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127) << 23U);
  return x / fmaf(e, power, 1.0F);
}

/// Thread `lane`'s part of the sum of squares: places lane, lane + 256, ...; then lane i adds lane i + 128, + 64, ...
[[nodiscard]] HOTSET_HOST_DEVICE inline float lane_squares(const float* in, std::uint32_t size,
                                                           std::uint32_t lane) noexcept {
  float sum = 0;
  for (std::uint32_t i = lane; i < size; i += norm_lanes) sum = fmaf(in[i], in[i], sum);
  return sum;
}
[[nodiscard]] HOTSET_HOST_DEVICE inline float norm_scale(float squares,
                                                         std::uint32_t size) noexcept {
  return 1.0F / sqrtf(squares / static_cast<float>(size) + norm_epsilon);
}

}  // namespace cuda_decode
