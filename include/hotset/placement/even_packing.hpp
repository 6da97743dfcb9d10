// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Places experts by the sums of their loads: the rule that engines have.
///
/// Rule: each further slot goes to the expert with the largest load per replica. Replicas, the heaviest first, then go
///   to the lightest rank that has a free slot. With groups and several nodes, groups first go to nodes in the same
///   way, and replicas stay in their node.
/// Source: DeepSeek's Expert Parallelism Load Balancer, rebalance_experts of deepseek-ai/EPLB.
/// Deviations: loads are integers, so that every processor and compiler gives the same bits; a replica's load is in
///   2^-20 tokens. Ties go to the lowest index.
/// Cost: O(slots * (experts + ranks)).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/placement/placement_shape.hpp"

namespace hotset {

namespace detail {

/// Indices of the heaviest first; equal ones ascend.
[[nodiscard]] inline std::vector<std::size_t> heaviest_first(std::span<const std::uint64_t> loads) {
  std::vector<std::size_t> out(loads.size());
  std::iota(out.begin(), out.end(), std::size_t{0});
  std::ranges::stable_sort(out, std::ranges::greater{}, [&](std::size_t i) { return loads[i]; });
  return out;
}

/// Puts equally many items into each bin, the heaviest first into the lightest bin with room. Returns the items of each
/// bin. Pre: bins divide the items.
[[nodiscard]] inline std::vector<std::vector<std::size_t>> packed_evenly(
    std::span<const std::uint64_t> loads, std::size_t bins) {
  const auto room = loads.size() / bins;
  std::vector<std::vector<std::size_t>> out(bins);
  std::vector<std::uint64_t> filled(bins, 0);
  if (room == 1) {  // the published rule leaves single items in order
    for (std::size_t i = 0; i < bins; ++i) out[i] = {i};
    return out;
  }
  for (const auto item : heaviest_first(loads)) {
    std::size_t lightest = bins;
    for (std::size_t b = 0; b < bins; ++b)
      if (out[b].size() < room && (lightest == bins || filled[b] < filled[lightest])) lightest = b;
    out[lightest].push_back(item);
    filled[lightest] += loads[item];
  }
  return out;
}

/// The experts of `slots` slots: each expert once, in order, then the replicas.
[[nodiscard]] inline std::vector<std::size_t> replicated(std::span<const std::uint64_t> loads,
                                                         std::size_t slots) {
  std::vector<std::size_t> out(loads.size());
  std::iota(out.begin(), out.end(), std::size_t{0});
  std::vector<std::uint64_t> replicas(loads.size(), 1);
  while (out.size() < slots) {
    std::size_t heaviest = 0;
    for (std::size_t e = 1; e < loads.size(); ++e)  // loads as fractions, without a division
      if (loads[e] * replicas[heaviest] > loads[heaviest] * replicas[e]) heaviest = e;
    out.push_back(heaviest);
    ++replicas[heaviest];
  }
  return out;
}

/// Appends the slots of a node's ranks. `members`: the node's experts.
// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): in the order of even_packing's shape
inline void pack_node(std::span<const std::size_t> members, std::span<const std::uint64_t> loads,
                      std::size_t ranks, std::size_t slots, expert_placement& out) {
  std::vector<std::uint64_t> own;
  own.reserve(members.size());
  for (const auto e : members) own.push_back(loads[e]);
  const auto experts = replicated(own, slots);
  std::vector<std::uint64_t> replicas(own.size(), 0);
  for (const auto e : experts) ++replicas[e];
  std::vector<std::uint64_t> weights;
  weights.reserve(experts.size());
  for (const auto e : experts) weights.push_back((own[e] << 20U) / replicas[e]);
  for (const auto& rank : packed_evenly(weights, ranks))
    for (const auto i : rank) out.push_back(static_cast<expert_id>(members[experts[i]]));
}

}  // namespace detail

/// Places the experts of a layer. Pre: the shape is valid; loads [experts], at most 2^43 tokens in all.
[[nodiscard]] inline expert_placement even_packing(const placement_shape& shape,
                                                   std::span<const std::uint64_t> loads) {
  const auto nodes = static_cast<std::size_t>(shape.separate_nodes());
  const auto groups = static_cast<std::size_t>(nodes > 1 ? shape.groups : 1);
  const auto width = loads.size() / groups;
  std::vector<std::uint64_t> of_group(groups, 0);
  for (std::size_t e = 0; e < loads.size(); ++e) of_group[e / width] += loads[e];
  expert_placement out;
  out.reserve(static_cast<std::size_t>(shape.slots()));
  for (const auto& node : detail::packed_evenly(of_group, nodes)) {
    std::vector<std::size_t> members;
    for (const auto g : node)
      for (std::size_t e = g * width; e < (g + 1) * width; ++e) members.push_back(e);
    detail::pack_node(members, loads, static_cast<std::size_t>(shape.ranks_per_node()),
                      static_cast<std::size_t>(shape.slots()) / nodes, out);
  }
  return out;
}

/// The placement with which vLLM and SGLang start: the experts in order, then the first ones again.
[[nodiscard]] inline expert_placement placement_in_order(const placement_shape& shape) {
  expert_placement out;
  for (std::int32_t slot = 0; slot < shape.slots(); ++slot)
    out.push_back(static_cast<expert_id>(slot % shape.experts));
  return out;
}

}  // namespace hotset
