// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/preset.hpp"

#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lab/errors.hpp"

namespace hotset::lab {

namespace {

struct preset {
  std::string_view name;
  std::string_view alias{};  ///< the system, in SpecMD's Table 2; or empty
  std::string_view prefetch, eviction;
  std::string_view miss = "fetch";
  std::string_view routing = "router_order";
  std::string_view predictor = "recorded";
  std::string_view pre_eviction = "none";
  /// A prefetch may evict whatever the eviction policy picks: that is where Least-Stale's gain shows.
  std::string_view guard = "none";
  std::string_view prefetch_order = "nearest";
};

// The configurations of SpecMD's Table 1.
constexpr std::array<preset, 5> specmd{{
    {"specmd-1", "eliseev-23", "next_layer_top_k", "lru"},
    {"specmd-2", "zhu-25", "score_threshold", "gate_score", "substitute"},
    {"specmd-3", "hobbit-24", "next_layer_top_k", "lhu", "fetch_priority"},
    {"specmd-4", "mixture-cache-25", "no_prefetch", "lru", "fetch", "cache_aware"},
    {"specmd-5", "", "score_threshold", "least_stale"},
}};
// The systems that fMoE and ActiveEvict compare, and these two. Each fetches every miss and keeps the router's choice.
// ProMoE predicts at a stride of three layers, and at no other distance.
constexpr std::string_view stride = "next_layer_top_k:depth=3:from=3";
// MoE-Infinity ranks all later layers (a depth is cut to those that exist); its predictor discounts them by distance, so
// the queue must not.
constexpr std::string_view all_ahead = "next_layer_top_k:depth=1000";
constexpr std::string_view learned = "learned-gate";
constexpr std::array<preset, 8> systems{{
    {.name = "on-demand", .prefetch = "no_prefetch", .eviction = "lru"},
    {.name = "deepspeed", .prefetch = "previous_step", .eviction = "lru"},
    {.name = "brainstorm", .prefetch = "popular", .eviction = "lru"},
    {.name = "mixtral-offloading", .prefetch = "next_layer_top_k", .eviction = "lru"},
    {.name = "promoe", .prefetch = stride, .eviction = "lru", .predictor = learned},
    {.name = "moe-infinity",
     .prefetch = all_ahead,
     .eviction = "reserve_prefetch+activation_ratio",
     .predictor = "activation-matrix",
     .prefetch_order = "greatest"},
    {.name = "fmoe",
     .prefetch = "cumulative_probability",
     .eviction = "expert_map_priority",
     .predictor = "expert-map",
     .guard = "named",
     .prefetch_order = "likeliest"},
    {.name = "active-evict",
     .prefetch = "no_prefetch",
     .eviction = "importance",
     .pre_eviction = "active_evict"},
}};
// No system that decides on-line: an oracle with the accuracy that ActiveEvict's Table 2 measured for MoE-APEX on Mixtral.
constexpr preset moe_apex{
    .name = "moe-apex", .prefetch = "noisy_oracle:precision=0.889:recall=0.909", .eviction = "lru"};
constexpr std::string_view dropped_in = "+least_stale";

template <class Use>
void each_preset(Use use) {
  for (const auto& p : specmd) use(p);
  for (const auto& p : systems) use(p);
  use(moe_apex);
}

policy_set policies_of(const preset& p, std::string_view name) {
  policy_set out;
  out.preset = name;
  out.eviction = p.eviction;
  out.prefetch = p.prefetch;
  out.guard = p.guard;
  out.prefetch_order = p.prefetch_order;
  out.miss = p.miss;
  out.routing = p.routing;
  out.pre_eviction = p.pre_eviction;
  out.predictor = p.predictor;
  return out;
}

void vary(std::vector<policy_set>& sets, std::string policy_set::*kind,
          const std::vector<std::string>& choices) {
  if (choices.empty()) return;
  std::vector<policy_set> varied;
  for (const auto& set : sets) {
    for (const auto& choice : choices) {
      varied.push_back(set);
      varied.back().*kind = choice;
    }
  }
  sets = std::move(varied);
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  each_preset([&](const preset& p) { names.emplace_back(p.name); });
  for (const auto& p : specmd)
    if (!p.alias.empty()) names.emplace_back(p.alias);
  return names;
}

std::vector<std::string> system_names() {
  std::vector<std::string> names;
  names.reserve(systems.size());
  for (const auto& p : systems) names.emplace_back(p.name);
  return names;
}

policy_set make_preset(std::string_view name) {
  auto base = name;
  const bool swapped = base.ends_with(dropped_in);
  if (swapped) base.remove_suffix(dropped_in.size());
  std::optional<policy_set> found;
  each_preset([&](const preset& p) {
    if (base == p.name || (!p.alias.empty() && base == p.alias)) found = policies_of(p, name);
  });
  if (!found)
    refuse_name("unknown preset", name, preset_names(),
                fmt::format(", each also with {}", dropped_in));
  if (swapped) found->eviction = "least_stale";
  return *std::move(found);
}

std::vector<policy_set> combine_policies(const policy_lists& lists, const policy_set& plain) {
  std::vector<policy_set> sets;
  for (const auto& name : lists.presets) sets.push_back(make_preset(name));
  if (sets.empty()) sets.push_back(plain);
  for (const auto& kind : policy_kinds) vary(sets, kind.choice, lists.*kind.list);
  if (!lists.gate_weights.empty())
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
