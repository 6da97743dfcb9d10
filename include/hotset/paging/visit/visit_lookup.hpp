// SPDX-License-Identifier: Apache-2.0
#pragma once
/// First part of a plan: finds the distinct experts of a visit or of one of its groups, their slots, and the misses.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/paging/residency/residents.hpp"
#include "hotset/paging/visit/visit_groups.hpp"
#include "hotset/paging/visit/visit_plan.hpp"

namespace hotset {

/// Complexity: O(routed ids). No allocation after construction.
class visit_lookup {
 public:
  /// `weigh`: plans carry gate weights. `refuse_unknown`: `check` refuses ids that are neither an expert nor
  /// -1.
  visit_lookup(const geometry& shape, visit_split how, bool weigh, bool refuse_unknown)
      : layers_(shape.layers),
        top_k_(shape.ranks()),
        most_ids_(shape.tokens_per_visit() * top_k_),
        capacity_(shape.distinct_per_visit()),
        weigh_(weigh),
        refuse_unknown_(refuse_unknown),
        unique_(shape.expert_count(), most_ids_),
        groups_(shape, how),
        all_tokens_(shape.tokens_per_visit()),
        misses_(capacity_),
        uses_(capacity_) {
    std::iota(all_tokens_.begin(), all_tokens_.end(), 0U);
  }

  /// Most distinct experts of a plan.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// Errors: invalid_visit, visit_too_large, invalid_argument (a plan of another shape).
  [[nodiscard]] status check(const routing_view& view, const visit_plan& plan) const noexcept {
    if (view.layer < 0 || view.layer >= layers_) return status::invalid_visit;
    if (view.kind > request_class::verify) return status::invalid_visit;
    if (view.experts.size() > most_ids_) return status::visit_too_large;
    // Avoids a division for one token.
    if (view.experts.size() != top_k_ && view.experts.size() % top_k_ != 0)
      return status::invalid_visit;
    if (!view.weights.empty() && view.weights.size() != view.experts.size())
      return status::invalid_visit;
    if (plan.capacity() != capacity_) return status::invalid_argument;
    if (refuse_unknown_ && names_unknown(view.experts)) return status::invalid_visit;
    return status::ok;
  }

  /// Starts the plan of a visit: its experts, their slots, and its misses. Pre: check(view, plan) is ok.
  void begin(const routing_view& view, const residents& held, visit_plan& plan) noexcept {
    auto& draft = detail::draft_of(plan);
    draft.reset();
    // Assigned member by member: copying the struct stalls on store forwarding.
    auto& context = draft.context;
    context.layer = view.layer;
    context.pool = held.layout().pool_of_layer(view.layer);
    context.step = view.step;
    context.ordinal = view.ordinal;
    context.kind = view.kind;
    draft.routed = view.experts;
    const auto ids = view.experts.size();
    draft.tokens = std::span(all_tokens_).first(ids == top_k_ ? 1 : ids / top_k_);
    look_up(view.experts, view.weights, held, plan);
    draft.count.ignored = unique_.ignored();
    if (unique_.unknown()) [[unlikely]]
      hide_unknown(draft);
  }
  /// Looks up `ids` instead of the visit's own. `weights`: their weights, or empty.
  void look_up(id_view<expert_id> ids, std::span<const float> weights, const residents& held,
               visit_plan& plan) noexcept {
    auto& draft = detail::draft_of(plan);
    const slot_id* const located = held.map().located(draft.context.layer).data();
    expert_id* const experts = draft.experts.data();
    slot_id* const slots = draft.slots.data();
    std::int32_t any_absent = 0;
    const auto count = unique_.collect(ids, [&](std::size_t at, expert_id id) {
      const slot_id slot = located[static_cast<std::uint32_t>(id)];
      experts[at] = id;
      slots[at] = slot;
      any_absent |= number(slot);
    });
    draft.count.distinct = count;
    miss_count_ = any_absent < 0 ? find_misses(draft) : 0;
    draft.reordered = unique_.repeated();
    if (draft.reordered) unique_.last_appearance_order(ids, draft.order.data());
    if (weigh_) weigh(ids, weights, draft);
  }

