// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose last visit is longest ago.
///
/// Rule: order by recency position. A visit moves its experts to the end in the order of their last appearance, hits
///   and misses interleaved. A speculative fill takes the next position.
/// Source: textbook; event-atomic form as in WiSP 3.2.
/// Deviations: none.
/// Exact: yes (never changes what is computed).
/// Cost: O(1) per hit and fill, amortised; a victim costs O(1) plus skipped ineligible slots.

#include <cstddef>
#include <span>
#include <string_view>

#include "hotset/eviction/order/recency_log.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

class lru {
 public:
  using config = no_options;
  static constexpr std::string_view name = "lru";
  static constexpr eviction_traits traits{};

  explicit lru(const pool_layout& layout, const config& = {}) : log_(layout) {}

  void on_visit(const visit_event& e) noexcept {
    if (!e.fills.empty()) log_.replace(e.context.pool, e.fills);
    log_.touch(e.context.pool, e.used);
  }
  void on_prefetch(const prefetch_event& e) noexcept { log_.touch(e.pool, e.slot); }
  void on_evict(slot_id slot, expert_key) noexcept { log_.erase(slot); }
  void on_move(slot_id from, slot_id to) noexcept { log_.take_place(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return log_.select(context.pool, eligible, out);
  }

 private:
  recency_log log_;
};

static_assert(is_eviction_policy<lru>());

}  // namespace hotset
