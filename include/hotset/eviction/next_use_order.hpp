// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the resident that is worth least: the common part of `similar_steps` and `two_rate`.
///
/// Rule: order by the worth of valued_residents, the values being those of next_use_values; then by recency.
/// Source: ours.
/// Deviations: none; the policies name theirs.
/// Exact: yes (never changes what is computed).
/// Cost: next_use_values a visit, valued_residents a victim.

#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/eviction/order/valued_residents.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/predict/history/next_use_values.hpp"

namespace hotset {

/// The hooks of a policy that goes by values of a visit's experts. A visit counts before its victims are chosen; a
/// plan that is aborted leaves no trace. In a pool of one layer values are only brought up to date if they may be
/// needed: at visits that evict, and at all once anything but a visit has asked for victims (a prefetch, slots freed
/// ahead).
class next_use_order {
 public:
  static constexpr eviction_traits traits{.hears_routes = true, .moves_by_itself = true};

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

  /// Returns what was learned, for another run, without the running step's tokens, which are not complete.
  [[nodiscard]] saved_history save(const geometry& shape, std::uint64_t model = 0) const {
    return values_.save(shape, model);
  }

 private:
  /// The visit takes place.
  void value(step_id step, layer_id layer) noexcept {
    if (!values_.is_staged(layer, step)) return;
    if (always_values_ || values_.are_known()) residents_.set_values(layer, values_.values());
    values_.keep();
  }

  next_use_values values_;
  valued_residents residents_;
  bool
      always_values_;  // every visit is valued: a pool compares layers with each other, or a prefetch has chosen
};

}  // namespace hotset
