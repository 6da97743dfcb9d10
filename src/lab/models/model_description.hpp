// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The memory model of a known MoE model, or of one that lies in a file.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/planning/budget/memory_model.hpp"

namespace hotset::lab {

/// Properties of a deployment that no file of a model says.
struct model_options {
  /// Bits of one element of the cache of keys and values: 16, 8, 8.5 (q8_0), 4.5 (q4_0), ... A layer's token is
  /// rounded up to whole bytes. Without a value: what the checkpoint declares, else usual_kv_bits.
  std::optional<double> kv_bits{};

  static constexpr double usual_kv_bits = 16;
  static constexpr double most_kv_bits = 64;
  /// Accepted: multiples of 0.5 in 0.5..64.
  [[nodiscard]] validation validate() const;
};

struct model_description {
  memory_model memory;
  double kv_bits = model_options::usual_kv_bits;  ///< of an element of the cache
  bool top_k_is_known = true;      ///< false: no part of the file says it, and it is 1
  std::string source;              ///< where it came from, in one line
  std::vector<std::string> notes;  ///< what was assumed or left out, a line each
};

/// Figures of a model by hand: all of them, or those that a file leaves out. Units: bytes.
struct model_by_hand {
  std::optional<std::int32_t> layers{};   ///< MoE layers
  std::optional<std::int32_t> experts{};  ///< of a layer
  std::optional<std::int32_t> top_k{};
  std::optional<std::uint64_t> expert_bytes{};  ///< one expert of one layer
  /// KV of one token in all layers together; 0: nothing is kept.
  std::optional<std::uint64_t> kv_bytes_per_token{};
  std::optional<std::uint64_t> resident_bytes{};  ///< all weights but the routed experts'

  [[nodiscard]] bool is_empty() const noexcept {
    return !layers && !experts && !top_k && !expert_bytes && !kv_bytes_per_token && !resident_bytes;
  }
};

/// The models that describe_model() knows by name. Each is a Hugging Face config of its own.
[[nodiscard]] std::vector<std::string> model_names();

/// Reads a name of model_names(), or else a path: a Hugging Face config.json, a .gguf file or one of its parts, a .safetensors
/// file, or a folder of a config.json, of .safetensors files, or of both. Of weights, the headers alone are read. If a
/// config.json stands beside .safetensors files, the shape is the config's and the bytes are the headers'; if its
/// model_type is not known, only the top-k, the number of layers and the longest context are the config's.
/// Bounds: less than 64 MiB and 128 bytes for each byte of the file's header; at most 2^20 experts in all layers.
/// Errors: usage_error if it is neither a name nor a path, or by the options; trace_error, one line, if what the
/// path holds is damaged, dense, of an unknown family, or not all there.
[[nodiscard]] model_description describe_model(std::string_view name_or_path,
                                               const model_options& options = {});

/// describe_model() of a GGUF file or one of its parts. Errors: trace_error.
[[nodiscard]] model_description describe_gguf(const std::filesystem::path& path,
                                              const model_options& options);

/// A model of which nothing else is known. What is not given of `resident_bytes` is taken as 0, and noted.
/// Errors: usage_error that names what is missing, or a value out of range.
[[nodiscard]] model_description describe_by_hand(const model_by_hand& hand);

/// Replaces figures that were read by those of the hand, and notes each.
/// Errors: usage_error for layers and experts, which a description that was read has, or a value out of range.
void correct_by_hand(const model_by_hand& hand, model_description& description);

}  // namespace hotset::lab
