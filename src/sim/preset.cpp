// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/preset.hpp"

#include <array>

#include <fmt/format.h>

#include "hotset/sim/errors.hpp"

namespace hotset::inline v0::sim {

namespace {

struct preset {
  std::string_view name;   ///< in SpecMD's Table 1
  std::string_view alias;  ///< the system, in its Table 2; or empty
  std::string_view prefetch, eviction, miss, routing;
};

// A prefetch may evict whatever the eviction policy picks: that is where Least-Stale's gain shows.
constexpr std::string_view guard = "none";
constexpr std::array<preset, 5> presets{{
    {"specmd-1", "eliseev-23", "next_layer_top_k", "lru", "fetch", "router_order"},
    {"specmd-2", "zhu-25", "score_threshold", "gate_score", "substitute", "router_order"},
    {"specmd-3", "hobbit-24", "next_layer_top_k", "lhu", "fetch_priority", "router_order"},
    {"specmd-4", "mixture-cache-25", "no_prefetch", "lru", "fetch", "cache_aware"},
    {"specmd-5", "", "score_threshold", "least_stale", "fetch", "router_order"},
}};
constexpr std::string_view dropped_in = "+least_stale";

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  names.reserve(2 * presets.size());
  for (const auto& p : presets) names.emplace_back(p.name);
  for (const auto& p : presets)
    if (!p.alias.empty()) names.emplace_back(p.alias);
  return names;
}

policy_set make_preset(std::string_view name) {
  auto base = name;
  const bool swapped = base.ends_with(dropped_in);
  if (swapped) base.remove_suffix(dropped_in.size());
  for (const auto& p : presets) {
    if (base != p.name && (p.alias.empty() || base != p.alias)) continue;
    policy_set out;
    out.preset = name;
    out.eviction = swapped ? "least_stale" : p.eviction;
    out.prefetch = p.prefetch;
    out.guard = guard;
    out.miss = p.miss;
    out.routing = p.routing;
    return out;
  }
  refuse_name("unknown preset", name, preset_names(),
              fmt::format(", each also with {}", dropped_in));
}

std::vector<policy_set> combine_policies(const policy_lists& lists, const policy_set& plain) {
  std::vector<policy_set> sets;
  for (const auto& name : lists.presets) sets.push_back(make_preset(name));
  if (sets.empty()) sets.push_back(plain);
  const auto vary = [&](std::string policy_set::*kind, const std::vector<std::string>& choices) {
    if (choices.empty()) return;
    std::vector<policy_set> varied;
    for (const auto& set : sets) {
      for (const auto& choice : choices) {
        varied.push_back(set);
        varied.back().*kind = choice;
      }
    }
    sets = std::move(varied);
  };
  vary(&policy_set::pre_eviction, lists.pre_evictions);
  vary(&policy_set::routing, lists.routings);
  vary(&policy_set::miss, lists.misses);
  vary(&policy_set::guard, lists.guards);
  vary(&policy_set::prefetch, lists.prefetches);
  vary(&policy_set::admission, lists.admissions);
  vary(&policy_set::eviction, lists.evictions);
  return sets;
}

}  // namespace hotset::inline v0::sim
