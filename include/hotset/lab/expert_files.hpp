// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds the routed experts of a model in its files: GGUF and safetensors, in one or several parts.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/transfer/file_expert_source.hpp"

namespace hotset::lab {

/// Layers are those with routed experts, counted from 0 in model order.
struct expert_files {
  /// Layers whose experts have equal tensors share a size class. `top_k` is that of a GGUF file, otherwise 1: set it.
  geometry shape;
  std::vector<std::uint64_t> layers;  ///< [shape.layers] layer numbers in the model
  /// By size class; tensors in alphabetical order of their names.
  std::vector<expert_layout> layouts;
  std::vector<std::string> paths;
  /// [shape.layers][experts x tensors of the layer], the tensors of an expert together.
  std::vector<std::vector<hotset::file_extent>> extents;

  /// Positions of an expert's tensors. Pre: the shape contains the key.
  [[nodiscard]] std::span<const hotset::file_extent> at(expert_key key) const noexcept {
    const auto& layer = extents[index_of(key.layer)];
    const auto tensors = layer.size() / shape.expert_count();
    return std::span(layer).subspan(index_of(key.expert) * tensors, tensors);
  }
};

/// Finds experts by reading only file headers. `path`: a .gguf file or one of its parts ("...-00001-of-00003.gguf",
/// the others are found beside it); a .safetensors file; or a folder of them. Blocks of multi-token prediction are
/// ignored.
/// Limits: 2^20 experts in all layers; memory as describe_model, and 64 bytes for each tensor of each expert.
/// Errors: trace_error, one line: the damaged or missing part; no routed experts; layers with different numbers of
/// experts; an expert with more than 8 tensors, or without a tensor that others of its layer have.
[[nodiscard]] expert_files find_experts(const std::filesystem::path& path);

/// Opens the files, so that a backend reads each expert when it is copied. `beside`: see file_expert_source::open.
/// Errors: trace_error: a file that cannot be opened in this way.
[[nodiscard]] file_expert_source open_experts(const expert_files& files,
                                              file_reads how = file_reads::cached,
                                              std::size_t beside = 1);

}  // namespace hotset::lab
