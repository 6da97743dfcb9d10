// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Selects the experts that ESFT tunes, as `python3 -m hotset select-experts` does from the summary of the same text.

#include <cstddef>
#include <span>

#include "tiny_moe/experts/adapters.hpp"

namespace tiny_moe {

/// In each layer experts are taken by descending score, of equals the lower expert, while those before sum to less than p.
/// Shape: scores is [layers, experts]; they are rounded to four decimals. Pre: p > 0.
[[nodiscard]] tuned_experts select_experts(std::span<const double> scores, std::size_t experts,
                                           double p);

}  // namespace tiny_moe
