// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Named sets of policies: the configurations of SpecMD's Table 1, the systems of its Table 2, and those that fMoE
/// and ActiveEvict compare.

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "lab/replay/registry.hpp"

namespace hotset::lab {

/// Names, aliases included. Each may be followed by "+least_stale": the same with Least-Stale eviction.
[[nodiscard]] std::vector<std::string> preset_names();

/// Those of them that are whole systems and fetch what they miss.
[[nodiscard]] std::vector<std::string> system_names();

/// The policies of a preset. Sizes, precisions and links are not part of it.
/// Errors: usage_error that lists the names.
[[nodiscard]] policy_set make_preset(std::string_view name);

/// What was asked for of each kind. An empty list: what the preset says.
struct policy_lists {
  std::vector<std::string> presets{};
  std::vector<std::string> evictions{}, admissions{}, prefetches{}, guards{}, misses{}, routings{},
      pre_evictions{}, predictors{}, prefetch_orders{};
  /// File of weights for sets that go by `learned-gate` without naming any. Empty: none.
  std::string gate_weights{};
};

/// A kind of policy: its option, its list, and its place in a set.
struct policy_kind {
  std::string_view option;
  std::vector<std::string> policy_lists::*list;
  std::string policy_set::*choice;
};
/// In the order of nesting, outermost first.
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

/// Every combination of the lists on top of each preset, or of `plain` where none was named, nested as policy_kinds
/// are.
/// Errors: those of make_preset. Other names are not looked at.
[[nodiscard]] std::vector<policy_set> combine_policies(const policy_lists& lists,
                                                       const policy_set& plain = {});

/// The systems that decide on-line, in the order of the field, and Belady's bound without prefetch: `--compare
/// systems`.
[[nodiscard]] std::vector<policy_set> all_systems(const std::string& gate_weights = {});

}  // namespace hotset::lab
