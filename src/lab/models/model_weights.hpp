// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sizes that follow from a shape: weights, and the state of a sequence.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hotset/planning/budget/memory_model.hpp"
#include "lab/models/model_description.hpp"
#include "lab/models/model_shape.hpp"

namespace hotset::lab {

/// Fills in the bytes of the experts, of each block and of all resident weights. Values that do not fit become 2^64 -
/// 1.
/// Pre: the format is known; memory has a block for each layer.
void add_weights(const model_shape& shape, memory_model& memory);

/// Bytes of a matrix with `out` rows. `plain`: the format of one that `code` cannot store. Pre: extents below 2^25.
[[nodiscard]] std::uint64_t matrix_bytes(std::uint64_t out, std::uint64_t in,
                                         const weight_code& code,
                                         const weight_code& plain) noexcept;

/// Parameters and extents of a shape, in any format.
[[nodiscard]] model_arithmetic arithmetic_of(const model_shape& shape);

/// Cached elements per token in one layer; 0 in a layer without its own cache.
[[nodiscard]] std::uint64_t kv_elements_of(const model_shape& shape,
                                           const model_layer& layer) noexcept;
/// Bytes that a sequence keeps in a recurrent layer, with a convolution state of kernel - 1 (vLLM), or in the window of
/// compressed attention; 0 in any other layer.
[[nodiscard]] std::uint64_t state_bytes_of(const model_shape& shape,
                                           const model_layer& layer) noexcept;

/// Bytes of `elements` elements of a token in one layer, rounded up.
/// Pre: elements below 2^50; bits that model_options accepts.
[[nodiscard]] constexpr std::uint64_t kv_bytes_of(std::uint64_t elements, double bits) noexcept {
  return (elements * static_cast<std::uint64_t>(bits * 2) + 15) / 16;
}
/// Groups layers with equal caches: those without a window first, then by window.
[[nodiscard]] std::vector<kv_layers> kv_of(std::span<const model_block> blocks);

/// Reduces the list to one number if all layers agree.
[[nodiscard]] std::vector<std::uint64_t> by_layer(std::vector<std::uint64_t> bytes);

/// Note on the number of multi-token prediction layers.
[[nodiscard]] std::string prediction_note(std::uint64_t layers);

}  // namespace hotset::lab
