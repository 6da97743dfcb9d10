// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shape of a MoE decoder from a Hugging Face config: enough to count every weight and every cached element.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hotset::lab {

/// Maximum experts of a layer, and of all layers together.
inline constexpr std::uint64_t most_model_experts = std::uint64_t{1} << 20U;

enum class qk_norm : std::uint8_t { none, per_head, whole };

/// Attention whose heads have their own keys and values.
struct grouped_attention {
  std::uint64_t heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  std::uint64_t q_rank = 0;  ///< 0: queries have no low-rank projection
  qk_norm norm = qk_norm::none;
  std::uint64_t gate = 0;     ///< outputs of the gate of the attention's output; 0: none
  bool key_is_value = false;  ///< one projection gives both; both are cached
  bool has_sinks = false;     ///< one element per head
};

/// Multi-head latent attention: caches one vector of kv_rank + rope for each token.
struct latent_attention {
  std::uint64_t heads = 0;
  std::uint64_t q_rank = 0;  ///< 0: queries have no low-rank projection
  std::uint64_t kv_rank = 0;
  std::uint64_t plain = 0, rope = 0;  ///< per head, of query and key: without and with position
  std::uint64_t value = 0;            ///< per head
  std::uint64_t gate = 0;             ///< outputs of the gate of the attention's output; 0: none
};

/// Sparse attention chooses tokens by small keys, which are cached beside the others.
struct token_index {
  std::uint64_t heads = 0, dim = 0;
};

/// DeepSeek-V4: all heads share one key, which is the value too. A layer caches one for each `rate` tokens
/// (model_layer) and those of a window.
struct compressed_attention {
  std::uint64_t heads = 0, head_dim = 0, q_rank = 0;
  std::uint64_t groups = 0, rank = 0;  ///< of the output projection
  std::uint64_t window = 0;            ///< tokens
  std::uint64_t streams = 0;           ///< residual streams (hyper-connections)
};

/// Mamba-1 with norms on its three small projections, as in Jamba; with `heads`: Mamba-2.
struct mamba_mixer {
  std::uint64_t inner = 0, state = 0, kernel = 0;
  std::uint64_t rank = 0;               ///< Mamba-1
  std::uint64_t heads = 0, groups = 0;  ///< Mamba-2
  bool kernel_bias = true;
  bool projection_bias = false;

  /// Channels of the convolution.
  [[nodiscard]] std::uint64_t convolved() const noexcept { return inner + 2 * groups * state; }
};

/// Gated DeltaNet or Kimi Delta Attention: a sequence keeps one matrix per value head, and the convolution's last
/// inputs.
struct delta_mixer {
  std::uint64_t keys = 0;    ///< width of all key heads
  std::uint64_t values = 0;  ///< width of all value heads
  std::uint64_t value_heads = 0, key_dim = 0, value_dim = 0;
  std::uint64_t kernel = 0;
  bool is_kda = false;  ///< a decay for each element of a key
  /// Kimi Delta Attention: inner width of the projections of decay and output gate; 0: they have one matrix.
  std::uint64_t decay_rank = 0, gate_rank = 0;
};

enum class mixer_kind : std::uint8_t {
  attention,
  mamba,
  delta,
  /// Linear attention over the layer's heads; a sequence keeps one matrix per head.
  lightning,
  convolution,  ///< gated short convolution
  none,         ///< the layer is an MLP or experts alone
};

/// Weights of a model that may each have their own storage format.
enum class model_module : std::uint8_t {
  expert_gate,
  expert_up,
  expert_down,
  shared_gate,
  shared_up,
  shared_down,
  dense_gate,
  dense_up,
  dense_down,
  query,
  key,
  value,
  output,
  output_gate,    ///< for lightning attention
  query_low,      ///< latent attention: projection to the rank of the queries
  key_value_low,  ///< latent attention: projection to the cached vector
  key_value,      ///< latent attention: projection from the cached vector to the heads
  linear_in,      ///< Gated DeltaNet
  linear_gates,   ///< Gated DeltaNet: time step and decay
  linear_out,     ///< Gated DeltaNet
  router,         ///< with the gate of shared experts
  embeddings,
  head,
};
inline constexpr std::size_t model_modules = 23;

