// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What misses cost on this machine, measured before anything is served.

#include <optional>

#include "hotset/budget/cost_model.hpp"
#include "hotset/transfer/link_model.hpp"
#include "tiny_moe/model.hpp"

namespace tiny_moe {

/// Copies experts into slots of its own (over the link, if there is one) and computes prompts of its own.
/// Errors: std::runtime_error if nothing can be measured.
[[nodiscard]] hotset::cost_model calibrate(const model& weights,
                                           const std::optional<hotset::link_model::config>& link);

}  // namespace tiny_moe
