// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Forecasts of later visits: the output of a predictor, and the requests of a prefetcher.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"

namespace hotset {

/// Input of a prefetcher. Owns nothing. An empty member is unknown.
struct forecast {
  /// [tokens * depth * experts]: probabilities in the next `depth` layers.
  std::span<const float> probabilities{};
  std::int32_t depth = 0;
  /// [tokens], 0..1: the predictor's confidence in the rows of a token.
  std::span<const float> confidence{};
  /// Distinct experts of the next visit, in routed order. Only a simulator knows them.
  id_view<expert_id> truth{};
  layer_id truth_layer{};
  step_id truth_step = 0;

  /// Number of tokens for layers of `experts` experts. 0 if the probabilities do not divide into whole tokens.
  [[nodiscard]] std::size_t tokens(std::size_t experts) const noexcept {
    if (depth < 1) return 0;
    const auto of_token = static_cast<std::size_t>(depth) * experts;
    const auto count = probabilities.size() / of_token;
    return count * of_token == probabilities.size() ? count : 0;
  }
  /// Probabilities of one token in the layer `ahead + 1` after the running one. Shape: [experts]. Pre: token <
  /// tokens(experts), 0 <= ahead < depth.
  [[nodiscard]] std::span<const float> row(std::size_t token, std::int32_t ahead,
                                           std::size_t experts) const noexcept {
    const auto at = token * static_cast<std::size_t>(depth) + static_cast<std::size_t>(ahead);
    return probabilities.subspan(at * experts, experts);
  }
  /// Calls use(layer, ahead) for each layer that the forecast covers and that follows `running` in the step. `layers`
  /// and `experts`: the model's counts.
  template <class Use>
  void each_layer(layer_id running, std::size_t layers, std::size_t experts,
                  Use use) const noexcept {
    if (tokens(experts) == 0) return;
    for (std::int32_t ahead = 0; ahead < depth; ++ahead) {
      const auto layer = running + 1 + ahead;
      if (index_of(layer) >= layers) return;
      use(layer, ahead);
    }
  }
  /// Writes each expert's largest probability over all tokens. Shape: [experts].
  void write_most(std::int32_t ahead, std::span<float> to) const noexcept {
    std::ranges::fill(to, 0.0F);
    for (std::size_t t = 0; t < tokens(to.size()); ++t) {
      const auto own = row(t, ahead, to.size());
      for (std::size_t e = 0; e < to.size(); ++e) to[e] = std::max(to[e], own[e]);
    }
  }
};

/// The forecast member that a prefetcher requires.
enum class forecast_need : std::uint8_t { nothing, probabilities, truth };

/// A request to copy one expert ahead of its visit. Lists of requests are sorted best first.
struct prefetch_request {
  expert_key key{};
  step_id for_step = 0;      ///< the step in which the visit of key.layer is expected
  float probability = 1.0F;  ///< probability that the predictor gave it
};

/// Restricts the residents that a speculative copy may evict.
enum class prefetch_guard : std::uint8_t {
  none,       ///< any resident that the eviction policy selects
  named,      ///< no expert with an outstanding request, and none that an open visit reads
  predicted,  ///< as `named`, and no expert at least as likely in the same or a sooner visit
};

}  // namespace hotset
