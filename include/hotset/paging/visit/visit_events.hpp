// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Makes of a plan that is committed the events that the eviction policy hears.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/paging/residency/residents.hpp"
#include "hotset/paging/visit/plan_draft.hpp"

namespace hotset {

/// A plan lists experts in the order of their first use; an event, in the order of their last. No allocation after construction.
class visit_events {
 public:
  visit_events(const geometry& shape, std::size_t slots)
      : used_(plan_draft::capacity_for(shape)),
        experts_(used_.size()),
        weights_(used_.size()),
        fills_(used_.size()),
        bypassed_(used_.size()),
        fill_in_(slots, 0) {}

  /// Calls tell(event) for each pool that the plan uses, at least once. Pre: its fills have their slots. `weighed`: its
  /// weights are written.
  template <class Tell>
  void tell(const plan_draft& draft, const residents& held, bool weighed,
            std::span<const std::uint8_t> counted, Tell tell) noexcept {
    const auto precisions = held.layout().precisions();
    if (precisions != 1 || draft.reordered || draft.count.host != 0)
      return tell_in_order(draft, held, weighed, counted, tell);
    const std::size_t count = draft.count.distinct;
    tell(visit_event{.context = draft.context,
                     .used = std::span(draft.slots).first(count),
                     .fills = std::span(draft.fills).first(draft.count.fills),
                     .experts = std::span(draft.experts).first(count),
                     .weights = std::span(draft.weights).first(weighed ? count : 0),
                     .counted = counted});
  }

 private:
  template <class Tell>
  [[gnu::noinline]] void tell_in_order(const plan_draft& draft, const residents& held, bool weighed,
                                       std::span<const std::uint8_t> counted, Tell tell) noexcept {
    for (std::uint32_t j = 0; j < draft.count.fills; ++j) fill_in_[draft.fills[j].slot] = j;
    const auto bypassed = collect_bypassed(draft, weighed);
    bool begins = true;
    const auto& layout = held.layout();
    for (const auto precision : each<precision_id>(layout.precisions())) {
      auto context = draft.context;
      context.pool = layout.pool_of(context.layer, precision);
      visit_event event{.context = context, .counted = counted, .precision = precision};
      collect(draft, held, precision, weighed, event);
      const bool is_last = index_of(precision) + 1 == layout.precisions();
      if (event.used.empty() && !(begins && is_last)) continue;
      event.begins = begins;
      if (begins) event.bypassed = bypassed;
      begins = false;
      tell(event);
    }
  }
  [[nodiscard]] static std::size_t at(const plan_draft& draft, std::size_t i) noexcept {
    return draft.reordered ? draft.order[i] : i;
  }
  [[nodiscard]] static service service_of(const plan_draft& draft, std::size_t i) noexcept {
    return draft.all_hits ? service::hit : draft.services[i];
  }
  std::span<const bypassed_use> collect_bypassed(const plan_draft& draft, bool weighed) noexcept {
    std::size_t count = 0;
    for (std::size_t n = 0; draft.count.host != 0 && n < draft.count.distinct; ++n) {
      const auto i = at(draft, n);
      if (service_of(draft, i) == service::host)
        bypassed_[count++] = {draft.experts[i], weighed ? draft.weights[i] : 0.0};
    }
    return std::span(bypassed_).first(count);
  }
  /// What lies in slots of the precision.
  void collect(const plan_draft& draft, const residents& held, precision_id precision, bool weighed,
               visit_event& event) noexcept {
    std::size_t count = 0;
    std::size_t filled = 0;
    for (std::size_t n = 0; n < draft.count.distinct; ++n) {
      const auto i = at(draft, n);
      const auto how = service_of(draft, i);
      const auto slot = draft.slots[i];
      if (how == service::host || held.precision_of(slot) != precision) continue;
      used_[count] = slot;
      experts_[count] = draft.experts[i];
      if (weighed) weights_[count] = draft.weights[i];
      if (how == service::fill) fills_[filled++] = draft.fills[fill_in_[slot]];
      ++count;
    }
    event.used = std::span(used_).first(count);
    event.experts = std::span(experts_).first(count);
    event.weights = std::span(weights_).first(weighed ? count : 0);
    event.fills = std::span(fills_).first(filled);
  }

  // Scratch: of one event.
  std::vector<slot_id> used_;
  std::vector<expert_id> experts_;
  std::vector<double> weights_;
  std::vector<fill> fills_;
  std::vector<bypassed_use> bypassed_;
  per_slot<std::uint32_t> fill_in_;  ///< [slot] place in the plan of its fill
};

}  // namespace hotset
