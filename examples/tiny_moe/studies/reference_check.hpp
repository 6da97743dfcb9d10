// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Compares the decoder with logits, routing and continuations of another implementation.

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "tiny_moe/model/expert_provider.hpp"
#include "tiny_moe/model/model.hpp"

namespace tiny_moe {

struct reference_tolerance {
  double logits = 1e-4;         ///< largest absolute difference
  double weights = 1e-5;        ///< largest difference of the routed weights
  double probabilities = 1e-5;  ///< largest difference of the router's, if the reference has them
  double margin = 1e-3;         ///< a greedy step counts only if the two best logits differ by more
};

/// Result for one prompt.
struct prompt_agreement {
  std::string name;
  std::size_t tokens = 0;
  double logits = 0.0;         ///< largest absolute difference
  double weights = 0.0;        ///< largest absolute difference
  double probabilities = 0.0;  ///< largest absolute difference; 0 if the reference has none
  std::size_t ids = 0;         ///< routed ids compared
  std::size_t ids_differing = 0;
  std::size_t greedy = 0;  ///< greedy steps compared
  std::size_t greedy_differing = 0;

  [[nodiscard]] bool agrees(const reference_tolerance& tolerance) const noexcept;
};

/// Runs every prompt of `reference` through `experts`: the prompt as one pass, then the reference's continuation
/// token by token, comparing the greedy choice at each step. Returns: one entry per prompt, by name. Errors:
/// model_error if the file does not fit the model, hotset::trace_error from the file reader.
[[nodiscard]] std::vector<prompt_agreement> check_reference(
    const model& weights, expert_provider& experts, const std::filesystem::path& reference,
    const reference_tolerance& tolerance = {});

}  // namespace tiny_moe
