// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Gives the misses of a visit slots of its pool: free ones, then the victims that the eviction policy names. An admission
/// policy may refuse some before.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/status.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/paging/residency/residents.hpp"
#include "hotset/paging/visit/visit_lookup.hpp"
#include "hotset/paging/visit/visit_plan.hpp"

namespace hotset {

/// What became of an attempt to give every miss a slot.
struct placement {
  bool fits = true;  ///< then all of them have one, and nothing else has changed otherwise
  /// If not: slots that the visit can have, those of its own residents among them.
  std::size_t room = 0;
};

/// An admission policy's part in a visit. No allocation after construction.
class admission_round {
 public:
  /// `most_misses`: of one visit; 0 if the policy admits everything.
  explicit admission_round(std::size_t most_misses) : uses_(most_misses), admitted_(most_misses) {}

  /// Refuses misses a slot where the policy says so.
  template <class HotSet>
  void refuse(HotSet& hot, visit_lookup& visit, visit_plan& plan) noexcept {
    if (hot.admits_all()) return;
    auto& draft = detail::draft_of(plan);
    const auto misses = visit.misses();
    for (std::size_t j = 0; j < misses.size(); ++j) uses_[j] = describe(hot.held, draft, misses[j]);
    auto context = plan.context();
    context.free = hot.held.free_count(context.pool);
    hot.admission.admit(context, std::span(uses_).first(misses.size()),
                        std::span(admitted_).first(misses.size()));
    for (std::size_t j = 0; j < misses.size(); ++j)
      if (admitted_[j] == 0) draft.leave_on_host(misses[j]);
    visit.collect_misses(draft);
    hot.ledger.visit.bypasses = plan.host_count();
  }
  /// Reports a committed visit's distinct experts, in the order of their last use.
  template <class HotSet>
  static void tell(HotSet& hot, const visit_lookup& visit, const visit_plan& plan) noexcept {
    const auto& draft = detail::draft_of(plan);
    const auto counted = visit.counted(plan);
    for (std::size_t n = 0; n < draft.count.distinct; ++n) {
      const auto i = draft.at(n);
      auto use = describe(hot.held, draft, i);
      use.repeated = !counted.empty() && counted[index_of(use.key.expert)] != 0;
      const auto how = draft.service_of(i);
      hot.admission.on_use(use, how == service::hit, how != service::host);
    }
  }

 private:
  static expert_use describe(const residents& held, const plan_draft& draft,
                             std::size_t i) noexcept {
    const auto slot = draft.slots[i];
    return {.key = {draft.context.layer, draft.experts[i]},
            .slot = slot,
            .pool = slot == no_slot ? draft.context.pool : held.pool_of(slot),
            .step = draft.context.step,
            .ordinal = draft.context.ordinal,
            .rank = draft.ranks[i],
            .weight = draft.weights[i],
            .precision = slot == no_slot ? precision_id{} : held.precision_of(slot),
            .kind = draft.context.kind};
  }

  std::vector<expert_use> uses_;
  std::vector<std::uint8_t> admitted_;
};

/// Slots of one pool: that of the visit's layer at the highest precision. It has no state.
class demand {
 public:
  /// Reserves a slot for every miss, or for none.
  template <class HotSet>
  static placement place(HotSet& hot, const visit_lookup& visit, visit_plan& plan) noexcept {
    const auto& context = plan.context();
    const auto free = hot.held.free_count(context.pool);
    const auto wanted = visit.misses().size();
    if (wanted <= free) return reserve(hot, visit, {}, plan);
    // A policy's order does not depend on what else is eligible: if none of the first victims belongs to the visit, they
    // are those that it would name with the visit masked.
    const auto chosen = hot.choose(context, wanted - free);
    const auto is_own = [&](slot_id slot) {
      const auto& key = hot.held[slot].key;
      return key.layer == context.layer && visit.contains(key.expert);
    };
    if (chosen.size() == wanted - free && std::ranges::none_of(chosen, is_own)) [[likely]]
      return reserve(hot, visit, chosen, plan);
    return place_masked(hot, visit, plan);
  }

 private:
  template <class HotSet>
  [[gnu::noinline]] static placement place_masked(HotSet& hot, const visit_lookup& visit,
                                                  visit_plan& plan) noexcept {
    const auto pool = plan.context().pool;
    const auto free = hot.held.free_count(pool);
    const auto wanted = visit.misses().size();
    const residents::mask own(hot.held, plan.slots());
    const auto others = hot.held.pool(pool).evictable - own.slots().size() + free;
    if (wanted > others) return {false, others + own.slots().size()};
    const auto chosen = hot.choose(plan.context(), wanted - free);
    HOTSET_ASSERT(chosen.size() == wanted - free);
    if (chosen.size() != wanted - free) return {false, 0};
    return reserve(hot, visit, chosen, plan);
  }
  template <class HotSet>
  static placement reserve(HotSet& hot, const visit_lookup& visit, std::span<const slot_id> victims,
                           visit_plan& plan) noexcept {
    auto& draft = detail::draft_of(plan);
    const auto misses = visit.misses();
    const auto from_free = misses.size() - victims.size();
    for (std::size_t j = 0; j < misses.size(); ++j) {
      const expert_key key{draft.context.layer, draft.experts[misses[j]]};
      draft.fills[j] = j < from_free ? hot.held.reserve_free(key, draft.context.pool)
                                     : hot.held.reserve_victim(key, victims[j - from_free]);
      draft.slots[misses[j]] = draft.fills[j].slot;
    }
    draft.count.fills = static_cast<std::uint32_t>(misses.size());
    return {};
  }
};

}  // namespace hotset
