// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rows of probabilities: what is one, and several of them as the kernels read them: values, and for 8-bit maps codes of two
/// digits.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/router_scores.hpp"
#include "hotset/predict/kernels/map_kernels.hpp"

namespace hotset {

/// Whether a row is a router's probabilities, and how it becomes one that sums to 1.
namespace probability_row {

/// How far from 1 the sum of a row may be: the softmax of half precision, bfloat16 too, is nearer.
inline constexpr double tolerance = 0.01;

/// Returns the sum of the row, or 0 where it has a value that is negative or no number, or where the sum is not 1
/// within the tolerance.
[[nodiscard]] inline double sum_of(std::span<const float> row) noexcept {
  double sum = 0;
  for (const auto p : row) {
    if (!(p >= 0.0F)) return 0;
    sum += static_cast<double>(p);
  }
  return std::abs(sum - 1.0) <= tolerance ? sum : 0;
}
/// Writes the row divided by its sum. Returns false for what is no such row: zeros then. `row` and `out` may be the same.
inline bool normalise(std::span<const float> row, std::span<float> out) noexcept {
  const auto sum = sum_of(row);
  for (std::size_t e = 0; e < row.size(); ++e)
    out[e] = sum > 0 ? static_cast<float>(static_cast<double>(row[e]) / sum) : 0.0F;
  return sum > 0;
}
/// Returns false where no score is finite, or one is no number or plus infinity: zeros then.
inline bool softmax(std::span<const float> scores, std::span<float> out) noexcept {
  constexpr auto infinity = std::numeric_limits<float>::infinity();
  if (!std::ranges::all_of(scores, [](float s) { return s < infinity; })) {
    std::ranges::fill(out, 0.0F);
    return false;
  }
  hotset::softmax(scores, out);
  return std::ranges::any_of(out, [](float p) { return p > 0; });
}

}  // namespace probability_row

/// A coded row is never below the row itself. Nothing allocates after construction.
class map_rows {
 public:
  map_rows() = default;
  map_rows(std::size_t tokens, std::size_t experts, bool coded)
      : experts_(experts),
        words_(map_kernels::slice{.experts = experts}.words()),
        values_(tokens * experts),
        abreast_(coded ? 0 : eights(tokens) * experts),
        high_(coded ? eights(tokens) * words_ : 0),
        low_(high_.size()),
        steps_(coded ? tokens : 0) {}

  /// Of one token; a few more take up as much as eight.
  [[nodiscard]] static std::uint64_t bytes_for(std::uint64_t experts, bool coded) noexcept {
    return 4 * experts + (coded ? 4 + 8 * ((experts + 3) / 4) : 4 * experts);
  }

  /// To be written, and then `code`d. Shape: [experts].
  [[nodiscard]] std::span<float> row(std::size_t token) noexcept {
    return std::span(values_).subspan(token * experts_, experts_);
  }
  [[nodiscard]] std::span<const float> row(std::size_t token) const noexcept {
    return std::span(values_).subspan(token * experts_, experts_);
  }
  /// Takes over what `row(token)` now holds.
  void code(std::size_t token) noexcept {
    using namespace map_kernels;
    if (steps_.empty()) {
      auto* const values = &abreast_[row_begin(token, experts_)];
      for (std::size_t e = 0; e < experts_; ++e) values[e * abreast] = row(token)[e];
      return;
    }
    auto* const high = &high_[row_begin(token, words_)];
    auto* const low = &low_[row_begin(token, words_)];
    for (std::size_t w = 0; w < words_; ++w) high[w * abreast] = low[w * abreast] = 0;
    steps_[token] =
        code_up(row(token).data(), experts_, most_row_code, [&](std::size_t e, int code) {
          const auto shift = static_cast<int>(8 * (e % codes_in_word));
          high[e / codes_in_word * abreast] |= (code / 64) << shift;
          low[e / codes_in_word * abreast] |= (code % 64) << shift;
        });
  }
  /// The first `tokens` rows.
  [[nodiscard]] map_kernels::rows first(std::size_t tokens) const noexcept {
    return {abreast_.data(), high_.data(), low_.data(), steps_.data(), tokens};
  }

 private:
  /// Tokens, filled up to a multiple of eight.
  static std::size_t eights(std::size_t tokens) noexcept {
    return (tokens + map_kernels::abreast - 1) / map_kernels::abreast * map_kernels::abreast;
  }

  std::size_t experts_ = 0;
  std::size_t words_ = 0;
  aligned_vector<float> values_;       ///< [tokens, experts]
  aligned_vector<float> abreast_;      ///< [eights, experts, 8], where there are no codes
  aligned_vector<std::int32_t> high_;  ///< [eights, words, 8]
  aligned_vector<std::int32_t> low_;   ///< [eights, words, 8]
  aligned_vector<float> steps_;        ///< [tokens]
};

}  // namespace hotset
