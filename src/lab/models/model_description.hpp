// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Memory model of a MoE model, by name or from its files.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/planning/budget/memory_model.hpp"
#include "lab/models/model_shape.hpp"

namespace hotset::lab {

/// Figures of a model by hand: all of them, or those missing from a file. Units: bytes.
struct model_by_hand {
  std::optional<std::int32_t> layers{};   ///< MoE layers
  std::optional<std::int32_t> experts{};  ///< experts of a layer
  std::optional<std::int32_t> top_k{};
  std::optional<std::uint64_t> expert_bytes{};  ///< one expert of one layer
  /// KV of one token over all layers; 0: no cache.
  std::optional<std::uint64_t> kv_bytes_per_token{};
  std::optional<std::uint64_t> resident_bytes{};  ///< all weights except the routed experts'

  [[nodiscard]] bool is_empty() const noexcept {
    return !layers && !experts && !top_k && !expert_bytes && !kv_bytes_per_token && !resident_bytes;
  }
};

/// Properties of a deployment that no model file contains.
struct model_options {
  /// Bits of one element of the KV cache: 16, 8, 8.5 (q8_0), 4.5 (q4_0), ... A token's bytes in a layer are rounded
  /// up. Without a value: the checkpoint's declaration, else usual_kv_bits.
  std::optional<double> kv_bits{};
  /// Format of the weights: one of wished_weight_names(), or "4.5bpw". Empty: as released.
  std::string weights{};
  /// Figures by hand, which a config may then lack. `experts` and `top_k` count only if the model does not give them.
  model_by_hand hand{};

  static constexpr double usual_kv_bits = 16;
  static constexpr double most_kv_bits = 64;
  /// Accepted: multiples of 0.5 in 0.5..64.
  [[nodiscard]] validation validate() const;
};

/// Extents and parameters, for a model's operations and its activations. 0: unknown.
struct model_arithmetic {
  std::uint64_t hidden = 0, vocabulary = 0;
  std::uint64_t lookup_bytes = 0;            ///< embeddings of which a token reads one row
  std::uint64_t resident_parameters = 0;     ///< multiplied for every token: not these embeddings
  std::uint64_t expert_parameters = 0;       ///< of one routed expert
  std::optional<weight_code> expert_code{};  ///< of all experts; nullopt: several, or unknown

  /// Bits of an expert's parameter. Pre: the parameters are known.
  [[nodiscard]] double expert_bits(const memory_model& memory) const noexcept {
    return 8.0 * static_cast<double>(memory.experts.bytes_of(layer_id{})) /
           static_cast<double>(expert_parameters);
  }
};

struct model_description {
  memory_model memory;
  model_arithmetic arithmetic{};
  double kv_bits = model_options::usual_kv_bits;  ///< bits of an element of the cache
  bool top_k_is_known = true;                     ///< false: no file gives it, and it is 1
  std::string source;                             ///< origin, in one line
  std::vector<std::string> notes;                 ///< assumptions and omissions, one per line
};

/// Models that describe_model() knows by name. Each has its own Hugging Face config.
[[nodiscard]] std::vector<std::string> model_names();

/// Reads a name of model_names(), or else a path: a Hugging Face config.json, a .gguf file or one of its parts, a
/// .safetensors file or its index, or a folder with a config.json, .safetensors files, or both. Only the headers of
/// weights are read. If a config.json stands beside .safetensors files, the shape comes from the config and the sizes
/// from the headers. An unknown model_type is read by its keys, with a note of what was taken as usual.
/// Bounds: less than 64 MiB and 128 bytes for each byte of the file's header; at most 2^20 experts in all layers.
/// Errors: usage_error if the text is neither a name nor a path, or for the options; trace_error, one line, if the
/// path's contents are damaged, dense or incomplete; the message names the option that gives a missing figure.
[[nodiscard]] model_description describe_model(std::string_view name_or_path,
                                               const model_options& options = {});

/// describe_model() for a GGUF file or one of its parts. Errors: trace_error.
[[nodiscard]] model_description describe_gguf(const std::filesystem::path& path,
                                              const model_options& options);

/// Describes a model only by hand. Missing `resident_bytes` count as 0, with a note.
/// Errors: usage_error that names the missing figures, or a value out of range.
[[nodiscard]] model_description describe_by_hand(const model_by_hand& hand);

/// Replaces read figures by those given by hand, and notes each.
/// Errors: usage_error for layers and experts, which a read description already has, or for a value out of range.
void correct_by_hand(const model_by_hand& hand, model_description& description);

}  // namespace hotset::lab
