// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reserves slots for the misses of a visit at the requested precisions, as far as there is room.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/paging/demand.hpp"
#include "hotset/paging/residency/residents.hpp"
#include "hotset/paging/visit/visit_lookup.hpp"
#include "hotset/paging/visit/visit_plan.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

/// Rule: misses with larger weights choose first. Each gets its requested precision, else the next lower one with
/// room, else a higher one; never one that is no better than a resident copy. A visit that does not fit uses resident
/// copies unchanged. Complexity: O(misses * (log misses + precisions)). No allocation after construction.
class precision_placement {
 public:
  /// The request of a visit for one miss.
  struct wish {
    float weight = 1.0F;
    precision_id precision{};
  };

  precision_placement(const pool_layout& layout, std::size_t most_misses)
      : ladder_(layout.precisions()), assigned_(most_misses), by_weight_(most_misses) {}

  /// Reserves slots for misses like demand::place. `wish_of(expert)` returns a `wish`. A miss that keeps its resident
  /// copy is no longer a miss.
  template <class Parts, class WishOf>
  placement place(Parts& parts, visit_lookup& visit, visit_plan& plan, WishOf wish_of) noexcept {
    const residents::mask own(parts.held, plan.slots());
    const auto room = measure_room(parts.held, plan.context().layer, own.slots());
    if (visit.misses().size() > room)
      use_copies(parts, visit, plan,
                 [&](std::size_t, std::uint32_t at) { return plan.slots()[at] != no_slot; });
    if (visit.misses().size() > room) return {false, room + own.slots().size()};
    assign(parts, visit, plan, wish_of);
    if (!choose(parts, plan)) return {false, 0};
    reserve(parts, visit, plan);
    return {};
  }

 private:
  /// Progress of the fills of one precision.
  struct rung {
    pool_id pool{};
    std::size_t free = 0;         ///< free slots
    std::size_t room = 0;         ///< free slots and available victims
    std::size_t wanted = 0;       ///< misses assigned to this precision
    std::size_t next_victim = 0;  ///< index among all victims
  };

  /// Counts the slots that the layer's pools can give, without the masked slots `own`.
  std::size_t measure_room(const residents& held, layer_id layer,
                           std::span<const slot_id> own) noexcept {
    for (std::size_t p = 0; p < ladder_.size(); ++p) {
      const auto pool = held.layout().pool_of(layer, static_cast<precision_id>(p));
      const auto free = held.free_count(pool);
      ladder_[p] = {.pool = pool, .free = free, .room = free + held.pool(pool).evictable};
    }
    for (const auto slot : own) --ladder_[index_of(held.precision_of(slot))].room;
    std::size_t total = 0;
    for (const auto& r : ladder_) total += r.room;
    return total;
  }
  /// Misses for which keeps(index among the misses, index in the plan) is true use their resident copies.
  template <class Parts, class Keeps>
  static void use_copies(Parts& parts, visit_lookup& visit, visit_plan& plan,
                         Keeps keeps) noexcept {
    auto& draft = detail::draft_of(plan);
    const auto misses = visit.misses();
    for (std::size_t j = 0; j < misses.size(); ++j)
      if (keeps(j, misses[j])) draft.services[misses[j]] = service::hit;
    visit.collect_misses(draft);
    parts.ledger.visit.too_low -= misses.size() - visit.misses().size();
    draft.all_hits = visit.misses().empty() && draft.count.host == 0;
  }

  template <class Parts, class WishOf>
  void assign(Parts& parts, visit_lookup& visit, visit_plan& plan, WishOf& wish_of) noexcept {
    const auto misses = visit.misses();
    const auto wanted = [&](std::uint32_t j) { return wish_of(plan.experts()[misses[j]]); };
    const auto order = std::span(by_weight_).first(misses.size());
    for (std::uint32_t j = 0; j < misses.size(); ++j) order[j] = j;
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const auto heavy = wanted(a).weight;
      const auto light = wanted(b).weight;
      return heavy != light ? heavy > light : a < b;
    });
    const auto held = [&](std::uint32_t at) {
      const auto slot = plan.slots()[at];
      return slot == no_slot ? ladder_.size() : index_of(parts.held.precision_of(slot));
    };
    for (const auto j : order) assigned_[j] = rung_for(wanted(j).precision, held(misses[j]));
    std::size_t filled = 0;
    use_copies(parts, visit, plan, [&](std::size_t j, std::uint32_t at) {
      const bool keeps = plan.slots()[at] != no_slot && assigned_[j] == held(at);
      HOTSET_ASSERT(keeps || assigned_[j] < ladder_.size());
      if (!keeps) assigned_[filled++] = assigned_[j];
      return keeps;
    });
  }
  /// Returns a precision better than `end` with room, or `end` if there is none.
  std::size_t rung_for(precision_id wanted, std::size_t end) noexcept {
    const auto takes = [&](std::size_t p) {
      auto& r = ladder_[p];
      if (r.wanted == r.room) return false;
      ++r.wanted;
      return true;
    };
    for (auto p = index_of(wanted); p < end; ++p)
      if (takes(p)) return p;
    for (auto p = index_of(wanted); p-- > 0;)
      if (takes(p)) return p;
    return end;
  }
  /// Stores the victims of all precisions in parts.victims, one precision after the other. Returns false if the policy
  /// returns too few.
  template <class Parts>
  bool choose(Parts& parts, const visit_plan& plan) noexcept {
    std::size_t named = 0;
    for (auto& r : ladder_) {
      r.next_victim = named;
      if (r.wanted <= r.free) continue;
      auto context = plan.context();
      context.pool = r.pool;
      const auto out = std::span(parts.victims).subspan(named, r.wanted - r.free);
      const auto chosen = parts.eviction.select_victims(context, parts.held.evictable(), out);
      HOTSET_ASSERT(chosen == out.size() || facts_of(parts.eviction).is_called);
      if (chosen != out.size()) return false;
      named += chosen;
    }
    return true;
  }
  template <class Parts>
  void reserve(Parts& parts, const visit_lookup& visit, visit_plan& plan) noexcept {
    auto& draft = detail::draft_of(plan);
    const auto misses = visit.misses();
    for (std::size_t j = 0; j < misses.size(); ++j) {
      auto& r = ladder_[assigned_[j]];
      const expert_key key{draft.context.layer, draft.experts[misses[j]]};
      const bool is_free = r.free != 0;
      r.free -= is_free ? 1U : 0U;
      draft.fills[j] = is_free ? parts.held.reserve_free(key, r.pool)
                               : parts.held.reserve_victim(key, parts.victims[r.next_victim++]);
      draft.slots[misses[j]] = draft.fills[j].slot;
    }
    draft.count.fills = static_cast<std::uint32_t>(misses.size());
  }

  std::vector<rung> ladder_;  ///< [precisions]
  std::vector<std::size_t> assigned_;
  std::vector<std::uint32_t> by_weight_;
};

}  // namespace hotset
