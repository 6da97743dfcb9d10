// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Changes of how many slots a pool may use, and the gathering of residents that lets memory be given back.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/status.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/paging/residency/residents.hpp"

namespace hotset {

/// Not for the hot path. No allocation after construction.
class quotas {
 public:
  explicit quotas(std::size_t slots) : target_(slots, no_slot), order_(slots) {}

  /// The fewest slots of the layer's highest precision with which its pools can still serve a token.
  [[nodiscard]] static std::int32_t least(const residents& held, layer_id layer) noexcept {
    const auto& layout = held.layout();
    auto slots = held.shape().top_k;
    for (std::size_t p = 1; p < layout.precisions(); ++p)
      slots -= held.pool(layout.pool_of(layer, static_cast<precision_id>(p))).capacity;
    return std::max(slots, 1);
  }
  /// Errors: invalid_argument (below the least, above the pool's experts), busy, exceeds_memory; then nothing has changed.
  template <class HotSet>
  static status set(HotSet& hot, layer_id layer, std::int32_t slots) noexcept {
    const auto& layout = hot.held.layout();
    const auto p = layout.pool_of_layer(layer);
    const auto experts = hot.held.shape().expert_count();
    if (slots < least(hot.held, layer) ||
        static_cast<std::size_t>(slots) > layout.at(p).layers.size() * experts)
      return status::invalid_argument;
    return slots < hot.held.pool(p).capacity ? shrink(hot, p, layer, slots)
                                             : hot.held.claim(p, slots);
  }

  /// Evictable slots of a pool, those first that the policy would give up first. Good until the next call.
  template <class HotSet>
  std::span<const slot_id> in_order(HotSet& hot, pool_id p) noexcept {
    visit_context context;
    context.pool = p;
    context.layer = hot.held.layout().at(p).layers.front();
    context.step = hot.ledger.step();
    return std::span(order_).first(
        hot.eviction.select_victims(context, hot.held.evictable(), order_));
  }

  /// As pager::compact.
  template <class HotSet, class Moved>
  void compact(HotSet& hot, Moved& moved) {
    hot.held.gather_spare(target_);
    for (std::size_t p = 0; p < hot.held.layout().pools(); ++p)
      move_pool(hot, static_cast<pool_id>(p), moved);
  }

 private:
  template <class HotSet>
  static status shrink(HotSet& hot, pool_id p, layer_id layer, std::int32_t slots) noexcept {
    const auto& pool = hot.held.pool(p);
    const auto surplus = static_cast<std::size_t>(pool.capacity - slots);
    if (surplus > hot.held.free_count(p) + pool.evictable) return status::busy;
    visit_context context;
    context.layer = layer;
    context.pool = p;
    context.step = hot.ledger.step();
    while (hot.held.free_count(p) < surplus) {
      const auto victim = hot.choose(context, 1);
      if (victim.empty()) return status::busy;
      hot.release(victim.front());
    }
    hot.held.give_up(p, surplus);
    return status::ok;
  }

  template <class HotSet, class Moved>
  void move_pool(HotSet& hot, pool_id p, Moved& moved) {
    const auto slots = with_unnamed(hot.held, p, in_order(hot, p));
    const auto goes = [&](slot_id s) { return target_[s] != no_slot; };
    for (const auto slot : slots) {
      if (!goes(slot)) continue;
      const auto to = target_[slot];
      hot.held.move(slot, to);
      hot.requests.move(slot, to);
      hot.eviction.on_move(slot, to);
      moved(slot, to);
    }
  }
  /// Adds the evictable slots that the policy did not name: it may keep some back.
  std::span<const slot_id> with_unnamed(const residents& held, pool_id p,
                                        std::span<const slot_id> named) noexcept {
    auto count = named.size();
    if (count == held.pool(p).evictable) return named;
    for (std::size_t s = 0; s < held.slots(); ++s) {
      const auto slot = static_cast<slot_id>(s);
      if (held.evictable().test(slot) && held.pool_of(slot) == p &&
          std::ranges::find(named, slot) == named.end())
        order_[count++] = slot;
    }
    return std::span(order_).first(count);
  }

  per_slot<slot_id> target_;    ///< [slots] where a compaction takes what a slot holds
  std::vector<slot_id> order_;  ///< scratch, [slots]
};

}  // namespace hotset
