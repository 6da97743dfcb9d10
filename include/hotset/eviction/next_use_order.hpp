// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the least valuable resident: the common part of `similar_steps` and `two_rate`.
///
/// Rule: order by the worth that valued_residents derives from next_use_values; then by recency.
/// Source: ours.
/// Deviations: none; the policies name theirs.
/// Exact: yes (never changes what is computed).
/// Cost: next_use_values per visit, valued_residents per victim.

#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/eviction/order/valued_residents.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/predict/history/next_use_values.hpp"

namespace hotset {

/// Hooks of a policy that ranks experts by value. A visit counts before its victims are chosen; an aborted plan
/// leaves no trace. In a pool of one layer, values are updated only if they may be needed: at visits that evict.
/// After a prefetch or a pre-eviction has asked for victims, they are updated at all visits.
class next_use_order {
 public:
  static constexpr eviction_traits traits{.wants_routes = true, .moves_by_itself = true};

  next_use_order(const pool_layout& layout, const next_use_values::config& options)
      : values_(layout.shape(), options),
        residents_(layout, options.discount),
        always_values_(layout.shape().layer_count() * layout.precisions() > layout.pools()) {}

  void on_routed(const routing_view& view) noexcept { values_.stage(view); }
  void on_visit(const visit_event& e) noexcept {
    if (e.begins) value(e.context.step, e.context.layer);
    residents_.bring(e.fills);
    residents_.use(e.used);
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    residents_.fill(e.slot, e.key, e.precision);
  }
  void on_evict(slot_id slot, expert_key) noexcept { residents_.vacate(slot); }
  void on_move(slot_id from, slot_id to) noexcept { residents_.move(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    const bool of_visit = !context.speculative && values_.is_staged(context.layer, context.step);
    always_values_ = always_values_ || !of_visit;
    return residents_.select(context.pool, context.layer,
                             of_visit ? values_.values() : std::span<const float>{}, eligible, out);
  }

  /// Returns what was learned, for another run. Leaves out the running step's tokens, which are incomplete.
  [[nodiscard]] saved_history save(const geometry& shape, std::uint64_t model = 0) const {
    return values_.save(shape, model);
  }

 private:
  /// The visit is committed.
  void value(step_id step, layer_id layer) noexcept {
    if (!values_.is_staged(layer, step)) return;
    if (always_values_ || values_.are_known()) residents_.set_values(layer, values_.values());
    values_.keep();
  }

  next_use_values values_;
  valued_residents residents_;
  // Every visit is valued: a pool compares layers with each other, or a prefetch has chosen victims.
  bool always_values_;
};

}  // namespace hotset
