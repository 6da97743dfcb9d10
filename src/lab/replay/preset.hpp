// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Named sets of policies: configurations of SpecMD's Table 1, systems of its Table 2, and systems that fMoE and
/// ActiveEvict compare.

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "lab/replay/registry.hpp"

namespace hotset::lab {

/// Preset names, including aliases. "+least_stale" after a name selects Least-Stale eviction.
[[nodiscard]] std::vector<std::string> preset_names();

/// Names of whole systems, which fetch their misses.
[[nodiscard]] std::vector<std::string> system_names();

/// Policies of a preset. Sizes, precisions and links are not part of it.
/// Errors: usage_error that lists the names.
[[nodiscard]] policy_set make_preset(std::string_view name);

/// Requested policies of each kind. An empty list: those of the preset.
struct policy_lists {
  std::vector<std::string> presets{};
  std::vector<std::string> evictions{}, admissions{}, prefetches{}, guards{}, misses{}, routings{},
      pre_evictions{}, predictors{}, prefetch_orders{};
  /// Weights file for sets with a `learned-gate` that names none. Empty: none.
  std::string gate_weights{};
};

/// A kind of policy: its option, its list, and its member in a set.
struct policy_kind {
  std::string_view option;
  std::vector<std::string> policy_lists::*list;
  std::string policy_set::*choice;
};
/// In order of nesting, outermost first.
inline constexpr std::array<policy_kind, 9> policy_kinds{{
    {"--predictor", &policy_lists::predictors, &policy_set::predictor},
    {"--pre-eviction", &policy_lists::pre_evictions, &policy_set::pre_eviction},
    {"--routing", &policy_lists::routings, &policy_set::routing},
    {"--miss", &policy_lists::misses, &policy_set::miss},
    {"--prefetch-guard", &policy_lists::guards, &policy_set::guard},
    {"--prefetch-order", &policy_lists::prefetch_orders, &policy_set::prefetch_order},
    {"--prefetch", &policy_lists::prefetches, &policy_set::prefetch},
    {"--admission", &policy_lists::admissions, &policy_set::admission},
    {"--eviction", &policy_lists::evictions, &policy_set::eviction},
}};

/// Every combination of the lists on top of each preset, or of `plain` without a preset, nested in the order of
/// policy_kinds.
/// Errors: those of make_preset. Other names are not checked.
[[nodiscard]] std::vector<policy_set> combine_policies(const policy_lists& lists,
                                                       const policy_set& plain = {});

/// The online systems in table order, and Belady's bound without prefetch: `--compare systems`.
[[nodiscard]] std::vector<policy_set> all_systems(const std::string& gate_weights = {});

}  // namespace hotset::lab
