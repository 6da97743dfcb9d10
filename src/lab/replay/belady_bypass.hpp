// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Offline optimum if a miss need not take a slot.
///
/// Rule: misses are served from transient slots outside the pool. Afterwards the pool keeps those of its residents
///       and of the visit's experts with the soonest next use. Ties: the more recently used one stays.
/// Source: Belady 1966 with bypassing.
/// Deviations: visits are never split: transient slots hold whatever does not fit; note() states their bytes.
/// Exact: yes (never changes what is computed). Offline: needs the trace beforehand.
/// Cost: time and memory of `belady`, which selects the victims, with a slot for every expert.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/eviction/belady.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/trace/future_uses.hpp"

namespace hotset::lab {

/// A bound for simulations, not a policy for engines: it counts, and has no slots to fill.
class belady_bypass {
 public:
  /// Errors: usage_error if the future is missing or belongs to another shape.
  belady_bypass(const pool_layout& layout, const belady::config& known);

  status visit(const routing_view& view);
  /// Whether the expert is resident between visits.
  [[nodiscard]] bool holds(expert_key key) const {
    return residents_.test(static_cast<slot_id>(roomy_.shape().index(key)));
  }
  [[nodiscard]] const pager_stats& stats() const { return stats_; }
  [[nodiscard]] std::uint64_t decision_hash() const { return hash_; }
  /// Note that this is a bound, with the maximum bytes in transient slots.
  [[nodiscard]] std::string note() const;

 private:
  /// Occupancy of a pool between visits.
  struct occupancy {
    std::size_t slots = 0;
    std::size_t used = 0;
  };

  [[nodiscard]] std::span<const expert_id> distinct(const routing_view& view) noexcept;
  std::size_t use(const routing_view& view, std::span<const expert_id> experts) noexcept;
  [[nodiscard]] visit_context context_of(const routing_view& view) const noexcept;
  void count_miss(slot_id slot, step_id step, layer_counts& of_layer) noexcept;
  void count_uses(const routing_view& view, std::size_t accesses, std::size_t misses) noexcept;
  void shed(const routing_view& view) noexcept;

  // Every expert has its own slot, numbered by its key, so a visit never lacks slots. The pools' sizes are enforced
  // here by counting.
  pool_layout roomy_;
  belady order_;
  per_pool<occupancy> pools_;
  slot_mask residents_;
  unique_ids unique_;
  std::vector<expert_id> experts_;
  std::vector<std::uint32_t> places_;
  std::vector<expert_id> in_order_;
  std::vector<slot_id> used_;  ///< slots of a visit
  std::vector<fill> fills_;
  std::vector<slot_id> gone_;
  per_slot<std::uint8_t> seen_;
  per_slot<step_id> evicted_in_;
  std::uint64_t transient_bytes_ = 0;  ///< maximum transient bytes of one visit
  std::optional<step_id> last_step_;
  bool step_has_miss_ = false;
  std::uint64_t hash_ = 0;
  pager_stats stats_;
};

}  // namespace hotset::lab
