// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The shape of a MoE decoder, as a Hugging Face config says it: enough to know every weight and every cached element.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hotset::inline v0::sim {

enum class qk_norm : std::uint8_t { none, per_head, whole };

/// Attention with heads of keys and values of their own.
struct grouped_attention {
  std::uint64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool input_bias = false;  ///< of queries, keys and values
  bool output_bias = false;
  bool sinks = false;  ///< one element a head
  qk_norm norm = qk_norm::none;
};

/// Multi-head latent attention: one vector of kv_rank + rope is kept of a token.
struct latent_attention {
  std::uint64_t heads = 0;
  std::uint64_t q_rank = 0;  ///< 0: queries are projected at once
  std::uint64_t kv_rank = 0;
  std::uint64_t plain = 0, rope = 0;  ///< of a head's query and key: without and with position
  std::uint64_t value = 0;            ///< of a head
};

/// Mamba-1 with norms on its three small projections, as Jamba has it.
struct mamba_mixer {
  std::uint64_t inner = 0, state = 0, kernel = 0, rank = 0;
  bool kernel_bias = true;
  bool projection_bias = false;
};

struct model_layer {
  bool is_moe = true;
  bool is_mamba = false;
  bool is_windowed = false;
};

enum class weight_format : std::uint8_t {
  plain,    ///< dtype_bytes an element
  fp8,      ///< the linear layers: one byte an element and an F32 scale a block
  mxfp4,    ///< the experts: 17 bytes a block of 32
  unknown,  ///< see format_name; the bytes must come from elsewhere
};

/// Units: elements, where nothing else is said. Extents are below 2^25.
struct model_shape {
  std::string type;  ///< model_type
  std::vector<model_layer> layers{};
  std::uint64_t hidden = 0, vocabulary = 0;
  std::uint64_t experts = 0, top_k = 0;
  std::uint64_t expert_width = 0;
  std::uint64_t shared_width = 0;  ///< of all shared experts together
  std::uint64_t dense_width = 0;   ///< of the layers that are not MoE
  std::optional<latent_attention> latent{};
  grouped_attention grouped{};  ///< unless latent
  std::optional<mamba_mixer> mamba{};

  bool norm_bias = false;
  bool router_bias = false;
  bool router_in_f32 = false;
  bool correction_bias = false;  ///< one element an expert, added to the router's scores
  bool expert_bias = false;
  bool shared_gate = false;
  bool tied_embeddings = false;
  bool head_bias = false;
  bool is_causal = true;

  std::uint64_t window = 0;       ///< tokens; 0: none
  std::uint64_t max_context = 0;  ///< tokens; 0: unknown
  std::uint64_t vision = 0;       ///< vision tower and projector

  std::uint64_t dtype_bytes = 2;
  weight_format format = weight_format::plain;
  std::string format_name{};                                 ///< quant_method
  std::uint64_t block_rows = 0, block_columns = 0;           ///< of fp8
  bool attention_is_plain = false, shared_is_plain = false;  ///< left out of fp8

  std::vector<std::string> notes{};
};

}  // namespace hotset::inline v0::sim
