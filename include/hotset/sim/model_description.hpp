// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The memory model of a known MoE model, or of one that lies in a file.

#include <string>
#include <string_view>
#include <vector>

#include "hotset/budget/memory_model.hpp"

namespace hotset::inline v0::sim {

struct model_options {
  /// Of one element of the cache of keys and values: 16, 8, 8.5 (q8_0), 4.5 (q4_0), ... A layer's token is rounded up
  /// to whole bytes.
  double kv_bits = 16;

  static constexpr double most_kv_bits = 64;
  /// Accepted: multiples of 0.5 in 0.5..64.
  [[nodiscard]] validation validate() const;
};

struct model_description {
  memory_model memory;
  std::string source;              ///< where it came from, in one line
  std::vector<std::string> notes;  ///< what was assumed or left out, a line each
};

/// The models that describe_model() knows by name. Each is a Hugging Face config of its own.
[[nodiscard]] std::vector<std::string> model_names();

/// Reads a name of model_names(), or else a path: a Hugging Face config.json, a .gguf file, a .safetensors file, or a
/// folder of a config.json, of .safetensors files, or of both. Of weights, the headers alone are read. Where a
/// config.json stands beside .safetensors files, the shape is the config's and the bytes are the headers'.
/// Errors: usage_error if it is neither a name nor a path, or by the options; trace_error, one line, if what the
/// path holds is damaged, dense, of an unknown family, or not all there.
[[nodiscard]] model_description describe_model(std::string_view name_or_path,
                                               const model_options& options = {});

}  // namespace hotset::inline v0::sim
