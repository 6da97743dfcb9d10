// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the name of a tensor says: its layer, and whether it belongs to routed experts.

#include <cstdint>
#include <optional>
#include <string_view>

namespace hotset::lab {

struct tensor_place {
  std::optional<std::uint64_t> layer;   ///< of the decoder
  std::optional<std::uint64_t> expert;  ///< of experts that lie apart
  bool is_stacked = false;              ///< one tensor holds all experts of the layer
  std::string_view rest;                ///< the name behind the layer's number
  std::string_view
      part;  ///< of an expert: the name behind the expert's number, or that of the stack

  [[nodiscard]] bool is_of_experts() const noexcept { return expert || is_stacked; }
};

/// Names of Hugging Face and MLX: "...layers.<l>...experts.<e>.<part>"; or "experts.<part>", "switch_mlp.<part>" and
/// Granite's "block_sparse_moe.input_linear", which stack experts along the first extent.
inline constexpr std::string_view known_expert_names =
    "layers.0.mlp.experts.0.up_proj.weight, layers.0.mlp.experts.gate_up_proj, "
    "layers.0.mlp.switch_mlp.up_proj.weight or layers.0.block_sparse_moe.input_linear.weight";
[[nodiscard]] tensor_place place_in_safetensors(std::string_view name);

/// Names of llama.cpp: "blk.<l>.<rest>"; "ffn_up_exps.weight" and its like are stacked along the last extent.
[[nodiscard]] tensor_place place_in_gguf(std::string_view name);

}  // namespace hotset::lab
