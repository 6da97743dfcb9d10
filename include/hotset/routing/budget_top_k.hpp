// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Routes at most as many absent experts as slots were freed for them.
///
/// Rule: a token keeps the longest prefix of its ranking whose absent experts fit into the free slots; it always
///   keeps its best expert. Tokens share the free slots in their order; an absent expert counts once per visit.
///   Weights are scaled so that the kept ones have the sum of all. A visit without freed slots is unchanged.
/// Source: ActiveEvict 3.4, equations 18 to 21.
/// Deviations: a visit without freed slots is unchanged: its prefix would end at the first miss, nothing would be
///   copied, and the layer would freeze. `keep_hits` (ours) refuses the same misses and keeps the hits that rank
///   lower. Equation 4 scales to 1, which is the same if a router normalises.
/// Exact: no.
/// Cost: O(K) per token and, for tokens after the first, O(K) per absent expert taken before.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/ids/id_view.hpp"
#include "hotset/policy/routing_policy.hpp"

namespace hotset {

class budget_top_k {
 public:
  struct config {
    bool keep_hits = false;  ///< a refused miss does not end the prefix
    /// Parameters by name, as in `budget_top_k:keep_hits=true`.
    template <class From>
    static config read(From& from) {
      return {from.choice("keep_hits", {"false", "true"}, 0) == 1};
    }
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr std::string_view name = "budget_top_k";
  static constexpr routing_traits traits{.needs_free_slots = true};

  budget_top_k(const geometry& shape, const config& options)
      : keep_hits_(options.keep_hits), experts_(shape.expert_count()), top_k_(shape.ranks()) {
    taken_.reserve(experts_);
  }

  /// `weights` may be empty if they are not wanted; then the view's may be empty too. Errors: invalid_visit if an
  /// array's length is not the model's.
  status route(const routing_view& view, const residency_view& residents,
               std::span<expert_id> selected, std::span<float> weights) noexcept {
    if (!fits(view, residents, selected, weights)) return status::invalid_visit;
    hand_on(view, selected, weights);
    if (residents.free_slots < 0) return status::ok;
    taken_.clear();
    auto free = static_cast<std::size_t>(residents.free_slots);
    for (std::size_t first = 0; first < selected.size(); first += top_k_)
      shorten(selected.subspan(first, top_k_),
              weights.empty() ? weights : weights.subspan(first, top_k_), residents, free);
    return status::ok;
  }

 private:
  [[nodiscard]] bool fits(const routing_view& view, const residency_view& residents,
                          id_view<expert_id> selected,
                          std::span<const float> weights) const noexcept {
    const auto places = view.experts.size();
    return places % top_k_ == 0 && selected.size() == places && residents.row.size() == experts_ &&
           (weights.empty() || (weights.size() == places && view.weights.size() == places));
  }
  /// Keeps the experts that a token may have, in order. Fills the rest with -1 of weight 0.
  void shorten(std::span<expert_id> ids, std::span<float> weights, const residency_view& residents,
               std::size_t& free) noexcept {
    double all = 0.0;
    double left = 0.0;
    std::size_t kept = 0;
    bool ended = false;
    for (std::size_t k = 0; k < top_k_; ++k) {
      const auto weight = weights.empty() ? 0.0F : weights[k];
      all += double{weight};
      if (ended || !is_expert(ids[k])) continue;
      if (!has_room(ids[k], residents, kept == 0, free)) {
        ended = !keep_hits_;
        continue;
      }
      left += double{weight};
      if (!weights.empty()) weights[kept] = weight;
      ids[kept++] = ids[k];
    }
    std::fill(ids.begin() + static_cast<std::ptrdiff_t>(kept), ids.end(), no_expert);
    if (weights.empty()) return;
    std::fill(weights.begin() + static_cast<std::ptrdiff_t>(kept), weights.end(), 0.0F);
    if (left > 0.0 && left != all)
      for (auto& w : weights.first(kept)) w = static_cast<float>(double{w} * (all / left));
  }
  /// Returns whether an expert needs no slot, or a slot is free for it. A token's first expert takes one even if none
  /// is free.
  bool has_room(expert_id expert, const residency_view& residents, bool is_first,
                std::size_t& free) noexcept {
    if (residents.row[index_of(expert)] != no_slot) return true;
    if (std::ranges::find(taken_, expert) != taken_.end()) return true;
    if (free == 0 && !is_first) return false;
    if (free != 0) --free;
    taken_.push_back(expert);
    return true;
  }
  [[nodiscard]] bool is_expert(expert_id id) const noexcept {
    return id >= 0 && index_of(id) < experts_;
  }

  bool keep_hits_;
  std::size_t experts_;
  std::size_t top_k_;
  std::vector<expert_id> taken_;  // absent experts that earlier tokens of the visit have
};

static_assert(routing_policy<budget_top_k>);

}  // namespace hotset