/// Modules as bits.
using module_set = std::uint32_t;
/// Set of modules, or of traits.
template <class... Members>
[[nodiscard]] constexpr std::uint32_t set_of(Members... members) noexcept {
  return ((std::uint32_t{1} << static_cast<unsigned>(members)) | ... | std::uint32_t{0});
}

inline constexpr module_set expert_modules =
    set_of(model_module::expert_gate, model_module::expert_up, model_module::expert_down);
inline constexpr module_set shared_modules =
    set_of(model_module::shared_gate, model_module::shared_up, model_module::shared_down);
inline constexpr module_set dense_modules =
    set_of(model_module::dense_gate, model_module::dense_up, model_module::dense_down);
inline constexpr module_set attention_modules =
    set_of(model_module::query, model_module::key, model_module::value, model_module::output,
           model_module::output_gate, model_module::query_low, model_module::key_value_low,
           model_module::key_value);
inline constexpr module_set linear_attention_modules =
    set_of(model_module::linear_in, model_module::linear_gates, model_module::linear_out);
/// Linear layers of the decoder.
inline constexpr module_set layer_modules =
    expert_modules | shared_modules | dense_modules | attention_modules | linear_attention_modules;

/// Properties that differ between families of models.
enum class trait : std::uint8_t {
  attention_bias,   ///< bias of queries, keys, values and output
  input_bias,       ///< bias of queries, keys and values, regardless of attention_bias
  plain_output,     ///< the attention's output never has a bias
  gated_attention,  ///< the attention's output has a gate of its own width
  has_sinks,        ///< one element per head
  norm_bias,
  router_in_f32,
  correction_bias,  ///< one element per expert, added to the router's scores
  correction_in_f32,
  biased_experts,  ///< and a biased router
  shared_expert,   ///< one, unless a key gives their number
  gated_shared,
  mlp_wide,      ///< experts have the width of an MLP, without a key of their own
  ungated_mlps,  ///< MLPs and experts are up and down alone
  tied_embeddings,
  head_bias,
  window_needs_asking,  ///< use_sliding_window
  window_from_a_layer,  ///< max_window_layers
  non_causal,
  head_gates,        ///< the attention's output has one gate a head
  weightless_norms,  ///< of queries and keys
  dense_beside,      ///< each layer has a dense MLP beside its experts
  double_layers,     ///< two attentions and two dense MLPs a layer
  state_in_f32,      ///< recurrent states, unless a key gives their dtype
  lightning,         ///< recurrent layers without keys of their own have lightning attention
};
using trait_set = std::uint32_t;

/// Storage format of a weight: bits of an element, shared data of a block, and extra data.
struct weight_code {
  std::uint64_t bits = 16;      ///< bits of an element
  std::uint64_t word_bits = 8;  ///< rows fill whole words
  /// Extents of a block with one scale; 0: the whole extent.
  std::uint64_t block_rows = 0, block_columns = 0;
  std::uint64_t scale_bits = 0, zero_bits = 0;  ///< bits for each block; 0: none
  std::uint64_t column_bits = 0;                ///< extra bits for each input
  std::uint64_t tensor_bytes = 0;               ///< extra bytes for each weight
  bool fills_blocks = false;                    ///< a row's last block is stored in full
  bool needs_whole_blocks = false;  ///< a weight whose rows end inside a block is stored otherwise:
  const weight_code* if_cut = nullptr;  ///< like this; nullptr: in the model's dtype
  bool is_fp8 = false;                  ///< false: elements of 8 bits are integers

  [[nodiscard]] constexpr bool is_mxfp4() const noexcept {
    return bits == 4 && block_columns == 32 && scale_bits == 8;
  }

  friend bool operator==(const weight_code&, const weight_code&) = default;
};

/// Modules with another storage format in one layer than in the model.
struct stored_otherwise {
  module_set modules = 0;
  weight_code code{};
};

