// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Experts of a layer on the ranks of expert parallelism: how many slots there are, and which expert each slot holds.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/ids.hpp"

namespace hotset {

/// Ranks and slots of one layer. Rank r holds the slots r * slots_per_rank and on. Ranks are numbered node by node.
struct placement_shape {
  std::int32_t experts = 0;
  std::int32_t ranks = 1;
  std::int32_t slots_per_rank = 0;
  std::int32_t nodes = 1;
  /// Groups of a router that sends a token to few groups, such as DeepSeek-V3's 8. With several nodes, all experts of a
  /// group stay in one node. 1: every expert may stay in every node.
  std::int32_t groups = 1;

  /// The shape with as many slots as experts plus `redundant`. Errors: those of validate(); ranks do not divide the
  /// slots.
  static result<placement_shape> of(std::int32_t experts, std::int32_t redundant,
                                    std::int32_t ranks, std::int32_t nodes = 1,
                                    std::int32_t groups = 1) {
    const auto slots = std::int64_t{experts} + redundant;
    if (ranks < 1) return refusal("ranks = ", ranks, ", accepted: 1 or more");
    if (redundant < 0) return refusal("redundant = ", redundant, ", accepted: 0 or more");
    if (slots % ranks != 0)
      return refusal(experts, " experts and ", redundant, " redundant on ", ranks,
                     " ranks, accepted: a sum that the ranks divide, such as redundant = ",
                     redundant + ranks - slots % ranks);
    const placement_shape out{experts, ranks, static_cast<std::int32_t>(slots / ranks), nodes,
                              groups};
    if (auto bad = out.validate()) return *std::move(bad);
    return out;
  }

  [[nodiscard]] constexpr std::int32_t slots() const noexcept { return ranks * slots_per_rank; }
  [[nodiscard]] constexpr std::int32_t rank_of(std::size_t slot) const noexcept {
    return static_cast<std::int32_t>(slot) / slots_per_rank;
  }
  /// Number of nodes that the rule keeps apart: 1 if every expert may stay in every node.
  [[nodiscard]] constexpr std::int32_t separate_nodes() const noexcept {
    return groups > 1 ? nodes : 1;
  }
  /// Ranks that may hold the same experts.
  [[nodiscard]] constexpr std::int32_t ranks_per_node() const noexcept {
    return ranks / separate_nodes();
  }

  /// Errors: the first value that no placement can have, with what is accepted.
  [[nodiscard]] validation validate() const {
    constexpr std::int32_t most = 4096;
    if (experts < 1 || experts > most)
      return refusal("experts = ", experts, ", accepted: 1 to ", most);
    if (ranks < 1 || ranks > most) return refusal("ranks = ", ranks, ", accepted: 1 to ", most);
    if (nodes < 1 || ranks % nodes != 0)
      return refusal("nodes = ", nodes, ", accepted: a divisor of the ", ranks, " ranks");
    if (groups < 1 || experts % groups != 0)
      return refusal("groups = ", groups, ", accepted: a divisor of the ", experts, " experts");
    if (groups > 1 && groups % nodes != 0)
      return refusal("groups = ", groups, ", accepted: 1, or a multiple of the ", nodes, " nodes");
    const auto of_node = experts / separate_nodes();
    const auto least = (of_node + ranks_per_node() - 1) / ranks_per_node();
    if (slots_per_rank < least || slots_per_rank > of_node)
      return refusal("slots_per_rank = ", slots_per_rank, ", accepted: ", least, " to ", of_node,
                     ", so that each expert has a slot and no rank holds one twice");
    return {};
  }
};

/// The expert of each slot of a layer.
using expert_placement = std::vector<expert_id>;

/// Number of slots that hold each expert. Pre: ids are within `experts`.
[[nodiscard]] inline std::vector<std::int32_t> replicas_of(std::int32_t experts,
                                                           std::span<const expert_id> placed) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(experts), 0);
  for (const auto e : placed) ++out[index_of(e)];
  return out;
}

/// Checks a placement that was read or given. A rank may hold an expert twice: engines start so.
/// Errors: another number of slots, an id that is no expert, an expert without a slot.
[[nodiscard]] inline validation check_placement(const placement_shape& shape,
                                                std::span<const expert_id> placed) {
  if (std::int64_t{shape.slots()} != static_cast<std::int64_t>(placed.size()))
    return refusal("a placement of ", placed.size(), " slots, accepted: ", shape.slots());
  for (std::size_t i = 0; i < placed.size(); ++i)
    if (!is_within(placed[i], shape.experts))
      return refusal("slot ", i, " holds expert ", placed[i], ", accepted: 0 to ",
                     shape.experts - 1);
  const auto replicas = replicas_of(shape.experts, placed);
  for (const auto e : each<expert_id>(shape.experts))
    if (replicas[index_of(e)] == 0)
      return refusal("no slot holds expert ", e, ", accepted: at least one for each expert");
  return {};
}

/// Number of experts that ranks hold in `after` and not in `before`: these weights move.
/// Complexity: O(slots * slots_per_rank). Pre: both are of this shape.
[[nodiscard]] inline std::int64_t moved_experts(const placement_shape& shape,
                                                std::span<const expert_id> before,
                                                std::span<const expert_id> after) {
  const auto width = static_cast<std::size_t>(shape.slots_per_rank);
  std::int64_t moved = 0;
  for (std::size_t slot = 0; slot < after.size(); ++slot) {
    const auto first = slot - slot % width;
    const auto held = before.subspan(first, width);
    const auto seen = after.subspan(first, slot - first);
    const auto e = after[slot];
    moved += std::ranges::find(held, e) == held.end() && std::ranges::find(seen, e) == seen.end();
  }
  return moved;
}

/// Orders the experts of each rank so that an expert that stays on its rank stays in its slot.
[[nodiscard]] inline expert_placement in_kept_slots(const placement_shape& shape,
                                                    std::span<const expert_id> before,
                                                    expert_placement after) {
  const auto width = static_cast<std::size_t>(shape.slots_per_rank);
  for (std::size_t first = 0; first < after.size(); first += width)
    for (std::size_t i = first; i < first + width; ++i) {
      // A slot is settled if it holds its expert of before: it takes nothing from a settled one.
      if (after[i] == before[i]) continue;
      for (std::size_t j = first; j < first + width; ++j)
        if (after[j] == before[i] && after[j] != before[j]) {
          std::swap(after[i], after[j]);
          break;
        }
    }
  return after;
}

}  // namespace hotset
