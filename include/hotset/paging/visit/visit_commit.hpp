// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Commits a visit: assigns slots to its copies and notifies the eviction policy.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/paging/pager_parts.hpp"
#include "hotset/paging/residency/residents.hpp"
#include "hotset/paging/speculation.hpp"
#include "hotset/paging/visit/visit_lookup.hpp"
#include "hotset/paging/visit/visit_plan.hpp"

namespace hotset {

/// Converts a plan, in order of first use, to events in order of last use. No allocation after construction.
class visit_commit {
 public:
  visit_commit(const geometry& shape, std::size_t slots)
      : used_(shape.distinct_per_visit()),
        experts_(used_.size()),
        weights_(used_.size()),
        fills_(used_.size()),
        bypassed_(used_.size()),
        fill_in_(slots, 0) {}

  template <class Parts>
  HOTSET_FLATTEN void run(Parts& parts, const visit_lookup& visit, visit_plan& plan) noexcept {
    const auto& draft = detail::draft_of(plan);
    parts.ledger.commit(plan);
    if (draft.count.fills != 0) place(parts, plan);
    if (parts.speculating()) speculation::meet(parts, plan);
    notify_eviction(parts, visit, draft, visit.counted(plan));
  }

 private:
  /// Assigns each fill's slot to its key.
  template <class Parts>
  [[gnu::noinline]] HOTSET_FLATTEN static void place(Parts& parts,
                                                     const visit_plan& plan) noexcept {
    const auto& context = plan.context();
    auto& ledger = parts.ledger;
    // Reports losses to all parts except the eviction policy, whose on_visit covers them.
    const bool is_plain =
        parts.held.layout().precisions() == 1 && !parts.removed.listens() && !parts.speculating();
    // Every miss was classified and has a copy.
    const bool is_judged = is_plain && plan.fills().size() == ledger.visit.misses;
    std::uint64_t demand = 0;
    std::uint64_t again = 0;
    parts.held.hold(context.layer, plan.fills(), [&](const fill& f, std::uint64_t bytes) {
      bool is_upgrade = false;
      if (!is_plain)
        is_upgrade = give_up(parts, f);
      else if (f.victim != no_key) {
        ledger.evicted(f.victim);
        if (!parts.admits_all()) parts.admission.on_evict(f.victim, context.step);
      }
      demand += bytes;
      if (!is_judged && !is_upgrade && ledger.was_evicted(f.key, context.step)) again += bytes;
    });
    if (is_judged) again = demand / plan.fills().size() * ledger.visit.collisions;
    ledger.totals.bytes_demand += demand;
    ledger.filled(context.layer, demand);
    if (plan.groups() == 1) ledger.totals.bytes_refetched += again;
  }
  /// Removes the residents that the copy replaces: its victim, and a copy of its key at lower precision. Returns true
  /// if there was such a copy.
  template <class Parts>
  [[gnu::noinline]] static bool give_up(Parts& parts, const fill& f) noexcept {
    const auto lower = parts.held.map().locate(f.key);
    if (lower != no_slot) parts.release(lower, loss::outdone);
    if (f.victim != no_key) parts.account_loss(f.slot, f.victim);
    return lower != no_slot;
  }