  /// Divides the visit that was looked up in `plan` into groups of at most `room` slots. Errors: those of
  /// visit_groups::divide.
  status divide(const routing_view& view, const residents& held, const visit_plan& plan,
                std::size_t room) noexcept {
    return groups_.divide(view, plan, room, [&](expert_id id) {
      return takes_room(held, plan, unique_.place_of(id));
    });
  }
  /// Leaves misses of the visit in `plan` on the host until the rest needs at most `room` slots; at least one miss.
  /// Misses with the fewest routed places go first; ties: the later one. Pre: there is a miss. Complexity: O(routed
  /// ids + left misses * misses).
  void leave_least_used(const routing_view& view, const residents& held, std::size_t room,
                        visit_plan& plan) noexcept {
    auto& draft = detail::draft_of(plan);
    std::size_t needed = 0;
    for (std::size_t i = 0; i < draft.count.distinct; ++i)
      needed += takes_room(held, plan, i) ? 1U : 0U;
    std::fill_n(uses_.begin(), draft.count.distinct, 0U);
    for (const auto id : view.experts)
      if (const auto at = unique_.place_of(id); at < draft.count.distinct) ++uses_[at];
    for (auto left = needed > room ? needed - room : 1; left-- > 0 && miss_count_ != 0;) {
      const auto all = misses();
      draft.leave_on_host(*std::ranges::min_element(all, [this](std::uint32_t a, std::uint32_t b) {
        return uses_[a] != uses_[b] ? uses_[a] < uses_[b] : a > b;
      }));
      collect_misses(draft);
    }
  }
  /// Starts the plan of a group of the divided visit. Decisions about the whole visit stay in the plan.
  void begin_group(std::size_t group, const residents& held, visit_plan& plan) noexcept {
    auto& draft = detail::draft_of(plan);
    draft.count = {.ignored = draft.count.ignored,
                   .groups = static_cast<std::uint32_t>(groups_.count()),
                   .group = static_cast<std::uint32_t>(group)};
    draft.context.ordinal = groups_.visit().ordinal + group;  // each group is an event
    draft.all_hits = true;
    const auto part = groups_.group(group);
    look_up(part.ids, part.weights, held, plan);
    draft.expert_wise = groups_.how() == visit_split::by_expert;
    if (!draft.expert_wise)
      draft.tokens = part.tokens;
    else if (weigh_)
      weigh(groups_.visit().experts, groups_.visit().weights, draft);
    // Experts that admission refused for the visit stay refused in all of its groups.
    for (std::size_t i = 0; i < draft.count.distinct; ++i)
      if (groups_.refused(draft.experts[i])) draft.leave_on_host(i);
    collect_misses(draft);
  }
  [[nodiscard]] const visit_groups& groups() const noexcept { return groups_; }
  /// True if plans carry gate weights.
  [[nodiscard]] bool weighs() const noexcept { return weigh_; }
  /// [experts of a layer] 1 if an earlier group of the plan's visit used the expert; empty if the visit has one group.
  [[nodiscard]] std::span<const std::uint8_t> counted(const visit_plan& plan) const noexcept {
    return plan.groups() == 1 ? std::span<const std::uint8_t>() : groups_.counted();
  }
  /// Records the experts of the plan's group as used.
  void count(const visit_plan& plan) noexcept {
    for (const auto expert : plan.experts()) groups_.count(expert);
  }

  /// True if the last look-up found the expert.
  [[nodiscard]] bool contains(expert_id id) const noexcept { return unique_.contains(id); }

  /// Positions in the plan of experts that need a copy, ascending.
  [[nodiscard]] std::span<const std::uint32_t> misses() const noexcept {
    return std::span(misses_).first(miss_count_);
  }
  /// Collects the misses again after services changed: experts whose service is `fill`.
  void collect_misses(const plan_draft& draft) noexcept {
    miss_count_ = 0;
    if (draft.all_hits) return;
    // Branchless because admitted misses are unpredictable.
    for (std::uint32_t i = 0; i < draft.count.distinct; ++i) {
      misses_[miss_count_] = i;
      miss_count_ += draft.services[i] == service::fill ? 1U : 0U;
    }
  }

 private:
  [[nodiscard]] bool names_unknown(id_view<expert_id> ids) const noexcept {
    return std::ranges::any_of(ids, [this](expert_id id) { return unique_.is_unknown(id); });
  }
  /// Replaces unknown ids by no_expert: a kernel that looked them up would read outside its row.
  [[gnu::cold]] void hide_unknown(plan_draft& draft) const noexcept {
    for (auto& id : draft.edit_routed())
      if (unique_.is_unknown(id)) id = no_expert;
  }
  /// True if the plan's expert i needs a slot that is available.
  [[nodiscard]] static bool takes_room(const residents& held, const visit_plan& plan,
                                       std::size_t i) noexcept {
    const auto how = plan.services()[i];
    return how == service::hit ? held.is_evictable(plan.slots()[i]) : how == service::fill;
  }
  /// Computes sums of gate weights, in routed order, of the experts of the last look-up.
  [[gnu::noinline]] void weigh(id_view<expert_id> ids, std::span<const float> weights,
                               plan_draft& draft) const noexcept {
    std::fill_n(draft.weights.begin(), draft.count.distinct, 0.0);
    if (weights.empty()) return;
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (const auto at = unique_.place_of(ids[i]); at < draft.count.distinct)
        draft.weights[at] += static_cast<double>(weights[i]);
  }

  std::size_t find_misses(plan_draft& draft) noexcept {
    static_assert(static_cast<int>(service::hit) == 0 && static_cast<int>(service::fill) == 1);
    std::uint32_t* const misses = misses_.data();
    const slot_id* const slots = draft.slots.data();
    service* const services = draft.services.data();
    const auto distinct = draft.count.distinct;
    std::size_t missing = 0;
    // Branchless because the missing ids are unpredictable.
    for (std::uint32_t i = 0; i < distinct; ++i) {
      const auto absent = static_cast<std::uint32_t>(slots[i]) >> 31U;
      services[i] = static_cast<service>(absent);
      misses[missing] = i;
      missing += absent;
    }
    draft.all_hits = false;
    return missing;
  }

  std::int32_t layers_;
  std::size_t top_k_;
  std::size_t most_ids_;
  std::size_t capacity_;
  bool weigh_;
  bool refuse_unknown_;
  unique_ids unique_;
  visit_groups groups_;
  std::vector<std::uint32_t> all_tokens_;  ///< 0, 1, 2, ...
  std::vector<std::uint32_t> misses_;
  std::size_t miss_count_ = 0;
  std::vector<std::uint32_t> uses_;  ///< scratch: number of routed places of each expert
};

}  // namespace hotset
