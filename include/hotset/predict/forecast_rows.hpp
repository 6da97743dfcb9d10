// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rows of a forecast that a predictor writes itself: for each token one row per layer ahead.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"

namespace hotset::detail {

/// Nothing allocates after construction. Threads: compatible.
class forecast_rows {
 public:
  /// Pre: shape.validate() returns no error, depth >= 1.
  forecast_rows(const geometry& shape, std::int32_t depth)
      : layers_(shape.layer_count()),
        experts_(shape.expert_count()),
        depth_(static_cast<std::size_t>(depth)),
        rows_(shape.tokens_per_visit() * depth_ * experts_) {}

  /// Pre: those of the constructor, and depth <= layers: no product wraps.
  static std::uint64_t bytes_for(const geometry& shape, std::int32_t depth) noexcept {
    return 4 * static_cast<std::uint64_t>(shape.max_tokens_per_visit) *
           static_cast<std::uint64_t>(depth) * static_cast<std::uint64_t>(shape.experts);
  }

  /// Layers ahead.
  [[nodiscard]] std::size_t depth() const noexcept { return depth_; }
  /// Shape: [experts]. Pre: token < tokens_per_visit, ahead < depth(); 0 is the next layer.
  [[nodiscard]] std::span<float> row(std::size_t token, std::size_t ahead) noexcept {
    return std::span(rows_).subspan((token * depth_ + ahead) * experts_, experts_);
  }
  /// Calls write(layer, ahead, row) for each layer after the running one; rows of layers past the last become zeros.
  template <class Write>
  void write(std::size_t token, layer_id running, Write write) noexcept {
    for (std::size_t ahead = 0; ahead < depth_; ++ahead) {
      const auto layer = layers_until(running) + ahead;
      if (layer < layers_)
        write(static_cast<layer_id>(layer), ahead, row(token, ahead));
      else
        std::ranges::fill(row(token, ahead), 0.0F);
    }
  }
  /// Forecast of the first `tokens` tokens; valid until the rows are written again. Shape of confidence: [tokens] or
  /// more, or empty.
  [[nodiscard]] forecast of(std::size_t tokens,
                            std::span<const float> confidence = {}) const noexcept {
    forecast out;
    out.probabilities = std::span(rows_).first(tokens * depth_ * experts_);
    out.depth = static_cast<std::int32_t>(depth_);
    out.confidence = confidence.first(std::min(tokens, confidence.size()));
    return out;
  }

 private:
  std::size_t layers_;
  std::size_t experts_;
  std::size_t depth_;
  std::vector<float> rows_;  ///< [tokens, depth, experts]
};

}  // namespace hotset::detail
