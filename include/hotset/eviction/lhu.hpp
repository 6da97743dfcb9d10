// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose key was used at the highest precision by the fewest visits.
///
/// Rule: order by the number of visits served at precision 0 over the key's entire history, bypassed uses included.
///   Then recency position, which every use moves.
/// Source: SpecMD appendix B (LHU), after HOBBIT.
/// Deviations: ours are the ties, and that a visit's first use decides for its later token groups. With one precision
///   this is lfu.
/// Exact: yes (never changes what is computed).
/// Cost: that of lfu.

#include <cstddef>
#include <span>
#include <string_view>

#include "hotset/eviction/lfu.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

class lhu {
 public:
  using config = no_options;
  static constexpr std::string_view name = "lhu";
  static constexpr eviction_traits traits{.fewest_precisions = 2};

  explicit lhu(const pool_layout& layout, const config& = {}) : uses_(layout, {}) {}

  void on_visit(const visit_event& e) noexcept { uses_.see(e, e.precision == 0); }
  void on_prefetch(const prefetch_event& e) noexcept { uses_.on_prefetch(e); }
  void on_evict(slot_id slot, expert_key key) noexcept { uses_.on_evict(slot, key); }
  void on_move(slot_id from, slot_id to) noexcept { uses_.on_move(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return uses_.select_victims(context, eligible, out);
  }

 private:
  lfu uses_;
};

static_assert(is_eviction_policy<lhu>());

}  // namespace hotset
