// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Applies a miss policy to the misses of a visit, and reserves slots for the rest.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/paging/demand.hpp"
#include "hotset/paging/precision_placement.hpp"
#include "hotset/paging/residency/residents.hpp"
#include "hotset/paging/visit/visit_lookup.hpp"
#include "hotset/paging/visit/visit_plan.hpp"
#include "hotset/policy/miss_policy.hpp"
#include "hotset/policy/policy_config.hpp"

namespace hotset {

/// Calls the policy before a visit is served, for absent experts and copies below the highest precision. A policy that
/// fetches everything at the only precision is not called and needs no memory. No allocation after construction.
template <miss_policy Miss>
class miss_decisions {
 public:
  miss_decisions(const pool_layout& layout, const typename Miss::config& setup,
                 const visit_lookup& visit)
      : policy_(layout.shape(), setup),
        fetches_all_(layout.precisions() == 1 && facts_of(policy_).fetches_all),
        precisions_(layout.precisions()),
        top_k_(layout.shape().ranks()),
        asked_(fetches_all_ ? 0 : visit.capacity()),
        decisions_(asked_.size()),
        left_out_(asked_.size()),
        wanted_(fetches_all_ ? 0 : layout.shape().expert_count()),
        placement_(layout, asked_.size()) {}

  /// Checks that the layout has the precisions that the miss policy needs.
  static validation check(const pool_layout& layout, const typename Miss::config& setup) {
    const auto precisions = layout.precisions();
    if (facts_of_config<Miss>(setup).fetches_all) {
      if (precisions == 1) return std::nullopt;
      return refusal("the layout has ", precisions,
                     " precisions and the miss policy fetches everything, accepted: 1 precision");
    }
    if (precisions == layout.shape().precisions()) return std::nullopt;
    return refusal("the layout has ", precisions, " precisions and the experts have ",
                   layout.shape().precisions(), ", accepted: pools for each precision");
  }

  [[nodiscard]] const Miss& policy() const noexcept { return policy_; }
  /// The precision of prefetched copies.
  [[nodiscard]] precision_id prefetch_precision() noexcept {
    return std::min(policy_.prefetch_precision(), lowest());
  }

  /// Calls the policy for the visit that was looked up. Updates `visit` and `plan` to the remaining experts and
  /// returns their view. The view is valid until the next call.
  template <class Parts>
  const routing_view& decide(Parts& parts, visit_lookup& visit, const routing_view& view,
                             visit_plan& plan) noexcept {
    return fetches_all_ ? view : ask(parts, visit, view, plan);
  }

  /// Reserves slots for misses like demand::place, at the precisions that the policy requests.
  template <class Parts>
  placement place(Parts& parts, visit_lookup& visit, visit_plan& plan) noexcept {
    if constexpr (!Miss::traits.fetches_all)
      if (precisions_ != 1)
        return placement_.place(parts, visit, plan, [this](expert_id e) { return wish_of(e); });
    return demand::place(parts, visit, plan);
  }

  /// Called when a visit's first group is committed: counts dropped and substituted experts as used, and passes the
  /// weights to the policy.
  template <class Ledger>
  void settle(Ledger& ledger, const visit_plan& plan) noexcept {
    if (fetches_all_ || plan.group() != 0) return;
    for (std::size_t j = 0; j < left_out_count_; ++j)
      ledger.saw({plan.context().layer, left_out_[j]});
    policy_.observe(observed_);
  }

 private:
  struct wanted {
    std::uint32_t asked = 0;  ///< index in asked_
    precision_id precision{};
  };
  [[nodiscard]] precision_id lowest() const noexcept {
    return static_cast<precision_id>(precisions_ - 1);
  }

