// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose last visit is longest ago.
///
/// Rule: order by recency position; a visit moves its experts to the end in the order of their last
///       appearance, hits and misses interleaved. A speculative fill takes the next position.
/// Source: textbook; event-atomic form as in WiSP 3.2.
/// Deviations: none.
/// Exact: yes (never changes what is computed).
/// Cost: O(1) per hit and fill, amortised; a victim costs O(1) plus the ineligible slots passed over. Where no pool has more
///       than 64 slots, it is sorted when all that was sorted has been given up or used.

#include <cstddef>
#include <span>
#include <string_view>

#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/core/policy/no_options.hpp"
#include "hotset/order/recency_log.hpp"
#include "hotset/order/recency_stamps.hpp"

namespace hotset::inline v0 {

class lru {
 public:
  using config = no_options;
  static constexpr std::string_view name = "lru";
  static constexpr eviction_traits traits{.hears_visits = true, .hears_replacements = true};

  explicit lru(const pool_layout& layout, const config& = {})
      : stamped_(recency_stamps::suits(layout)), log_(layout) {
    if (stamped_) stamps_ = recency_stamps(layout);
  }

  void on_hit(const access& a) noexcept { use(a); }
  void on_fill(const access& a) noexcept {
    if (stamped_ && !stamps_.covers(a.pool, a.slot)) log_all();
    use(a);
  }
  void on_visit(const visit_context& context, std::span<const slot_id> slots) noexcept {
    stamped_ ? stamps_.touch(context.pool, slots) : log_.touch(context.pool, slots);
  }
  /// The visit will move the slots to the end, whatever they hold.
  void on_replace(const visit_context& context, std::span<const fill> fills) noexcept {
    stamped_ ? stamps_.give_up(context.pool, fills.size(), fills.back().slot)
             : log_.give_up(context.pool, fills.size(), fills.back().slot);
  }
  void on_evict(slot_id slot, expert_key) noexcept {
    stamped_ ? stamps_.erase(slot) : log_.erase(slot);
  }
  void on_move(slot_id from, slot_id to) noexcept {
    if (stamped_ && !stamps_.same_pool(from, to)) log_all();
    stamped_ ? stamps_.take_place(from, to) : log_.take_place(from, to);
  }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return stamped_ ? stamps_.select(context.pool, eligible, out)
                    : log_.select(context.pool, eligible, out);
  }

 private:
  void use(const access& a) noexcept {
    stamped_ ? stamps_.touch(a.pool, a.slot) : log_.touch(a.pool, a.slot);
  }
  /// A quota change has moved a slot to another pool: from now on the order is kept in logs.
  void log_all() noexcept {
    for (std::size_t p = 0; p < stamps_.pools(); ++p)
      stamps_.walk(static_cast<pool_id>(p),
                   [&](slot_id slot) { log_.touch(static_cast<pool_id>(p), slot); });
    stamped_ = false;
  }

  bool stamped_;  // small pools are sorted now and then, large ones written in logs
  recency_stamps stamps_;
  recency_log log_;  // made at once, for a quota change may not allocate
};

static_assert(is_eviction_policy<lru>());

}  // namespace hotset::inline v0