  /// Sends one event for each pool that the plan uses, at least one. Pre: its fills have their slots.
  template <class Parts>
  void notify_eviction(Parts& parts, const visit_lookup& visit, const plan_draft& draft,
                       std::span<const std::uint8_t> counted) noexcept {
    if (parts.held.layout().precisions() != 1 || draft.reordered)
      return notify_in_order(parts, visit, draft, counted);
    if (draft.count.host != 0) return notify_admitted(parts, visit, draft, counted);
    const std::size_t count = draft.count.distinct;
    parts.eviction.on_visit(
        visit_event{.context = draft.context,
                    .used = std::span(draft.slots).first(count),
                    .fills = std::span(draft.fills).first(draft.count.fills),
                    .experts = std::span(draft.experts).first(count),
                    .weights = std::span(draft.weights).first(visit.weighs() ? count : 0),
                    .counted = counted});
  }
  /// Sends the event if some experts have no slot.
  template <class Parts>
  [[gnu::noinline]] void notify_admitted(Parts& parts, const visit_lookup& visit,
                                         const plan_draft& draft,
                                         std::span<const std::uint8_t> counted) noexcept {
    std::size_t count = 0;
    std::size_t bypassed = 0;
    // Branchless because refused misses are unpredictable.
    for (std::size_t i = 0; i < draft.count.distinct; ++i) {
      const auto slot = draft.slots[i];
      used_[count] = slot;
      experts_[count] = draft.experts[i];
      weights_[count] = draft.weights[i];
      bypassed_[bypassed] = {draft.experts[i], draft.weights[i]};
      const auto absent = static_cast<std::uint32_t>(slot) >> 31U;
      count += 1 - absent;
      bypassed += absent;
    }
    const auto refused = std::span(bypassed_).first(bypassed);
    saw(parts, draft, refused);
    parts.eviction.on_visit(
        visit_event{.context = draft.context,
                    .used = std::span(used_).first(count),
                    .fills = std::span(draft.fills).first(draft.count.fills),
                    .experts = std::span(experts_).first(count),
                    .weights = std::span(weights_).first(visit.weighs() ? count : 0),
                    .bypassed = refused,
                    .counted = counted});
  }
  template <class Parts>
  static void saw(Parts& parts, const plan_draft& draft,
                  std::span<const bypassed_use> refused) noexcept {
    for (const auto& use : refused) parts.ledger.saw({draft.context.layer, use.expert});
  }
  template <class Parts>
  [[gnu::noinline]] void notify_in_order(Parts& parts, const visit_lookup& visit,
                                         const plan_draft& draft,
                                         std::span<const std::uint8_t> counted) noexcept {
    for (std::uint32_t j = 0; j < draft.count.fills; ++j) fill_in_[draft.fills[j].slot] = j;
    const auto bypassed = collect_bypassed(draft);
    saw(parts, draft, bypassed);
    bool begins = true;
    const auto& layout = parts.held.layout();
    for (const auto precision : each<precision_id>(layout.precisions())) {
      auto context = draft.context;
      context.pool = layout.pool_of(context.layer, precision);
      visit_event event{.context = context, .counted = counted, .precision = precision};
      collect(draft, parts.held, visit.weighs(), event);
      const bool is_last = index_of(precision) + 1 == layout.precisions();
      if (event.used.empty() && !(begins && is_last)) continue;
      event.begins = begins;
      if (begins) event.bypassed = bypassed;
      begins = false;
      parts.eviction.on_visit(event);
    }
  }
  std::span<const bypassed_use> collect_bypassed(const plan_draft& draft) noexcept {
    std::size_t count = 0;
    for (std::size_t n = 0; draft.count.host != 0 && n < draft.count.distinct; ++n)
      if (const auto i = draft.at(n); draft.service_of(i) == service::host)
        bypassed_[count++] = {draft.experts[i], draft.weights[i]};
    return std::span(bypassed_).first(count);
  }
  /// Fills the event with the uses of slots at its precision.
  void collect(const plan_draft& draft, const residents& held, bool weighed,
               visit_event& event) noexcept {
    std::size_t count = 0;
    std::size_t filled = 0;
    for (std::size_t n = 0; n < draft.count.distinct; ++n) {
      const auto i = draft.at(n);
      const auto how = draft.service_of(i);
      const auto slot = draft.slots[i];
      if (how == service::host || held.precision_of(slot) != event.precision) continue;
      used_[count] = slot;
      experts_[count] = draft.experts[i];
      weights_[count++] = draft.weights[i];
      if (how == service::fill) fills_[filled++] = draft.fills[fill_in_[slot]];
    }
    event.used = std::span(used_).first(count);
    event.experts = std::span(experts_).first(count);
    event.weights = std::span(weights_).first(weighed ? count : 0);
    event.fills = std::span(fills_).first(filled);
  }

  // Scratch for one event.
  std::vector<slot_id> used_;
  std::vector<expert_id> experts_;
  std::vector<double> weights_;
  std::vector<fill> fills_;
  std::vector<bypassed_use> bypassed_;
  per_slot<std::uint32_t> fill_in_;  ///< [slot] index of its fill in the plan
};

}  // namespace hotset
