// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Gives the misses of a visit slots at the precisions that they are wanted in, as far as there is room.

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

namespace hotset {

/// Rule: the heaviest choose first. Each miss goes to the precision it is wanted in, else to the next lower one with
/// room, else to a higher one; never to one that is no better than a copy it has. A visit that does not fit uses
/// resident copies as they are. Complexity: O(misses * (log misses + precisions)). No allocation after construction.
class precision_placement {
 public:
  /// What the visit wants of a miss.
  struct wish {
    float weight = 1.0F;
    precision_id precision{};
  };

  precision_placement(const pool_layout& layout, std::size_t most_misses)
      : ladder_(layout.precisions()), assigned_(most_misses), by_weight_(most_misses) {}

  /// As demand::place. `wish_of(expert)` returns a `wish`. Misses that keep the copy they have are no misses any more.
  template <class HotSet, class WishOf>
  placement place(HotSet& hot, visit_lookup& visit, visit_plan& plan, WishOf wish_of) noexcept {
    const residents::mask own(hot.held, plan.slots());
    const auto room = measure_room(hot.held, plan.context().layer, own.slots());
    if (visit.misses().size() > room) keep_copies(hot, visit, plan);
    if (visit.misses().size() > room) return {false, room + own.slots().size()};
    assign(hot, visit, plan, wish_of);
    if (!choose(hot, plan)) return {false, 0};
    reserve(hot, visit, plan);
    return {};
  }

 private:
  /// How far the fills of one precision have come.
  struct rung {
    pool_id pool{};
    std::size_t free = 0;    ///< free slots
    std::size_t room = 0;    ///< free slots and victims that may be had
    std::size_t wanted = 0;  ///< misses that go there
    std::size_t victims = 0;
    std::size_t first_victim = 0;  ///< among all victims
    std::size_t given = 0;
  };

  /// How many slots the layer's pools can give, beside those of `own`, which are masked.
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
  template <class HotSet>
  static void keep_copies(HotSet& hot, visit_lookup& visit, visit_plan& plan) noexcept {
    keep_some(hot, visit, plan,
              [&](std::size_t, std::uint32_t at) { return plan.slots()[at] == no_slot; });
  }
  /// The misses for which keep(...) is false use the copies that they have.
  template <class HotSet, class Keep>
  static void keep_some(HotSet& hot, visit_lookup& visit, visit_plan& plan, Keep keep) noexcept {
    auto& draft = detail::draft_of(plan);
    const auto before = visit.misses().size();
    visit.keep_misses([&](std::size_t j, std::uint32_t at) {
      const bool kept = keep(j, at);
      if (!kept) draft.services[at] = service::hit;
      return kept;
    });
    const auto left = visit.misses().size();
    if (left == before) return;
    hot.ledger.good_enough(before - left);
    draft.all_hits = left == 0 && draft.count.host == 0;
  }

  template <class HotSet, class WishOf>
  void assign(HotSet& hot, visit_lookup& visit, visit_plan& plan, WishOf& wish_of) noexcept {
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
      return slot == no_slot ? ladder_.size() : index_of(hot.held.precision_of(slot));
    };
    for (const auto j : order) assigned_[j] = rung_for(wanted(j).precision, held(misses[j]));
    std::size_t kept = 0;
    keep_some(hot, visit, plan, [&](std::size_t j, std::uint32_t at) {
      const auto to = assigned_[j];
      if (plan.slots()[at] != no_slot && to == held(at)) return false;
      HOTSET_ASSERT(to < ladder_.size());
      assigned_[kept++] = to;
      return true;
    });
  }
  /// A precision above `end` with room, or `end`: an upgrade must be one.
  std::size_t rung_for(precision_id wanted, std::size_t end) noexcept {
    const auto has_room = [&](std::size_t p) { return ladder_[p].wanted < ladder_[p].room; };
    const auto best = index_of(wanted);
    auto p = best;
    while (p < end && !has_room(p)) ++p;
    if (p == end) {
      for (p = best; p > 0 && !has_room(p - 1);) --p;
      if (p == 0) return end;
      --p;
    }
    ++ladder_[p].wanted;
    return p;
  }
  /// Victims of all rungs stand in hot.victims, one rung after the other. Returns false if the policy names too few.
  template <class HotSet>
  bool choose(HotSet& hot, const visit_plan& plan) noexcept {
    std::size_t first = 0;
    for (auto& r : ladder_) {
      r.victims = r.wanted > r.free ? r.wanted - r.free : 0;
      r.first_victim = first;
      if (r.victims == 0) continue;
      auto context = plan.context();
      context.pool = r.pool;
      const auto out = std::span(hot.victims).subspan(first, r.victims);
      const auto chosen = hot.eviction.select_victims(context, hot.held.evictable(), out);
      HOTSET_ASSERT(chosen == r.victims);
      if (chosen != r.victims) return false;
      first += r.victims;
    }
    return true;
  }
  template <class HotSet>
  void reserve(HotSet& hot, const visit_lookup& visit, visit_plan& plan) noexcept {
    auto& draft = detail::draft_of(plan);
    const auto misses = visit.misses();
    for (std::size_t j = 0; j < misses.size(); ++j) {
      auto& r = ladder_[assigned_[j]];
      const auto from_free = r.wanted - r.victims;
      const auto nth = r.given++;
      const expert_key key{draft.context.layer, draft.experts[misses[j]]};
      draft.fills[j] = nth < from_free ? hot.held.reserve_free(key, r.pool)
                                       : hot.held.reserve_victim(
                                             key, hot.victims[r.first_victim + nth - from_free]);
      draft.slots[misses[j]] = draft.fills[j].slot;
    }
    draft.count.fills = static_cast<std::uint32_t>(misses.size());
  }

  std::vector<rung> ladder_;  ///< [precisions]
  std::vector<std::size_t> assigned_;
  std::vector<std::uint32_t> by_weight_;
};

}  // namespace hotset
