// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Divides a visit that does not fit its pool into groups that fit, and keeps the state between them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/paging/visit/token_groups.hpp"
#include "hotset/paging/visit/visit_plan.hpp"

namespace hotset {

/// Handling of a visit that does not fit.
enum class visit_split : std::uint8_t {
  by_token,  ///< split into token groups; each token's sum is computed whole: exact
  /// Split by expert with fewer copies; each token's sum is computed in parts: not exact.
  by_expert,
  refuse,      ///< refused as status::does_not_fit, for an engine that cannot run a layer in parts
  leave_rest,  ///< not split; the experts with the fewest routed places stay on the host
};

/// Memory: allocated once for the largest visit. No allocation afterwards.
class visit_groups {
 public:
  visit_groups(const geometry& shape, visit_split how)
      : how_(how),
        top_k_(shape.ranks()),
        tokens_(shape),
        counted_(shape.expert_count(), 0),
        refused_(shape.expert_count(), 0),
        ids_(shape.tokens_per_visit() * top_k_),
        weights_(ids_.size()) {
    experts_.reserve(std::min(shape.expert_count(), ids_.size()));
    begin_.reserve(experts_.capacity() + 1);
  }

  /// The routing of one group, served like a visit.
  struct group_view {
    id_view<expert_id> ids;
    std::span<const float> weights;  ///< empty if the visit has no weights, or if split by expert
    std::span<const std::uint32_t> tokens;  ///< ascending; empty (all tokens) if split by expert
  };

  /// Divides the visit that was looked up in `plan` into groups of at most `room` slots. takes_room(expert) is true if
  /// the expert needs a slot. Pre: how() is by_token or by_expert. Errors: invalid_visit (ids are no multiple of
  /// top_k), no_victim (one token does not fit).
  template <class TakesRoom>
  status divide(const routing_view& view, const visit_plan& plan, std::size_t room,
                TakesRoom takes_room) noexcept {
    view_ = view;
    ++serial_;
    std::ranges::fill(counted_, std::uint8_t{0});
    for (std::size_t i = 0; i < plan.experts().size(); ++i)
      if (plan.services()[i] == service::host) refused_[plan.experts()[i]] = serial_;
    if (how_ == visit_split::by_expert) return divide_experts(plan, room, takes_room);
    if (view.experts.size() % top_k_ != 0) return status::invalid_visit;
    if (!tokens_.build(view.experts, room, takes_room)) return status::no_victim;
    count_ = tokens_.groups();
    return status::ok;
  }

  [[nodiscard]] visit_split how() const noexcept { return how_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// The divided visit.
  [[nodiscard]] const routing_view& visit() const noexcept { return view_; }
  /// Pre: group < count(). The spans are valid until the next call.
  [[nodiscard]] group_view group(std::size_t group) noexcept {
    if (how_ == visit_split::by_expert)
      return {
          std::span(experts_).subspan(begin_[group], begin_[group + 1] - begin_[group]), {}, {}};
    const auto tokens = tokens_.tokens(group);
    const bool weighted = !view_.weights.empty();
    std::size_t count = 0;
    for (const std::size_t token : tokens)
      for (std::size_t r = 0; r < top_k_; ++r, ++count) {
        ids_[count] = view_.experts[token * top_k_ + r];
        if (weighted) weights_[count] = view_.weights[token * top_k_ + r];
      }
    return {std::span(ids_).first(count), std::span(weights_).first(weighted ? count : 0), tokens};
  }

  /// True if admission refused the expert for the visit. It stays refused in all groups.
  [[nodiscard]] bool refused(expert_id expert) const noexcept {
    return refused_[expert] == serial_;
  }
  /// Records that a group uses the expert.
  void count(expert_id expert) noexcept { counted_[expert] = 1; }
  /// [experts of a layer] 1 if a group of the visit has used the expert.
  [[nodiscard]] std::span<const std::uint8_t> counted() const noexcept { return counted_; }

 private:
  /// Groups residents first, so that they are used before their slots are evicted.
  template <class TakesRoom>
  status divide_experts(const visit_plan& plan, std::size_t room, TakesRoom takes_room) noexcept {
    if (room == 0) return status::no_victim;
    experts_.clear();
    for (const auto wanted : {service::hit, service::fill, service::host})
      for (std::size_t i = 0; i < plan.experts().size(); ++i)
        if (plan.services()[i] == wanted) experts_.push_back(plan.experts()[i]);
    begin_.clear();
    begin_.push_back(0);
    std::size_t used = 0;
    for (std::size_t i = 0; i < experts_.size(); ++i) {
      const std::size_t cost = takes_room(experts_[i]) ? 1 : 0;
      if (used + cost > room) {
        begin_.push_back(i);
        used = 0;
      }
      used += cost;
    }
    begin_.push_back(experts_.size());
    count_ = begin_.size() - 1;
    return status::ok;
  }

  visit_split how_;
  std::size_t top_k_;
  token_groups tokens_;
  routing_view view_{};
  std::size_t count_ = 0;
  std::uint64_t serial_ = 0;           ///< serial of the current visit
  per_expert<std::uint8_t> counted_;   ///< 1 if a group of the visit has used the expert
  per_expert<std::uint64_t> refused_;  ///< serial of the last visit that refused the expert
  std::vector<expert_id> experts_;     ///< by expert only: in group order
  std::vector<std::size_t> begin_;     ///< by expert only: first expert of each group
  std::vector<expert_id> ids_;         ///< by token only: ids of the requested group
  std::vector<float> weights_;
};

}  // namespace hotset
