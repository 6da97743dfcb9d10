// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What misses cost on this machine, measured before anything is served.

#include "hotset/planning/budget/cost_model.hpp"
#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

/// Copies experts into slots of its own and computes prompts of its own; takes some tenths of a second.
/// Errors: std::runtime_error if nothing can be measured.
[[nodiscard]] hotset::cost_model calibrate(const model& weights);

}  // namespace tiny_moe
