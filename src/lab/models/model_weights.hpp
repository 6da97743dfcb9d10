// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Bytes that follow from a shape: weights, and what a sequence leaves behind.

#include <cstdint>
#include <vector>

#include "hotset/planning/budget/memory_model.hpp"
#include "lab/models/model_shape.hpp"

namespace hotset::lab {

struct model_weights {
  std::vector<std::uint64_t> experts{};  ///< one routed expert, by MoE layer
  std::uint64_t resident = 0;            ///< everything else
  std::vector<std::uint64_t> blocks{};   ///< of it, what is in each layer
};
/// What does not fit is 2^64 - 1. Pre: the format is known.
[[nodiscard]] model_weights weights_of(const model_shape& shape);

/// Elements that one layer keeps of a token. Pre: it is an attention layer with a cache of its own.
[[nodiscard]] std::uint64_t kv_elements_of(const model_shape& shape) noexcept;
/// Of all recurrent layers, in the model's dtype, with a convolution state of kernel - 1 (vLLM). Units: bytes.
[[nodiscard]] std::uint64_t state_bytes_of(const model_shape& shape) noexcept;
/// Of one of them; 0 of a layer that is not recurrent.
[[nodiscard]] std::uint64_t state_bytes_of(const model_shape& shape,
                                           const model_layer& layer) noexcept;

/// Gathers layers whose caches are alike. Pre of bits: model_options accepts them; of elements: below 2^50.
class kv_tally {
 public:
  explicit kv_tally(double bits) : half_bits_(static_cast<std::uint64_t>(bits * 2)) {}

  /// A layer that keeps so many elements of a token, and no layer at all for 0.
  void add(std::uint64_t elements, std::uint64_t window);
  /// Layers without a window first, then by window.
  [[nodiscard]] std::vector<kv_layers> layers() const;
  /// Of one token of such a layer.
  [[nodiscard]] std::uint64_t bytes_of(std::uint64_t elements) const noexcept {
    return (elements * half_bits_ + 15) / 16;
  }

 private:
  std::uint64_t half_bits_;
  std::vector<kv_layers> groups_;
};

}  // namespace hotset::lab
