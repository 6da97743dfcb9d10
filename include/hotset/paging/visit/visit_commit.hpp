// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The second half of a visit: its copies get their slots, and the policies are told.

#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/paging/hot_set.hpp"
#include "hotset/paging/residency/residents.hpp"
#include "hotset/paging/speculation.hpp"
#include "hotset/paging/visit/visit_events.hpp"
#include "hotset/paging/visit/visit_lookup.hpp"
#include "hotset/paging/visit/visit_plan.hpp"
#include "hotset/policy/eviction_policy.hpp"

namespace hotset {

/// It has no state. `Decisions` is the pager's miss_decisions.
template <class HotSet, class Decisions>
struct visit_commit {
  using eviction_type = typename HotSet::eviction_type;
  using admission_type = typename HotSet::admission_type;

  HOTSET_FLATTEN static void run(HotSet& hot, visit_lookup& visit, visit_events& events,
                                 visit_plan& plan) noexcept {
    auto& draft = plan.draft();
    hot.ledger.commit(plan);
    if (draft.count.fills != 0) is_undivided(hot) ? place_together(hot, plan) : place(hot, plan);
    if (hot.speculating()) speculation::meet(hot, plan);
    events.tell(draft, hot.held, visit.weighs(), visit.counted(plan),
                [&](const visit_event& event) { hot.eviction.on_visit(event); });
    if (draft.count.host != 0) see_bypassed(hot, draft);
    if constexpr (!admission_type::traits.admits_all) tell_admission(hot, visit, plan);
    if (plan.groups() != 1) visit.count(plan);
  }

  /// What an admission policy is told of the plan's expert i.
  [[nodiscard]] static expert_use describe(const residents& held, const plan_draft& draft,
                                           std::size_t i) noexcept {
    expert_use a;
    a.key = {draft.context.layer, draft.experts[i]};
    a.slot = draft.slots[i];
    a.pool = draft.context.pool;
    Decisions::locate(a, held);
    a.step = draft.context.step;
    a.ordinal = draft.context.ordinal;
    a.kind = draft.context.kind;
    if constexpr (eviction_type::traits.needs_weights) {
      a.weight = draft.weights[i];
      a.rank = draft.ranks[i];
    }
    return a;
  }

 private:
  /// True if all copies of a visit are of one pool, and nobody but the eviction policy hears of what leaves.
  static bool is_undivided(HotSet& hot) noexcept {
    return admission_type::traits.admits_all && hot.held.layout().precisions() == 1 &&
           !hot.departed.listens() && !hot.speculating();
  }
  /// As place, each part of it for all copies.
  [[gnu::noinline]] HOTSET_FLATTEN static void place_together(HotSet& hot,
                                                              const visit_plan& plan) noexcept {
    const auto& context = plan.context();
    const auto fills = plan.fills();
    const std::size_t replacing = plan.draft().count.replacing;
    const auto bytes_each =
        hot.held.hold(context.layer, context.pool, fills, replacing, hot.ledger.leave());
    hot.ledger.filled(context, fills, replacing, bytes_each, plan.groups() == 1);
  }
  /// Gives each fill's slot to its key.
  [[gnu::noinline]] HOTSET_FLATTEN static void place(HotSet& hot, const visit_plan& plan) noexcept {
    auto& held = hot.held;
    auto& ledger = hot.ledger;
    for (const auto& f : plan.fills()) {
      const auto lower = Decisions::outdone(held, f.key);
      if (lower != no_slot) hot.release(lower, loss::outdone);
      if (f.victim != no_key) hot.account_loss(f.slot, f.victim);
      const auto bytes = held.hold(f);
      const bool whole = lower == no_slot && plan.groups() == 1;
      ledger.totals.bytes_demand += bytes;
      if (whole && ledger.was_evicted(f.key, plan.context().step))
        ledger.totals.bytes_refetched += bytes;
      ledger.saw(f.key);
    }
  }
  [[gnu::noinline]] static void see_bypassed(HotSet& hot, const plan_draft& draft) noexcept {
    for (std::size_t i = 0; i < draft.count.distinct; ++i)
      if (draft.services[i] == service::host)
        hot.ledger.saw({draft.context.layer, draft.experts[i]});
  }
  /// Of each distinct expert, in the order of its last use.
  static void tell_admission(HotSet& hot, const visit_lookup& visit,
                             const visit_plan& plan) noexcept {
    const auto& draft = plan.draft();
    const auto services = plan.services();
    const auto counted = visit.counted(plan);
    for (std::size_t j = 0; j < draft.count.distinct; ++j) {
      const std::size_t i = draft.reordered ? draft.order[j] : j;
      auto a = describe(hot.held, draft, i);
      a.repeated = !counted.empty() && counted[index_of(a.key.expert)] != 0;
      hot.admission.on_use(a, services[i] == service::hit, services[i] != service::host);
    }
  }
};

}  // namespace hotset
