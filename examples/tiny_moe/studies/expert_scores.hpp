// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Use of each expert on a text: the scores by which ESFT selects the experts of an adapter.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

/// Shape of each: [layers, experts].
struct expert_scores {
  std::vector<double> token;  ///< share of the selections
  std::vector<double> gate;   ///< mean probability when selected, over all tokens
};

/// Scores windows of `window` bytes, each a sequence. Pre: 1 <= window <= max_positions, the text is not empty.
[[nodiscard]] expert_scores score_experts(const model& weights, std::span<const std::uint8_t> text,
                                          std::size_t window);

}  // namespace tiny_moe
