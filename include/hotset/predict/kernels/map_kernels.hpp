// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Dot products of one layer's stored maps with a token's row, and the best of them.
///
/// Maps lie in blocks of 32: for each expert the 32 maps' values side by side. Each vector lane is a map; no
/// operation adds across lanes.
/// Promise: every level adds the same products in the same order with fused operations. All levels return the same
///       bits, and so the same place.

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/platform/in_vectors.hpp"

namespace hotset {

/// Storage format of probabilities.
enum class map_storage : std::uint8_t { fp32, fp16, int8 };

namespace map_kernels {

inline constexpr std::size_t lanes = 32;  ///< maps of a block

/// Maps of one layer, or whole blocks of them. Shape: [blocks, experts, 32].
struct slice {
  const std::byte* maps = nullptr;
  const float* steps = nullptr;  ///< for int8: [blocks, 32], the value of code 1
  std::size_t blocks = 0;
  std::size_t experts = 0;
};

/// Exact for finite halves that are not negative.
[[nodiscard]] inline float from_half(std::uint16_t half) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 13U) * 0x1p112F;
}
/// Rounds to nearest, ties to even. Pre: 0 <= value <= 1.
[[nodiscard]] inline std::uint16_t to_half(float value) noexcept {
  if (value < 0x1p-14F)  // 0.5 has the same unit in the last place as the smallest halves
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value + 0.5F) - 0x3f000000U);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0xfffU + ((bits >> 13U) & 1U) - 0x38000000U) >> 13U);
}

/// A place and its score.
struct best_of {
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  float score = -std::numeric_limits<float>::infinity();
  std::uint32_t place = none;
};

namespace detail {

using block_of_floats = std::array<float, lanes>;

inline float value_of(float value) noexcept { return value; }
inline float value_of(std::uint16_t half) noexcept { return from_half(half); }
inline float value_of(std::uint8_t code) noexcept { return static_cast<float>(code); }

template <class Element>
void fuse(const Element* maps, float by, block_of_floats& sums) noexcept {
  for (std::size_t lane = 0; lane < lanes; ++lane)
    sums[lane] = std::fma(value_of(maps[lane]), by, sums[lane]);
}
/// Adds two blocks side by side: one alone would wait for the latency of each addition.
template <class Element>
void add_dots(const slice& maps, const float* row, float* sums) noexcept {
  const auto* at = reinterpret_cast<const Element*>(maps.maps);
  for (std::size_t b = 0; b < maps.blocks; ++b, sums += lanes) {
    block_of_floats even{};
    block_of_floats odd{};
    std::size_t e = 0;
    for (; e + 2 <= maps.experts; e += 2, at += 2 * lanes) {
      fuse(at, row[e], even);
      fuse(at + lanes, row[e + 1], odd);
    }
    if (e < maps.experts) {
      fuse(at, row[e], even);
      at += lanes;
    }
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const float sum = even[lane] + odd[lane];
      if constexpr (sizeof(Element) == 1)
        sums[lane] = std::fma(sum, maps.steps[b * lanes + lane], sums[lane]);
      else
        sums[lane] += sum;
    }
  }
}

/// Each of 16 lanes keeps its first best place; the best lane wins.
inline void take_best(const float* sums, const float* weights, std::size_t first, std::size_t count,
                      best_of& best) noexcept {
  std::array<float, lanes / 2> scores;
  scores.fill(best.score);
  std::array<std::uint32_t, lanes / 2> places;
  places.fill(best_of::none);
  for (std::size_t i = 0; i < count; i += scores.size())
    for (std::size_t lane = 0; lane < scores.size(); ++lane) {
      const float score = sums[i + lane] * weights[i + lane];
      const bool is_better = score > scores[lane];
      scores[lane] = is_better ? score : scores[lane];
      places[lane] = is_better ? static_cast<std::uint32_t>(first + i) : places[lane];
    }
  for (std::size_t lane = 0; lane < scores.size(); ++lane) {
    if (places[lane] == best_of::none) continue;
    const auto place = static_cast<std::uint32_t>(places[lane] + lane);
    if (scores[lane] > best.score || (scores[lane] == best.score && place < best.place))
      best = {scores[lane], place};
  }
}

}  // namespace detail

/// sums[m] += dot product of map m with the row.
/// Pre: this processor has `level`. Shapes: row is [experts], sums [blocks, 32].
inline void add_dots(vector_level level, map_storage storage, const slice& maps,
                     std::span<const float> row, float* sums) noexcept {
  hotset::detail::in_vectors(level, [&] {
    if (storage == map_storage::fp32)
      detail::add_dots<float>(maps, row.data(), sums);
    else if (storage == map_storage::fp16)
      detail::add_dots<std::uint16_t>(maps, row.data(), sums);
    else
      detail::add_dots<std::uint8_t>(maps, row.data(), sums);
  });
}

/// Replaces `best` by the highest sums[i] x weights[i], whose place is first + i, if that is higher; ties go to the
/// lowest place. Sums of minus infinity and NaN never win. Pre: that of add_dots; `blocks` < 2^28.
inline void take_best(vector_level level, const float* sums, const float* weights,
                      std::size_t first, std::size_t blocks, best_of& best) noexcept {
  hotset::detail::in_vectors(
      level, [&] { detail::take_best(sums, weights, first, blocks * lanes, best); });
}

}  // namespace map_kernels

}  // namespace hotset
