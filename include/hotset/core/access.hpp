// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a policy is told of one use of one expert, and of the visit it belongs to.

#include <cstddef>
#include <cstdint>

#include "hotset/core/ids.hpp"

namespace hotset::inline v0 {

/// One distinct expert of one visit.
struct access {
  expert_key key{};
  slot_id slot = no_slot;  ///< no_slot for a bypass
  pool_id pool{};
  step_id step = 0;
  std::uint64_t ordinal = 0;  ///< position of the visit in the trace, for offline policies
  std::uint16_t rank = 0;     ///< best rank that a token of the visit gave it
  double weight = 0;  ///< sum of the gate weights that the visit's tokens give it, in routed order
  precision_id precision{};
  request_class kind = request_class::decode;
  bool speculative = false;  ///< prefetched, not routed
  bool repeated = false;     ///< counted already in an earlier token group of the same visit
};

/// What a policy knows when it is asked to choose.
struct visit_context {
  layer_id layer{};  ///< the running one; before_layers while a step has not reached its first
  pool_id pool{};
  step_id step = 0;
  std::uint64_t ordinal = 0;
  request_class kind = request_class::decode;
  bool speculative = false;  ///< asked for the victim of a prefetch
  std::size_t free = 0;      ///< slots of the pool that hold nothing; for admission only
};

}  // namespace hotset::inline v0
