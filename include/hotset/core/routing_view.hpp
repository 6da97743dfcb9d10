// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What one layer routed in one forward pass; a view that owns nothing.

#include <cstdint>
#include <span>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"

namespace hotset {

/// Arrays are row-major over tokens. Empty means: the engine does not have it.
/// A view of the layer before_layers opens a step: of its tokens their ids and sequences are known, and nothing is routed.
struct routing_view {
  layer_id layer{};
  step_id step = 0;
  request_class kind = request_class::decode;
  /// [tokens * top_k], rank order per token, may repeat, may hold -1.
  id_view<expert_id> experts{};
  std::span<const float> weights{};        ///< [tokens * top_k]
  std::span<const float> logits{};         ///< [tokens * experts], before softmax or sigmoid
  std::span<const float> probabilities{};  ///< [tokens * experts]
  std::span<const float> hidden{};         ///< [tokens * d_model], only if a policy asked
  std::uint64_t ordinal = 0;  ///< position of this visit in a trace, for offline policies
  /// [tokens * top_k], what the router chose where a routing policy has changed `experts`. Empty: `experts`.
  id_view<expert_id> router_choice{};
  std::span<const std::int32_t> token_ids{};  ///< [tokens], in the model's vocabulary
  std::span<const sequence_id> sequences{};   ///< [tokens]; empty: all are of one

  /// What the router chose by itself.
  [[nodiscard]] id_view<expert_id> chosen() const noexcept {
    return router_choice.empty() ? experts : router_choice;
  }
};

}  // namespace hotset
