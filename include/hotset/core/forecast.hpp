// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The visits after the running one: what a predictor expects of them, and what a prefetcher asks for.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"

namespace hotset {

/// Input of a prefetcher. Owns nothing; empty parts mean: not known.
struct forecast {
  /// [tokens * depth * experts], of the next `depth` layers.
  std::span<const float> probabilities{};
  std::int32_t depth = 0;
  /// [tokens], 0..1: how sure the predictor is of a token's rows.
  std::span<const float> confidence{};
  /// The distinct experts of the next visit in routed order. Only a simulator knows them.
  id_view<expert_id> truth{};
  layer_id truth_layer{};
  step_id truth_step = 0;

  /// Tokens, if a layer has so many experts; 0 if the probabilities are not those of whole tokens.
  [[nodiscard]] std::size_t tokens(std::size_t experts) const noexcept {
    if (depth < 1) return 0;
    const auto of_token = static_cast<std::size_t>(depth) * experts;
    const auto count = probabilities.size() / of_token;
    return count * of_token == probabilities.size() ? count : 0;
  }
  /// Shape: [experts]. Pre: token < tokens(experts), 0 <= ahead < depth.
  [[nodiscard]] std::span<const float> row(std::size_t token, std::int32_t ahead,
                                           std::size_t experts) const noexcept {
    const auto at = token * static_cast<std::size_t>(depth) + static_cast<std::size_t>(ahead);
    return probabilities.subspan(at * experts, experts);
  }
  /// Calls use(layer, ahead) for each layer that it is of and that follows `running` in the step, of a model with so many
  /// layers of so many experts.
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
  /// Writes the largest probability that a token gives each expert. Shape: [experts].
  void write_most(std::int32_t ahead, std::span<float> to) const noexcept {
    std::ranges::fill(to, 0.0F);
    for (std::size_t t = 0; t < tokens(to.size()); ++t) {
      const auto own = row(t, ahead, to.size());
      for (std::size_t e = 0; e < to.size(); ++e) to[e] = std::max(to[e], own[e]);
    }
  }
};

/// The part of a forecast that a prefetcher requires.
enum class forecast_need : std::uint8_t { nothing, probabilities, truth };

/// One expert that may be needed soon. Lists of requests are best first.
struct prefetch_request {
  expert_key key{};
  step_id for_step = 0;      ///< the step whose visit of key.layer it is meant for
  float probability = 1.0F;  ///< the predictor's own
};

/// Residents that a speculative fill may evict.
enum class prefetch_guard : std::uint8_t {
  none,   ///< whatever the eviction policy picks
  named,  ///< no key with an outstanding request, and none that an open visit reads
  predicted,  ///< as `named`, and no key that is expected at least as likely, in the same visit or a sooner one
};

}  // namespace hotset