/// Storage format of a module, from the first entry that has it; nullptr: none.
[[nodiscard]] inline const weight_code* find_code(const std::vector<stored_otherwise>& among,
                                                  model_module module) noexcept {
  for (const auto& one : among)
    if ((one.modules & set_of(module)) != 0) return &one.code;
  return nullptr;
}

struct model_layer {
  bool is_moe = true;
  bool has_mlp = true;  ///< or experts; false: the layer is a mixer alone
  mixer_kind mixer = mixer_kind::attention;
  grouped_attention grouped{};  ///< unless attention is latent or compressed
  bool is_indexed = false;      ///< has a token_index
  std::uint64_t rate = 0;  ///< compressed attention: tokens for one cached key; 0: only the window
  std::uint64_t window = 0;  ///< tokens; 0: none
  /// Reads the cache of an earlier layer, and projects no keys and values.
  bool shares_kv = false;
  std::vector<stored_otherwise> otherwise{};
};

/// Figures of a model that another source than its config may give.
enum class model_figure : std::uint8_t { expert_bytes, kv_bytes, resident_bytes, top_k };
using figure_set = std::uint32_t;

/// Units: elements unless stated otherwise. Extents are below 2^25.
struct model_shape {
  std::string type;  ///< model_type
  std::vector<model_layer> layers{};
  std::uint64_t hidden = 0, vocabulary = 0;
  std::uint64_t experts = 0, top_k = 0;
  std::uint64_t unrouted = 0;  ///< rows of the router for experts without weights
  std::uint64_t expert_width = 0;
  std::uint64_t expert_input = 0;  ///< experts read a projection of this width; 0: they read hidden
  std::uint64_t shared_width = 0;  ///< width of all shared experts together
  std::uint64_t dense_width = 0;   ///< width of dense layers
  std::optional<latent_attention> latent{};
  std::optional<compressed_attention> compressed{};
  std::optional<token_index> index{};
  std::optional<mamba_mixer> mamba{};
  std::optional<delta_mixer> delta{};
  std::uint64_t kernel = 0;  ///< of a convolution layer
  bool kernel_bias = false;
  std::uint64_t norms = 2;         ///< of a layer with a mixer and an MLP
  std::uint64_t expert_norms = 0;  ///< more of them beside experts

  trait_set traits = 0;

  std::uint64_t max_context = 0;  ///< tokens; 0: unknown
  std::uint64_t beside = 0;  ///< weights beside the decoder: a vision tower, embeddings of n-grams

  std::uint64_t dtype_bytes = 2;
  std::uint64_t state_dtype_bytes = 0;             ///< of recurrent matrices; 0: dtype_bytes
  std::array<weight_code, model_modules> codes{};  ///< unless a layer has its own
  std::string unknown_format{};                    ///< if set, sizes must come from another source
  /// Bits of an element of the cache, if the checkpoint declares them.
  std::optional<double> kv_bits{};
  std::string kv_bits_key{};  ///< key of that declaration

  [[nodiscard]] bool has(trait t) const noexcept { return (traits & set_of(t)) != 0; }
  void set(trait t, bool on) noexcept { traits = on ? traits | set_of(t) : traits & ~set_of(t); }
  [[nodiscard]] weight_code plain_code() const noexcept { return {.bits = 8 * dtype_bytes}; }
  void store(module_set modules, const weight_code& code) noexcept {
    for (std::size_t m = 0; m < model_modules; ++m)
      if ((modules & (module_set{1} << m)) != 0) codes[m] = code;
  }
  [[nodiscard]] const weight_code& code(model_module module) const noexcept {
    return codes[static_cast<std::size_t>(module)];
  }
  [[nodiscard]] const weight_code& code(const model_layer& layer,
                                        model_module module) const noexcept {
    const auto* const own = find_code(layer.otherwise, module);
    return own != nullptr ? *own : code(module);
  }

  bool is_known = true;    ///< its model_type is
  figure_set missing = 0;  ///< figures that the config does not give
  std::vector<std::string> notes{};
  std::pair<std::ptrdiff_t, std::ptrdiff_t> format_notes{};  ///< range of those on `codes`
};

}  // namespace hotset::lab
