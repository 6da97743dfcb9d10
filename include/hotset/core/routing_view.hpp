// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What one layer routed in one forward pass, what of it is resident, and what becomes of each miss. Views own nothing.

#include <cstdint>
#include <limits>
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

  /// The router's own choice.
  [[nodiscard]] id_view<expert_id> chosen() const noexcept {
    return router_choice.empty() ? experts : router_choice;
  }
};

/// One distinct expert of a visit that is not resident, or resident below the highest precision.
struct miss {
  static constexpr precision_id absent = precision_id{std::numeric_limits<std::uint8_t>::max()};

  expert_id expert = no_expert;
  std::uint32_t uses = 0;  ///< routed places that name it
  std::uint16_t rank = 0;  ///< best rank that a token gave it
  float weight = 1.0F;     ///< largest gate weight that a token gave it; 1 if the engine has none
  precision_id held = absent;  ///< the precision of its resident copy
};

/// How a miss is served.
enum class miss_action : std::uint8_t {
  fetch,       ///< copy it at `precision`
  keep,        ///< use the resident copy; only if there is one
  host,        ///< the engine computes it from the host's copy
  drop,        ///< no token of the visit uses it
  substitute,  ///< the policy has written other experts in its places
};

/// The decision for one miss.
struct miss_decision {
  miss_action action = miss_action::fetch;
  precision_id precision{};  ///< of a fetch
};

/// Residents of the visit's layer before the visit.
struct residency_view {
  std::span<const slot_id> row{};  ///< [experts]; no_slot for what is absent
  /// Slots that were freed for the visit ahead of it, or are free anyway; -1: none are freed ahead of it.
  std::int32_t free_slots = -1;
};

}  // namespace hotset
