// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Gives the misses of a visit slots of its pool: free ones, then the victims that the eviction policy names.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/concepts/admission_policy.hpp"
#include "hotset/core/access.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/status.hpp"
#include "hotset/paging/visit_lookup.hpp"
#include "hotset/residency/residents.hpp"
#include "hotset/visit/visit_plan.hpp"

namespace hotset::inline v0 {

/// What became of an attempt to give every miss a slot.
struct placement {
  bool fits = true;  ///< then all of them have one, and nothing else has changed otherwise
  /// If not: slots that the visit can have, those of its own residents among them.
  std::size_t room = 0;
};

/// Refuses misses a slot where an admission policy says so. No allocation after construction.
template <admission_policy Admission>
class admission_round {
 public:
  explicit admission_round(std::size_t most_misses) {
    if constexpr (!Admission::traits.admits_all) {
      accesses_.resize(most_misses);
      admitted_.resize(most_misses);
    }
  }

  /// describe(position in the plan) is the access that the policy judges.
  template <class HotSet, class Describe>
  void refuse([[maybe_unused]] HotSet& hot, [[maybe_unused]] visit_lookup& visit,
              [[maybe_unused]] visit_plan& plan, [[maybe_unused]] Describe describe) noexcept {
    if constexpr (!Admission::traits.admits_all) {
      const auto misses = visit.misses();
      for (std::size_t j = 0; j < misses.size(); ++j) accesses_[j] = describe(misses[j]);
      auto context = plan.context();
      context.free = hot.held.free_count(context.pool);
      hot.admission.admit(context, std::span(accesses_).first(misses.size()),
                          std::span(admitted_).first(misses.size()));
      visit.keep_misses([&](std::size_t j, std::uint32_t at) {
        if (admitted_[j] == 0) plan.draft().leave_on_host(at);
        return admitted_[j] != 0;
      });
      hot.ledger.refuse(plan.host_count());
    }
  }

 private:
  std::vector<access> accesses_;
  std::vector<std::uint8_t> admitted_;
};

/// Slots of one pool: that of the visit's layer at the highest precision. It has no state.
class demand {
 public:
  /// Reserves a slot for every miss, or for none.
  template <class HotSet>
  static placement place(HotSet& hot, const visit_lookup& visit, visit_plan& plan) noexcept {
    const auto pool = plan.context().pool;
    const auto free = hot.held.free_count(pool);
    const auto wanted = visit.misses().size();
    if (wanted <= free) return reserve(hot, visit, {}, plan);
    const auto victims = wanted - free;
    if (const auto chosen = choose_unmasked(hot, visit, plan, victims); !chosen.empty())
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

  /// A policy's order does not depend on what else is eligible: if the first victims of all are not of the visit,
  /// they are the first victims of the rest, and the visit need not be masked.
  template <class HotSet>
  static std::span<const slot_id> choose_unmasked(HotSet& hot, const visit_lookup& visit,
                                                  const visit_plan& plan,
                                                  std::size_t count) noexcept {
    const auto& context = plan.context();
    if (hot.held.pool(context.pool).evictable < count + plan.experts().size()) return {};
    const auto chosen = hot.choose(context, count);
    if (chosen.size() != count) return {};
    for (const auto slot : chosen)
      if (const auto key = hot.held[slot].key;
          key.layer == context.layer && visit.contains(key.expert))
        return {};
    return chosen;
  }
  template <class HotSet>
  static placement reserve(HotSet& hot, const visit_lookup& visit, std::span<const slot_id> victims,
                           visit_plan& plan) noexcept {
    auto& draft = plan.draft();
    const auto misses = visit.misses();
    const auto from_free = misses.size() - victims.size();
    for (std::size_t j = 0; j < misses.size(); ++j) {
      const auto at = misses[j];
      const expert_key key{draft.context.layer, draft.experts[at]};
      if (j < from_free) {
        draft.fills[j] = hot.held.reserve_free(key, draft.context.pool);
        draft.slots[at] = draft.fills[j].slot;
      } else {
        draft.fills[j].key = key;
        draft.slots[at] = victims[j - from_free];
      }
    }
    hot.held.reserve_victims(draft.context.pool, victims,
                             std::span(draft.fills).subspan(from_free, victims.size()));
    draft.count.fills = static_cast<std::uint32_t>(misses.size());
    return {};
  }
};

}  // namespace hotset::inline v0
