// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How much each expert is used on a text: what ESFT selects the experts of an adapter by.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

/// Shape of each: [layers, experts].
struct expert_scores {
  std::vector<double> token;  ///< share of the selections
  std::vector<double> gate;   ///< mean probability where it is selected, over all tokens
};

/// Windows of `window` bytes, each a sequence. Pre: 1 <= window <= max_positions, the text is not empty.
[[nodiscard]] expert_scores score_experts(const model& weights, std::span<const std::uint8_t> text,
                                          std::size_t window);

}  // namespace tiny_moe
