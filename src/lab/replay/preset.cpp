// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/preset.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "lab/errors.hpp"

namespace hotset::lab {

namespace {

constexpr std::string_view dropped_in = "+least_stale";

/// Configurations of SpecMD's Table 1.
std::vector<policy_set> specmd_sets() {
  return {
      {.eviction = "lru", .prefetch = "next_layer_top_k", .preset = "specmd-1"},
      {.eviction = "gate_score",
       .prefetch = "score_threshold",
       .miss = "substitute",
       .preset = "specmd-2"},
      {.eviction = "lhu",
       .prefetch = "next_layer_top_k",
       .miss = "fetch_priority",
       .preset = "specmd-3"},
      {.eviction = "lru", .routing = "cache_aware", .preset = "specmd-4"},
      {.eviction = "least_stale", .prefetch = "score_threshold", .preset = "specmd-5"},
  };
}
/// Systems of SpecMD's Table 2 with a configuration.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> aliases{
    {{"eliseev-23", "specmd-1"},
     {"zhu-25", "specmd-2"},
     {"hobbit-24", "specmd-3"},
     {"mixture-cache-25", "specmd-4"}}};

constexpr const char* learned = "learned-gate";

/// Systems that fMoE and ActiveEvict compare, and these two themselves. Each fetches every miss and keeps the
/// router's choice.
std::vector<policy_set> systems() {
  return {
      {.eviction = "lru", .preset = "on-demand"},
      {.eviction = "lru", .prefetch = "previous_step", .preset = "deepspeed"},
      {.eviction = "lru", .prefetch = "popular", .preset = "brainstorm"},
      {.eviction = "lru", .prefetch = "next_layer_top_k", .preset = "mixtral-offloading"},
      // The system predicts at a stride of three layers only.
      {.eviction = "lru",
       .prefetch = "next_layer_top_k:depth=3:from=3",
       .predictor = learned,
       .preset = "promoe"},
      // The system ranks all later layers; the depth is cut to the existing ones. Its predictor discounts them by
      // distance, so the queue must not.
      {.eviction = "reserve_prefetch+activation_ratio",
       .prefetch = "next_layer_top_k:depth=1000",
       .predictor = "activation-matrix",
       .prefetch_order = "greatest",
       .preset = "moe-infinity"},
      {.eviction = "expert_map_priority",
       .prefetch = "cumulative_probability",
       .predictor = "expert-map",
       .prefetch_order = "likeliest",
       .preset = "fmoe"},
      {.eviction = "importance", .pre_eviction = "active_evict", .preset = "active-evict"},
  };
}

std::vector<policy_set> all_presets() {
  auto sets = specmd_sets();
  std::ranges::move(systems(), std::back_inserter(sets));
  // An oracle, not an online system, with the accuracy that ActiveEvict's Table 2 measured for MoE-APEX on Mixtral.
  sets.push_back({.eviction = "lru",
                  .prefetch = "noisy_oracle:precision=0.889:recall=0.909",
                  .preset = "moe-apex"});
  // A prefetch may evict any victim of the eviction policy: only then does Least-Stale gain.
  for (auto& set : sets)
    if (set.preset != "fmoe") set.guard = "none";
  return sets;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& set : all_presets()) names.push_back(set.preset);
  for (const auto& [alias, name] : aliases) names.emplace_back(alias);
  return names;
}

std::vector<std::string> system_names() {
  std::vector<std::string> names;
  for (const auto& set : systems()) names.push_back(set.preset);
  return names;
}

policy_set make_preset(std::string_view name) {
  auto base = name;
  const bool swapped = base.ends_with(dropped_in);
  if (swapped) base.remove_suffix(dropped_in.size());
  for (const auto& [alias, of] : aliases)
    if (base == alias) base = of;
  auto sets = all_presets();
  const auto found = std::ranges::find(sets, base, &policy_set::preset);
  if (found == sets.end())
    refuse_name("unknown preset", name, preset_names(),
                fmt::format(", each also with {}", dropped_in));
  found->preset = name;
  if (swapped) found->eviction = "least_stale";
  return std::move(*found);
}

std::vector<policy_set> combine_policies(const policy_lists& lists, const policy_set& plain) {
  std::vector<policy_set> sets;
  for (const auto& name : lists.presets) sets.push_back(make_preset(name));
  if (sets.empty()) sets.push_back(plain);
  for (const auto& kind : policy_kinds) {
    if ((lists.*kind.list).empty()) continue;
    std::vector<policy_set> varied;
    for (const auto& set : sets)
      for (const auto& choice : lists.*kind.list) varied.emplace_back(set).*kind.choice = choice;
    sets = std::move(varied);
  }
  if (lists.gate_weights.empty()) return sets;
  if (std::ranges::find(sets, learned, &policy_set::predictor) == sets.end())
    throw usage_error("no predictor reads --gate-weights, accepted: with --preset promoe");
  for (auto& set : sets)
    if (set.predictor == learned) set.predictor += ":weights=" + lists.gate_weights;
  return sets;
}

std::vector<policy_set> all_systems(const std::string& gate_weights) {
  auto sets = combine_policies({.presets = system_names(), .gate_weights = gate_weights});
  auto bound = sets.front();
  bound.preset = bound.eviction = "belady";
  sets.push_back(std::move(bound));
  return sets;
}

}  // namespace hotset::lab
