// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The second half of a visit: its copies get their slots, and the policies are told, in routed order.

#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/core/access.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/platform/flatten.hpp"
#include "hotset/paging/hot_set.hpp"
#include "hotset/paging/speculation.hpp"
#include "hotset/paging/visit_lookup.hpp"
#include "hotset/residency/residents.hpp"
#include "hotset/visit/visit_plan.hpp"

namespace hotset::inline v0 {

/// It has no state. `Decisions` is the pager's miss_decisions.
template <class HotSet, class Decisions>
struct visit_commit {
  using eviction_type = typename HotSet::eviction_type;
  using admission_type = typename HotSet::admission_type;

  /// `takes_visits`: the policy hears of whole visits where it can.
  static void run(HotSet& hot, visit_lookup& visit, visit_plan& plan, bool takes_visits) noexcept {
    const bool at_once = takes_visits && is_plain(plan.draft());
    if (plan.draft().count.fills != 0 && is_undivided(hot)) {
      run_together(hot, visit, plan, at_once);
      if (!at_once) notify(hot, visit, plan);
    } else {
      run_divided(hot, visit, plan, at_once);
    }
  }

  /// What a policy is told of the plan's expert i.
  [[nodiscard]] static access describe(const residents& held, const plan_draft& draft,
                                       std::size_t i) noexcept {
    access a;
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
  /// True if the plan's order is the order of use and no one needs to hear of how an expert was served.
  static bool is_plain(const plan_draft& draft) noexcept {
    return admission_type::traits.admits_all && draft.count.host == 0 && !draft.reordered &&
           draft.count.groups == 1;
  }
  /// True if all copies of a visit are of one pool, and nobody but the eviction policy hears of what leaves.
  static bool is_undivided(HotSet& hot) noexcept {
    return admission_type::traits.admits_all && hot.held.layout().precisions() == 1 &&
           !hot.departed.listens() && !hot.speculating();
  }
  /// As run_divided, each part of it for all copies.
  [[gnu::noinline]] HOTSET_FLATTEN static void run_together(HotSet& hot, const visit_lookup& visit,
                                                            const visit_plan& plan,
                                                            bool at_once) noexcept {
    const auto& context = plan.context();
    const auto fills = plan.fills();
    hot.ledger.commit(plan);
    tell_step(hot.eviction, context.step, context.layer);
    const std::size_t replacing = plan.draft().count.replacing;
    const auto bytes_each =
        hot.held.hold(context.layer, context.pool, fills, replacing, hot.ledger.leave());
    hot.ledger.filled(context, fills, replacing, bytes_each, plan.groups() == 1);
    auto told = fills.size();
    if constexpr (eviction_type::traits.hears_replacements)
      if (at_once && facts_of(hot.eviction).hears_replacements) told -= replacing;
    for (std::size_t j = 0; j < told; ++j) {
      const auto& f = fills[j];
      if (f.victim != no_key) hot.eviction.on_evict(f.slot, f.victim);
      if (at_once) hot.eviction.on_fill(describe(hot.held, plan.draft(), visit.misses()[j]));
    }
    if constexpr (eviction_type::traits.hears_replacements)
      if (told != fills.size()) hot.eviction.on_replace(context, fills.subspan(told));
    if (at_once) tell_visit(hot.eviction, plan);
  }
  HOTSET_FLATTEN static void run_divided(HotSet& hot, visit_lookup& visit, visit_plan& plan,
                                         bool at_once) noexcept {
    auto& draft = plan.draft();
    hot.ledger.commit(plan);
    tell_step(hot.eviction, draft.context.step, draft.context.layer);
    if (draft.count.fills != 0) place_fills(hot, visit, plan, at_once);
    if (hot.speculating()) speculation::meet(hot, plan);
    if (at_once)
      tell_visit(hot.eviction, plan);
    else
      notify(hot, visit, plan);
  }
  static void tell_visit(eviction_type& eviction, const visit_plan& plan) noexcept {
    hotset::tell_visit(eviction, plan.context(), plan.slots(),
                       std::span(plan.draft().weights).first(plan.draft().count.distinct));
  }
  /// Gives each fill's slot to its key.
  [[gnu::noinline]] HOTSET_FLATTEN static void place_fills(HotSet& hot, const visit_lookup& visit,
                                                           const visit_plan& plan,
                                                           bool at_once) noexcept {
    auto& held = hot.held;
    auto& ledger = hot.ledger;
    const auto fills = plan.fills();
    for (std::size_t j = 0; j < fills.size(); ++j) {
      const auto& f = fills[j];
      const auto lower = Decisions::outdone(held, f.key);
      if (lower != no_slot) hot.release(lower, loss::outdone);
      if (f.victim != no_key) hot.tell_loss(f.slot, f.victim);
      const auto bytes = held.hold(f);
      const bool whole = lower == no_slot && plan.groups() == 1;
      ledger.totals.bytes_demand += bytes;
      if (whole && ledger.was_evicted(f.key, plan.context().step))
        ledger.totals.bytes_refetched += bytes;
      ledger.saw(f.key);
      if (at_once) hot.eviction.on_fill(describe(held, plan.draft(), visit.misses()[j]));
    }
  }
  /// Tells the policies of each distinct expert, in the order of its last appearance.
  static void notify(HotSet& hot, visit_lookup& visit, const visit_plan& plan) noexcept {
    const auto& draft = plan.draft();
    if (!is_plain(draft)) return notify_each(hot, visit, plan);
    if (draft.all_hits) return notify_hits(hot, draft);
    for (std::size_t i = 0; i < draft.count.distinct; ++i)
      if (draft.services[i] == service::hit)
        hot.eviction.on_hit(describe(hot.held, draft, i));
      else
        hot.eviction.on_fill(describe(hot.held, draft, i));
  }
  static void notify_hits(HotSet& hot, const plan_draft& draft) noexcept {
    for (std::size_t i = 0; i < draft.count.distinct; ++i)
      hot.eviction.on_hit(describe(hot.held, draft, i));
  }
  [[gnu::noinline]] static void notify_each(HotSet& hot, visit_lookup& visit,
                                            const visit_plan& plan) noexcept {
    const auto& draft = plan.draft();
    const auto services = plan.services();
    for (std::size_t j = 0; j < draft.count.distinct; ++j) {
      const std::size_t i = draft.reordered ? draft.order[j] : j;
      auto a = describe(hot.held, draft, i);
      if (draft.count.groups > 1) a.repeated = !visit.count_once(a.key.expert);
      tell(hot, a, services[i]);
    }
  }
  static void tell(HotSet& hot, const access& a, service how) noexcept {
    if (how == service::hit) {
      hot.eviction.on_hit(a);
    } else if (how == service::fill) {
      hot.eviction.on_fill(a);
    } else {
      hot.ledger.saw(a.key);
      tell_bypass(hot.eviction, a);
    }
    if constexpr (!admission_type::traits.admits_all)
      hot.admission.on_use(a, how == service::hit, how != service::host);
  }
};

}  // namespace hotset::inline v0
