// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Named sets of policies: the configurations of SpecMD's Table 1 and the systems of its Table 2.

#include <string>
#include <string_view>
#include <vector>

#include "hotset/sim/sweep.hpp"

namespace hotset::inline v0::sim {

/// Names, aliases included. Each may be followed by "+least_stale": the same with Least-Stale eviction.
[[nodiscard]] std::vector<std::string> preset_names();

/// The policies of a preset. Sizes, precisions and links are not part of it.
/// Errors: usage_error that lists the names.
[[nodiscard]] policy_set make_preset(std::string_view name);

/// What was asked for of each kind. An empty list: what the preset says.
struct policy_lists {
  std::vector<std::string> presets{};
  std::vector<std::string> evictions{}, admissions{}, prefetches{}, guards{}, misses{}, routings{},
      pre_evictions{};
};

/// Every combination of the lists on top of each preset, or of `plain` where none was named, in this order
/// of nesting: preset, pre-eviction, routing, miss, guard, prefetch, admission, eviction.
/// Errors: those of make_preset. Other names are not looked at.
[[nodiscard]] std::vector<policy_set> combine_policies(const policy_lists& lists,
                                                       const policy_set& plain = {});

}  // namespace hotset::inline v0::sim
