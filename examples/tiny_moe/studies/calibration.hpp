// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Measures the cost of misses on this machine, before serving.

#include "hotset/planning/budget/cost_model.hpp"
#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

/// Copies experts into its own slots and computes its own prompts; takes a few tenths of a second.
/// Errors: std::runtime_error if nothing can be measured.
[[nodiscard]] hotset::cost_model calibrate(const model& weights);

}  // namespace tiny_moe
