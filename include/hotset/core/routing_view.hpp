// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What one layer routed in one forward pass; a view that owns nothing.

#include <cstdint>
#include <span>

#include "hotset/core/ids.hpp"

namespace hotset::inline v0 {

/// Arrays are row-major over tokens. Empty means: the engine does not have it.
struct routing_view {
  layer_id layer = 0;
  step_id step = 0;
  request_class kind = request_class::decode;
  std::span<const expert_id>
      experts{};  ///< [tokens * top_k], rank order per token, may repeat, may hold -1
  std::span<const float> weights{};        ///< [tokens * top_k]
  std::span<const float> logits{};         ///< [tokens * experts], before softmax or sigmoid
  std::span<const float> probabilities{};  ///< [tokens * experts]
  std::span<const float> hidden{};         ///< [tokens * d_model], only if a policy asked
  std::uint64_t ordinal = 0;  ///< position of this visit in a trace, for offline policies
};

}  // namespace hotset::inline v0
