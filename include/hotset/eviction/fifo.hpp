// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot that was filled longest ago.
///
/// Rule: order by arrival; uses change nothing. A speculative fill arrives when it is decided.
/// Source: textbook baseline.
/// Deviations: none.
/// Exact: yes (never changes what is computed).
/// Cost: nothing per hit, O(1) per fill; a victim costs O(1) plus skipped ineligible slots.

#include <cstddef>
#include <span>
#include <string_view>

#include "hotset/eviction/order/recency_list.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

class fifo {
 public:
  using config = no_options;
  static constexpr std::string_view name = "fifo";
  static constexpr eviction_traits traits{};

  explicit fifo(const pool_layout& layout, const config& = {})
      : order_(layout.slots(), layout.pools()) {}

  void on_visit(const visit_event& e) noexcept {
    order_.move_to_back(index_of(e.context.pool), e.fills, [](const fill& f) { return f.slot; });
  }
  void on_prefetch(const prefetch_event& e) noexcept { order_.push_back(index_of(e.pool), e.slot); }
  void on_evict(slot_id slot, expert_key) noexcept { order_.erase(slot); }
  void on_move(slot_id from, slot_id to) noexcept { order_.take_place(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return order_.select(index_of(context.pool), eligible, out);
  }

 private:
  recency_list order_;
};

static_assert(is_eviction_policy<fifo>());

}  // namespace hotset
