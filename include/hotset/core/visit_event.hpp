// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The context of a visit, and the events that tell policies of it.

#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/fill.hpp"
#include "hotset/core/ids.hpp"

namespace hotset {

/// Names the visit for which a policy chooses.
struct visit_context {
  layer_id layer{};  ///< the running one; before_layers while a step has not reached its first
  pool_id pool{};
  step_id step = 0;
  std::uint64_t ordinal = 0;
  request_class kind = request_class::decode;
  bool speculative = false;  ///< asked for the victim of a prefetch
  std::size_t free = 0;      ///< slots of the pool that hold nothing; for admission only
};

/// An expert that a visit uses without a slot.
struct bypassed_use {
  expert_id expert = no_expert;
  double weight = 0;  ///< as visit_event::weights
};

/// A visit's uses in one pool. A visit of several precisions is one event for each pool that it uses; `begins` is true
/// of the first. A group of a split visit is a visit of its own.
/// The spans hold during the call.
struct visit_event {
  const visit_context& context;
  /// Distinct slots, in the order of their last use.
  std::span<const slot_id> used{};
  /// The visit's copies, in the order of `used`, which holds their slots. A copy evicts `victim`; no other call tells of
  /// that.
  std::span<const fill> fills{};
  /// The expert in each of `used`; all are of `context.layer`.
  std::span<const expert_id> experts{};
  /// For each of `used` the sum of the gate weights that the visit's tokens give it, in routed order. Empty unless the
  /// policy needs weights.
  std::span<const double> weights{};
  /// In the order of their last use. Told once a visit, with its first event.
  std::span<const bypassed_use> bypassed{};
  /// [experts of a layer] 1 for those that an earlier group of the same visit used. Empty: none.
  std::span<const std::uint8_t> counted{};
  precision_id precision{};
  bool begins = true;

  /// True if an earlier group of the visit has used the expert: a visit counts once.
  [[nodiscard]] bool repeats(expert_id expert) const noexcept {
    return !counted.empty() && counted[index_of(expert)] != 0;
  }
  [[nodiscard]] double weight(std::size_t i) const noexcept {
    return weights.empty() ? 0.0 : weights[i];
  }
  [[nodiscard]] expert_key key(expert_id expert) const noexcept { return {context.layer, expert}; }
  /// Calls use(i, is_filled) for each of `used`, in order.
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

/// A copy of an expert that a prefetcher or a warm start brought, or a resident one that a prefetcher asked for.
struct prefetch_event {
  expert_key key{};
  slot_id slot = no_slot;
  pool_id pool{};
  step_id step = 0;           ///< of the visit that it is meant for
  std::uint64_t ordinal = 0;  ///< of the visit that runs, or is over: for offline policies
  precision_id precision{};
};

/// One distinct expert of one visit, as an admission policy hears of it.
struct expert_use {
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

}  // namespace hotset
