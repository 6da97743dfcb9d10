// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose key has been used at the highest precision by the fewest visits.
///
/// Rule: order by the number of visits that were served at precision 0 over the entire history of the
///       key, bypassed uses included, then recency position, which every use moves.
/// Source: SpecMD appendix B (LHU), after HOBBIT.
/// Deviations: ties, and what a visit's first use decides for its later token groups, are ours. With one precision
///       this is lfu.
/// Exact: yes (never changes what is computed).
/// Cost: that of lfu.

#include <cstddef>
#include <span>
#include <string_view>

#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/core/policy/no_options.hpp"
#include "hotset/eviction/lfu.hpp"

namespace hotset::inline v0 {

class lhu {
 public:
  using config = no_options;
  static constexpr std::string_view name = "lhu";
  static constexpr eviction_traits traits{
      .hears_steps = true, .hears_bypasses = true, .fewest_precisions = 2};

  explicit lhu(const pool_layout& layout) : lhu(layout, config{}) {}
  lhu(const pool_layout& layout, const config&) : uses_(layout) {}

  void on_step(step_id step, layer_id layer) noexcept { uses_.on_step(step, layer); }
  void on_hit(const access& a) noexcept { uses_.on_hit(seen(a)); }
  void on_fill(const access& a) noexcept { uses_.on_fill(seen(a)); }
  void on_bypass(const access& a) noexcept { uses_.on_bypass(seen(a)); }
  void on_evict(slot_id slot, expert_key key) noexcept { uses_.on_evict(slot, key); }
  void on_move(slot_id from, slot_id to) noexcept { uses_.on_move(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return uses_.select_victims(context, eligible, out);
  }

 private:
  /// A use at a lower precision is to lfu like one that has been counted: it moves and adds nothing.
  static access seen(access a) noexcept {
    a.repeated = a.repeated || a.precision != 0;
    return a;
  }
  lfu uses_;
};

static_assert(is_eviction_policy<lhu>());

}  // namespace hotset::inline v0
