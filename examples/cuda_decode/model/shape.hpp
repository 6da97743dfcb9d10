// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shapes of the decode loop's models: real sizes, and small ones for tests.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda_decode/decoder/decode_kernels.hpp"
#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"

namespace cuda_decode {

/// Content of a tensor's bytes, so that random bytes become numbers of moderate size.
enum class tensor_content : std::uint8_t { bf16, f16, e4m3, e2m1_pairs, f32_scales, e8m0_scales };

struct shape_tensor {
  std::string name;
  tensor_content content = tensor_content::bf16;
  std::size_t bytes = 0;
};

/// Biases and model-specific activations are left out: every expert is down(silu(gate x) * up x).
struct model_shape {
  std::string name;
  std::int32_t layers = 0;
  std::int32_t experts = 0;
  std::int32_t top_k = 0;
  expert_form form{};
  std::vector<shape_tensor> tensors;

  [[nodiscard]] std::uint64_t expert_bytes() const noexcept;
  [[nodiscard]] std::uint64_t all_bytes() const noexcept {
    return expert_bytes() * static_cast<std::uint64_t>(layers) *
           static_cast<std::uint64_t>(experts);
  }
  [[nodiscard]] hotset::expert_layout layout() const;
  [[nodiscard]] hotset::geometry geometry(std::int32_t max_tokens = 1) const;
};

struct shape_sizes {
  std::int32_t layers = 0;
  std::int32_t experts = 0;
  std::int32_t top_k = 0;
  std::uint32_t hidden = 0;
  std::uint32_t inner = 0;
  std::uint32_t block = 128;  ///< e4m3: rows and columns per scale
};

/// Tensors: bf16: gate_up and down. e4m3, e2m1: each followed by its scales, so four tensors. f16: gate, up and down.
/// Errors: hotset::invalid_config, with the range.
[[nodiscard]] model_shape make_shape(std::string name, number_format format,
                                     const shape_sizes& sizes);

/// Names: qwen3-30b-a3b, olmoe, mixtral-8x7b, gpt-oss-120b, minimax-m2, small-bf16, small-fp8, small-mxfp4.
[[nodiscard]] std::span<const std::string_view> shape_names() noexcept;
/// Errors: hotset::invalid_config that lists the names.
[[nodiscard]] model_shape shape_named(std::string_view name);

}  // namespace cuda_decode
