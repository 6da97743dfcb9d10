// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Checks that a running model and a file hold the same experts.

#include <vector>

#include "expert_weights.hpp"
#include "hotset/core/error.hpp"
#include "hotset/lab/expert_files.hpp"

namespace hotset_llama_cpp {

/// [layers][tensors of the layer], in the order of expert_files.
using layer_weights = std::vector<std::vector<expert_weight>>;

[[nodiscard]] const hotset::expert_layout& layout_of(const hotset::lab::expert_files& files,
                                                     hotset::layer_id layer);

/// Removes tensors that are no matrix or bias, such as scales: a few bytes of each expert, which stay with the model.
/// Errors: nothing is left.
[[nodiscard]] hotset::result<hotset::lab::expert_files> matrices_and_biases(
    hotset::lab::expert_files files);

/// Finds the model's weight for each tensor of the file.
/// Errors: a weight that is missing, has another shape, was repacked, or is not in host memory.
[[nodiscard]] hotset::result<layer_weights> match(const hotset::lab::expert_files& files,
                                                  const weight_finder& found);

/// Compares the first 4 KiB of one tensor of every expert; neighbouring experts use different tensors.
/// Errors: different bytes; a file that cannot be read.
[[nodiscard]] hotset::validation compare_bytes(const hotset::lab::expert_files& files,
                                               const layer_weights& weights);

}  // namespace hotset_llama_cpp
