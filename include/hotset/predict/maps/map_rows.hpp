// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The rows of several tokens as the kernels read them: values, and for 8-bit maps codes of two digits.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/predict/kernels/map_kernels.hpp"

namespace hotset {

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