  template <class Parts>
  [[gnu::noinline]] const routing_view& ask(Parts& parts, visit_lookup& visit,
                                            const routing_view& view, visit_plan& plan) noexcept {
    effective_ = view;
    left_out_count_ = 0;
    if (!describe(parts.held, visit, view, plan)) return effective_;
    parts.ledger.judge(plan, visit.misses());
    auto& draft = detail::draft_of(plan);
    const auto ids = draft.edit_routed();
    policy_.decide(std::span(asked_).first(asked_count_), view,
                   {parts.held.map().located(view.layer)}, ids,
                   std::span(decisions_).first(asked_count_));
    if (leave_out(parts.ledger.visit, ids)) {
      draft.edited = true;
      draft.all_hits = true;  // the remaining experts may all be hits
      effective_.experts = ids;
      visit.look_up(ids, view.weights, parts.held, plan);
    }
    draft.judged = true;
    carry_out(parts, visit, draft);
    return effective_;
  }
  /// Collects the visit's experts that are absent or below the highest precision into asked_. Returns false if there
  /// are none.
  bool describe(const residents& held, const visit_lookup& visit, const routing_view& view,
                const visit_plan& plan) noexcept {
    observed_ = view.weights;
    asked_count_ = 0;
    if (visit.misses().empty() && precisions_ == 1) return false;
    for (std::size_t i = 0; i < plan.experts().size(); ++i) {
      const auto slot = plan.slots()[i];
      const auto precision = slot == no_slot ? miss::absent : held.precision_of(slot);
      if (precision == 0) continue;
      const auto e = plan.experts()[i];
      asked_[asked_count_] = {.expert = e,
                              .uses = 0,
                              .rank = std::numeric_limits<std::uint16_t>::max(),
                              .weight = view.weights.empty() ? 1.0F : 0.0F,
                              .held = precision};
      wanted_[e] = {static_cast<std::uint32_t>(asked_count_++), {}};
    }
    if (asked_count_ != 0) count_uses(view);
    return asked_count_ != 0;
  }
  /// True if the policy decided about the expert in this visit.
  [[nodiscard]] bool was_asked(expert_id e) const noexcept {
    const auto at = wanted_[e].asked;
    return at < asked_count_ && asked_[at].expert == e;
  }
  void count_uses(const routing_view& view) noexcept {
    for (std::size_t i = 0, rank = 0; i < view.experts.size();
         ++i, rank = rank + 1 == top_k_ ? 0 : rank + 1) {
      const auto e = view.experts[i];
      if (e < 0 || index_of(e) >= wanted_.size()) continue;
      if (!was_asked(e)) continue;
      auto& one = asked_[wanted_[e].asked];
      ++one.uses;
      one.rank = std::min(one.rank, static_cast<std::uint16_t>(rank));
      if (!view.weights.empty()) one.weight = std::max(one.weight, view.weights[i]);
    }
  }
  /// Removes dropped experts from the routed ids. Returns whether the ids differ from the router's.
  template <class Counts>
  bool leave_out(Counts& counts, std::span<expert_id> ids) noexcept {
    for (std::size_t j = 0; j < asked_count_; ++j) {
      const auto action = decisions_[j].action;
      HOTSET_ASSERT(action != miss_action::keep || asked_[j].held != miss::absent);
      if (action != miss_action::drop && action != miss_action::substitute) continue;
      ++(action == miss_action::drop ? counts.dropped : counts.substituted);
      if (action == miss_action::drop)
        std::replace(ids.begin(), ids.end(), asked_[j].expert, no_expert);
      if (asked_[j].held == miss::absent)
        left_out_[left_out_count_++] = asked_[j].expert;
      else
        ++counts.too_low;
    }
    return counts.dropped + counts.substituted != 0;
  }
  /// Marks experts that stay on the host, and sets the precision of fetched ones. A resident copy of too low a
  /// precision counts as a miss; its slot is kept until a better copy is committed. A copy that is outstanding or read
  /// by an open visit is not replaced.
  template <class Parts>
  void carry_out(Parts& parts, visit_lookup& visit, plan_draft& draft) noexcept {
    auto& counts = parts.ledger.visit;
    for (std::size_t i = 0; i < draft.count.distinct; ++i) {
      if (!was_asked(draft.experts[i])) continue;
      auto& want = wanted_[draft.experts[i]];
      const auto& decision = decisions_[want.asked];
      const auto slot = draft.slots[i];
      if (decision.action == miss_action::host) {
        counts.too_low += slot != no_slot ? 1U : 0U;
        draft.leave_on_host(i);
      } else if (decision.action == miss_action::fetch) {
        want.precision = std::min(decision.precision, lowest());
        if (slot == no_slot || want.precision >= parts.held.precision_of(slot) ||
            !parts.held.is_evictable(slot))
          continue;
        draft.write_services();
        draft.services[i] = service::fill;
        ++counts.too_low;
      }
    }
    visit.collect_misses(draft);
    counts.bypasses = draft.count.host;
  }
  /// Returns a default for experts that the policy did not decide about: in a later group of a split visit, a resident
  /// expert may have lost its slot.
  [[nodiscard]] precision_placement::wish wish_of(expert_id e) const noexcept {
    if (!was_asked(e)) return {};
    const auto& want = wanted_[e];
    return {asked_[want.asked].weight, want.precision};
  }

  Miss policy_;
  bool fetches_all_;
  std::size_t precisions_;
  std::size_t top_k_;
  std::vector<miss> asked_;
  std::size_t asked_count_ = 0;
  std::vector<miss_decision> decisions_;
  std::vector<expert_id> left_out_;  ///< misses that the policy dropped or substituted
  std::size_t left_out_count_ = 0;
  per_expert<wanted> wanted_;          ///< [experts]; see was_asked
  std::span<const float> observed_{};  ///< weights of the visit
  routing_view effective_{};
  precision_placement placement_;
};

}  // namespace hotset
