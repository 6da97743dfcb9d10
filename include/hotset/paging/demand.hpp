// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reserves slots of a pool for the misses of a visit: free slots first, then victims of the eviction policy. An
/// admission policy may refuse misses before.

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
#include "hotset/policy/policy_config.hpp"

namespace hotset {

/// Result of an attempt to reserve a slot for every miss.
struct placement {
  bool fits = true;  ///< every miss has a slot; if false, nothing has changed
  /// If false: the slots available to the visit, including those of its own residents.
  std::size_t room = 0;
};

/// The admission policy's part of a visit. No allocation after construction.
class admission_round {
 public:
  /// `most_misses`: most misses of one visit; 0 if the policy admits everything.
  explicit admission_round(std::size_t most_misses) : uses_(most_misses), admitted_(most_misses) {}

  /// Marks the misses that the policy refuses.
  template <class Parts>
  void refuse(Parts& parts, visit_lookup& visit, visit_plan& plan) noexcept {
    if (parts.admits_all()) return;
    auto& draft = detail::draft_of(plan);
    const auto misses = visit.misses();
    for (std::size_t j = 0; j < misses.size(); ++j)
      uses_[j] = describe(parts.held, draft, misses[j]);
    auto context = plan.context();
    context.free = parts.held.free_count(context.pool);
    parts.admission.admit(context, std::span(uses_).first(misses.size()),
                          std::span(admitted_).first(misses.size()));
    for (std::size_t j = 0; j < misses.size(); ++j)
      if (admitted_[j] == 0) draft.leave_on_host(misses[j]);
    visit.collect_misses(draft);
    parts.ledger.visit.bypasses = plan.host_count();
  }
  /// Reports a committed visit's distinct experts to the policy, in order of last use.
  template <class Parts>
  static void tell(Parts& parts, const visit_lookup& visit, const visit_plan& plan) noexcept {
    const auto& draft = detail::draft_of(plan);
    const auto counted = visit.counted(plan);
    for (std::size_t n = 0; n < draft.count.distinct; ++n) {
      const auto i = draft.at(n);
      auto use = describe(parts.held, draft, i);
      use.repeated = !counted.empty() && counted[index_of(use.key.expert)] != 0;
      const auto how = draft.service_of(i);
      parts.admission.on_use(use, how == service::hit, how != service::host);
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
            .weight = draft.weights[i],
            .precision = slot == no_slot ? precision_id{} : held.precision_of(slot),
            .kind = draft.context.kind};
  }

  std::vector<expert_use> uses_;
  std::vector<std::uint8_t> admitted_;
};

/// Serves misses from one pool: the layer's pool at the highest precision. Stateless.
class demand {
 public:
  /// Reserves a slot for every miss, or for none.
  template <class Parts>
  static placement place(Parts& parts, const visit_lookup& visit, visit_plan& plan) noexcept {
    const auto& context = plan.context();
    const auto free = parts.held.free_count(context.pool);
    const auto wanted = visit.misses().size();
    if (wanted <= free) return reserve(parts, visit, {}, plan);
    if (facts_of(parts.eviction).is_called) return place_masked(parts, visit, plan);
    // First tries victims without masking the visit's own slots, which is cheaper. This is valid because a policy's
    // order does not depend on the other eligible slots: without the visit's own slots, the first victims stay the
    // first.
    const auto is_own = [&](slot_id slot) {
      const auto& key = parts.held[slot].key;
      return key.layer == context.layer && visit.contains(key.expert);
    };
    const auto needed = wanted - free;
    for (auto asked = needed;
         asked <= parts.victims.size() && parts.choose(context, asked).size() == asked;) {
      const auto chosen = std::span(parts.victims).first(asked);
      const auto own = static_cast<std::size_t>(
          chosen.end() - std::remove_if(chosen.begin(), chosen.end(), is_own));
      if (asked - own >= needed) return reserve(parts, visit, chosen.first(needed), plan);
      asked = needed + own;
    }
    return place_masked(parts, visit, plan);
  }

 private:
  template <class Parts>
  [[gnu::noinline]] static placement place_masked(Parts& parts, const visit_lookup& visit,
                                                  visit_plan& plan) noexcept {
    const auto pool = plan.context().pool;
    const auto free = parts.held.free_count(pool);
    const auto wanted = visit.misses().size();
    const residents::mask own(parts.held, plan.slots());
    const auto others = parts.held.pool(pool).evictable - own.slots().size() + free;
    if (wanted > others) return {false, others + own.slots().size()};
    const auto chosen = parts.choose(plan.context(), wanted - free);
    HOTSET_ASSERT(chosen.size() == wanted - free || facts_of(parts.eviction).is_called);
    if (chosen.size() != wanted - free) return {false, 0};
    return reserve(parts, visit, chosen, plan);
  }
  template <class Parts>
  static placement reserve(Parts& parts, const visit_lookup& visit,
                           std::span<const slot_id> victims, visit_plan& plan) noexcept {
    auto& draft = detail::draft_of(plan);
    const auto misses = visit.misses();
    const auto from_free = misses.size() - victims.size();
    for (std::size_t j = 0; j < misses.size(); ++j) {
      const expert_key key{draft.context.layer, draft.experts[misses[j]]};
      draft.fills[j] = j < from_free ? parts.held.reserve_free(key, draft.context.pool)
                                     : parts.held.reserve_victim(key, victims[j - from_free]);
      draft.slots[misses[j]] = draft.fills[j].slot;
    }
    draft.count.fills = static_cast<std::uint32_t>(misses.size());
    return {};
  }
};

}  // namespace hotset
