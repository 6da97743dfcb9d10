// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a miss policy is told of an expert without a usable slot, and what it can decide.

#include <cstdint>
#include <limits>
#include <span>

#include "hotset/core/ids.hpp"

namespace hotset {

/// One distinct expert of a visit that is not resident, or resident below the highest precision.
struct miss {
  static constexpr precision_id absent = precision_id{std::numeric_limits<std::uint8_t>::max()};

  expert_id expert = no_expert;
  std::uint32_t uses = 0;  ///< routed places that name it
  std::uint16_t rank = 0;  ///< best rank that a token gave it
  float weight = 1.0F;     ///< largest gate weight that a token gave it; 1 if the engine has none
  precision_id held = absent;  ///< the precision of its resident copy
};

/// What becomes of it.
enum class miss_action : std::uint8_t {
  fetch,       ///< copy it at `precision`
  keep,        ///< use the resident copy; only if there is one
  host,        ///< the engine computes it from the host's copy
  drop,        ///< no token of the visit uses it
  substitute,  ///< the policy has written other experts in its places
};

/// What becomes of one miss.
struct miss_decision {
  miss_action action = miss_action::fetch;
  precision_id precision{};  ///< of a fetch
};

/// What is resident of the visit's layer, as it was before the visit.
struct residency_view {
  std::span<const slot_id> row{};  ///< [experts]; no_slot for what is absent
  /// Slots that were freed for the visit ahead of it, or are free anyway; -1: nobody frees any ahead of it.
  std::int32_t free_slots = -1;
};

}  // namespace hotset
