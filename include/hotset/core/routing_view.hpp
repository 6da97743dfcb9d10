// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Views of one visit: its routing, its residents, and a decision for each miss. Views own nothing.

#include <cstdint>
#include <limits>
#include <span>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"

namespace hotset {

/// Arrays are row-major over tokens. An empty array means that the engine does not have it. A view with layer
/// before_layers opens a step: token ids and sequences are set, and nothing is routed yet.
struct routing_view {
  layer_id layer{};
  step_id step = 0;
  request_class kind = request_class::decode;
  /// [tokens * top_k], in rank order for each token; may repeat, may hold -1.
  id_view<expert_id> experts{};
  std::span<const float> weights{};        ///< [tokens * top_k]
  std::span<const float> logits{};         ///< [tokens * experts], before softmax or sigmoid
  std::span<const float> probabilities{};  ///< [tokens * experts]
  std::span<const float> hidden{};         ///< [tokens * d_model], only if a policy needs it
  std::uint64_t ordinal = 0;  ///< position of this visit in a trace, for offline policies
  /// [tokens * top_k], the router's selection before a routing policy changed `experts`. Empty: `experts`.
  id_view<expert_id> router_choice{};
  std::span<const std::int32_t> token_ids{};  ///< [tokens], in the model's vocabulary
  std::span<const sequence_id> sequences{};   ///< [tokens]; empty: one sequence

  /// The router's selection before any routing policy.
  [[nodiscard]] id_view<expert_id> chosen() const noexcept {
    return router_choice.empty() ? experts : router_choice;
  }
};

/// One distinct expert of a visit that is absent, or resident below the highest precision.
struct miss {
  static constexpr precision_id absent = precision_id{std::numeric_limits<std::uint8_t>::max()};

  expert_id expert = no_expert;
  std::uint32_t uses = 0;  ///< number of routed places with this expert
  std::uint16_t rank = 0;  ///< best rank that any token gave it
  /// Largest gate weight that any token gave it; 1 if the engine has no weights.
  float weight = 1.0F;
  precision_id held = absent;  ///< the precision of its resident copy
};

/// The way a miss is served.
enum class miss_action : std::uint8_t {
  fetch,       ///< copy it at `precision`
  keep,        ///< use the resident copy; only if there is one
  host,        ///< the engine computes it from the copy in host memory
  drop,        ///< no token of the visit uses it
  substitute,  ///< the policy has written other experts into its places
};

/// The decision for one miss.
struct miss_decision {
  miss_action action = miss_action::fetch;
  precision_id precision{};  ///< precision of a fetch
};

/// Residents of the visit's layer before the visit.
struct residency_view {
  std::span<const slot_id> row{};  ///< [experts]; no_slot for absent experts
  /// Number of free slots, including those that were freed ahead of this visit; -1 if slots are not freed ahead.
  std::int32_t free_slots = -1;
};

}  // namespace hotset
