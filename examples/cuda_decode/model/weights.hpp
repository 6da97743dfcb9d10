// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Random weights as a function of (layer, expert, tensor, offset), so that every byte can be checked anywhere.

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda_decode/model/shape.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/cuda/copies/pinned_memory.hpp"
#include "hotset/transfer/memory_expert_source.hpp"

namespace cuda_decode {

/// Bytes 8 * word .. 8 * word + 7 of a tensor, as a little-endian number.
[[nodiscard]] std::uint64_t weight_word(std::uint64_t seed, hotset::expert_key key,
                                        std::size_t tensor, tensor_content content,
                                        std::uint64_t word) noexcept;

/// Writes a whole tensor of any size.
void fill_weights(std::uint64_t seed, hotset::expert_key key, std::size_t tensor,
                  tensor_content content, std::span<std::byte> to) noexcept;

/// Page-locked host copy of all experts of a shape: one allocation per layer, each tensor at a multiple of 256 bytes.
class host_weights {
 public:
  /// `pages` outlives the weights. Errors: hotset::invalid_config if the budget is too small or the runtime refuses.
  host_weights(const model_shape& shape, hotset::cuda::pinned_memory& pages,
               std::uint64_t seed = 1);

  [[nodiscard]] const hotset::memory_expert_source& source() const noexcept { return source_; }
  /// Bytes of the host copy, including rounding.
  [[nodiscard]] static std::uint64_t bytes_for(const model_shape& shape) noexcept;

 private:
  hotset::memory_expert_source source_;
};

}  // namespace cuda_decode
