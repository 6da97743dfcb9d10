// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The context of a visit, and the events that policies receive.

#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/fill.hpp"
#include "hotset/core/ids.hpp"

namespace hotset {

/// Identifies the visit for which a policy decides.
struct visit_context {
  layer_id layer{};  ///< the running layer; before_layers before the first layer of a step
  pool_id pool{};
  step_id step = 0;
  std::uint64_t ordinal = 0;
  request_class kind = request_class::decode;
  bool speculative = false;  ///< the victim is for a prefetch
  std::size_t free = 0;      ///< free slots of the pool; for admission only
};

/// An expert that a visit uses without a slot.
struct bypassed_use {
  expert_id expert = no_expert;
  double weight = 0;  ///< as visit_event::weights
};

/// The uses of one pool in one visit. A visit of several precisions is one event for each pool that it uses; `begins`
/// is true for the first. Each group of a split visit counts as a visit of its own. The spans are valid during the
/// call.
struct visit_event {
  const visit_context& context;
  /// Distinct slots in order of last use.
  std::span<const slot_id> used{};
  /// The visit's copies, in the order of `used`, which contains their slots. Each copy evicts its `victim`; on_evict
  /// is not called for it.
  std::span<const fill> fills{};
  /// The expert in each slot of `used`, all in `context.layer`.
  std::span<const expert_id> experts{};
  /// [used] Sum of the gate weights that the visit's tokens give each expert, in routed order. Empty unless the policy
  /// needs weights.
  std::span<const double> weights{};
  /// Bypassed experts in order of last use. Reported once a visit, with its first event.
  std::span<const bypassed_use> bypassed{};
  /// [experts of a layer] 1 if an earlier group of the visit used the expert. Empty: none did.
  std::span<const std::uint8_t> counted{};
  precision_id precision{};
  bool begins = true;

  /// True if an earlier group of the visit used the expert. Policies count a visit's use once.
  [[nodiscard]] bool repeats(expert_id expert) const noexcept {
    return !counted.empty() && counted[index_of(expert)] != 0;
  }
  [[nodiscard]] double weight(std::size_t i) const noexcept {
    return weights.empty() ? 0.0 : weights[i];
  }
  [[nodiscard]] expert_key key(expert_id expert) const noexcept { return {context.layer, expert}; }
  /// Calls use(i, is_filled) for each slot of `used`, in order.
  template <class Use>
  void each_use(Use use) const noexcept {
    std::size_t filled = 0;
    for (std::size_t i = 0; i < used.size(); ++i) {
      const bool is_filled = filled < fills.size() && fills[filled].slot == used[i];
      filled += is_filled ? 1U : 0U;
      use(i, is_filled);
    }
  }
};

/// A copy made for a prefetcher or a warm start, or a resident expert that a prefetcher requested.
struct prefetch_event {
  expert_key key{};
  slot_id slot = no_slot;
  pool_id pool{};
  step_id step = 0;           ///< step of the expected visit
  std::uint64_t ordinal = 0;  ///< ordinal of the running or last visit, for offline policies
  precision_id precision{};
};

/// One distinct expert of one visit, as reported to an admission policy.
struct expert_use {
  expert_key key{};
  slot_id slot = no_slot;  ///< no_slot for a bypass
  pool_id pool{};
  step_id step = 0;
  std::uint64_t ordinal = 0;  ///< position of the visit in the trace, for offline policies
  /// Sum of the gate weights that the visit's tokens give it, in routed order; 0 unless the eviction policy needs them.
  double weight = 0;
  precision_id precision{};
  request_class kind = request_class::decode;
  bool speculative = false;  ///< prefetched, not routed
  bool repeated = false;     ///< counted in an earlier token group of the same visit
};

}  // namespace hotset
