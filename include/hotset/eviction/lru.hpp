// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose last visit is longest ago.
///
/// Rule: order by recency position; a visit moves its experts to the end in the order of their last
///       appearance, hits and misses interleaved. A speculative fill takes the next position.
/// Source: textbook; event-atomic form as in WiSP 3.2.
/// Deviations: none.
/// Exact: yes (never changes what is computed).
/// Cost: O(1) per hit and fill; a victim costs O(1) plus the ineligible slots passed over.

#include <cstddef>
#include <span>
#include <string_view>

#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/residency/recency_list.hpp"

namespace hotset::inline v0 {

class lru {
 public:
  struct config {
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "lru";

  explicit lru(const pool_layout& layout, const config& = {})
      : order_(layout.slots(), layout.pools()) {}

  void on_step(step_id, layer_id) noexcept {}
  void on_hit(const access& a) noexcept { order_.move_to_back(head(a.pool), a.slot); }
  void on_hits(const visit_context& context, std::span<const slot_id> slots) noexcept {
    order_.move_to_back(head(context.pool), slots);
  }
  void on_fill(const access& a) noexcept { order_.push_back(head(a.pool), a.slot); }
  void on_bypass(const access&) noexcept {}
  void on_evict(slot_id slot, expert_key) noexcept { order_.erase(slot); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return order_.select(head(context.pool), eligible, out);
  }

 private:
  static std::size_t head(pool_id pool) noexcept { return static_cast<std::size_t>(pool); }
  recency_list order_;
};

static_assert(eviction_policy<lru>);

}  // namespace hotset::inline v0
