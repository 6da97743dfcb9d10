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

}  // namespace hotset::inline v0::sim
