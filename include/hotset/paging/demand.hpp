// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Gives the misses of a visit slots of its pool: free ones, then the victims that the eviction policy names.

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

/// Refuses misses a slot where an admission policy says so. No allocation after construction.
class admission_round {
 public:
  /// `most_misses`: of one visit; 0 if the policy admits everything.
  explicit admission_round(std::size_t most_misses)
      : accesses_(most_misses), admitted_(most_misses) {}

  /// describe(position in the plan) is the access that the policy judges.
  template <class HotSet, class Describe>
  void refuse(HotSet& hot, visit_lookup& visit, visit_plan& plan, Describe describe) noexcept {
    if (hot.admits_all()) return;
    const auto misses = visit.misses();
    for (std::size_t j = 0; j < misses.size(); ++j) accesses_[j] = describe(misses[j]);
    auto context = plan.context();
    context.free = hot.held.free_count(context.pool);
    hot.admission.admit(context, std::span(accesses_).first(misses.size()),
                        std::span(admitted_).first(misses.size()));
    visit.keep_misses([&](std::size_t j, std::uint32_t at) {
      if (admitted_[j] == 0) detail::draft_of(plan).leave_on_host(at);
      return admitted_[j] != 0;
    });
    hot.ledger.refuse(plan.host_count());
  }

 private:
  std::vector<expert_use> accesses_;
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

  /// A policy's order does not depend on what else is eligible: the first victims of all, without those of the visit, are the
  /// first victims of the rest, and the visit need not be masked.
  template <class HotSet>
  static std::span<const slot_id> choose_unmasked(HotSet& hot, const visit_lookup& visit,
                                                  const visit_plan& plan,
                                                  std::size_t count) noexcept {
    const auto& context = plan.context();
    if (hot.held.pool(context.pool).evictable < count + plan.experts().size()) return {};
    const auto chosen = hot.choose(context, count);
    if (chosen.size() != count) return {};
    for (const auto slot : chosen)
      if (is_own(hot, visit, context, slot)) [[unlikely]]
        return choose_more(hot, visit, context, count);
    return chosen;
  }
  /// As above, where some of the first are the visit's own.
  template <class HotSet>
  [[gnu::noinline]] static std::span<const slot_id> choose_more(HotSet& hot,
                                                                const visit_lookup& visit,
                                                                const visit_context& context,
                                                                std::size_t count) noexcept {
    const auto own = [&](slot_id slot) { return is_own(hot, visit, context, slot); };
    for (std::size_t asked = count + 1; asked <= hot.victims.size();) {
      const auto chosen = hot.choose(context, asked);
      if (chosen.size() != asked) return {};
      const auto of_others = std::span(hot.victims).first(asked);
      const auto left = static_cast<std::size_t>(
          std::remove_if(of_others.begin(), of_others.end(), own) - of_others.begin());
      if (left >= count) return of_others.first(count);
      asked += count - left;
    }
    return {};
  }
  template <class HotSet>
  [[nodiscard]] static bool is_own(const HotSet& hot, const visit_lookup& visit,
                                   const visit_context& context, slot_id slot) noexcept {
    const auto& key = hot.held[slot].key;
    return key.layer == context.layer && visit.contains(key.expert);
  }
  template <class HotSet>
  static placement reserve(HotSet& hot, const visit_lookup& visit, std::span<const slot_id> victims,
                           visit_plan& plan) noexcept {
    auto& draft = detail::draft_of(plan);
    const auto misses = visit.misses();
    const auto from_free = misses.size() - victims.size();
    const auto key = [&](std::size_t j) {
      return expert_key{draft.context.layer, draft.experts[misses[j]]};
    };
    fill* const fills = draft.fills.data();
    for (std::size_t j = 0; j < from_free; ++j)
      fills[j] = hot.held.reserve_free(key(j), draft.context.pool);
    for (std::size_t j = from_free; j < misses.size(); ++j)
      fills[j] = hot.held.reserve_victim(key(j), victims[j - from_free]);
    for (std::size_t j = 0; j < misses.size(); ++j) draft.slots[misses[j]] = fills[j].slot;
    draft.count.fills = static_cast<std::uint32_t>(misses.size());
    draft.count.replacing = static_cast<std::uint32_t>(victims.size());
    return {};
  }
};

}  // namespace hotset
