// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Weights of a model by the names of its tensors: routed experts by layer, and the rest.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/transfer/file_expert_source.hpp"
#include "lab/files/gguf.hpp"
#include "lab/files/mapped_file.hpp"

namespace hotset::lab {

/// Experts that lie one behind the other in one tensor.
struct expert_run {
  std::uint64_t first = 0;
  std::uint64_t count = 1;
  hotset::file_extent extent{};
};

/// One decoder layer, by the headers of a model's files. Units: bytes, and elements.
struct stored_layer {
  /// Tensors of routed experts: "up_proj.weight" of each expert, or of all.
  std::map<std::string, std::vector<expert_run>> parts{};
  std::uint64_t resident_bytes = 0;
  std::uint64_t kv_elements = 0;  ///< rows of the projections that make keys and values

  [[nodiscard]] bool is_moe() const noexcept { return !parts.empty(); }
};

struct stored_weights {
  std::string model{};  ///< its path, for messages
  std::vector<std::string> paths{};
  std::map<std::uint64_t, stored_layer> layers{};
  std::set<std::uint64_t> prediction{};  ///< layers of multi-token prediction, which `layers` lacks
  std::uint64_t resident_bytes = 0;      ///< in no layer
  std::size_t cut_files = 0;             ///< files that end before their data does
  std::uint64_t missing_bytes = 0;       ///< of their data
  std::string largest_other{};           ///< the largest tensor that is not of experts
  std::uint64_t largest_other_bytes = 0;

  /// Experts of the first MoE layer, 0 where there is none.
  [[nodiscard]] std::uint64_t experts() const noexcept;
  /// Sorts the runs of each part. Errors: trace_error unless each part holds each of so many experts once, all of one
  /// size.
  void check_experts(std::uint64_t experts);
  /// Bytes of an expert of each MoE layer. Pre: the experts were checked.
  [[nodiscard]] std::vector<std::uint64_t> expert_bytes() const;
  [[nodiscard]] std::uint64_t all_resident_bytes() const noexcept;
};

/// The weights of a folder: model.safetensors, else what model.safetensors.index.json lists, else every .safetensors
/// file; or one file that is no part of several. Errors: trace_error.
[[nodiscard]] std::vector<std::filesystem::path> find_safetensors(
    const std::filesystem::path& path);

/// Names of Hugging Face and MLX: "...layers.<l>...experts.<e>.<part>"; or "experts.<part>", "switch_mlp.<part>" and
/// Granite's "block_sparse_moe.input_linear", which stack experts along the first extent.
inline constexpr std::string_view known_expert_names =
    "layers.0.mlp.experts.0.up_proj.weight, layers.0.mlp.experts.gate_up_proj, "
    "layers.0.mlp.switch_mlp.up_proj.weight or layers.0.block_sparse_moe.input_linear.weight";

/// Reads headers alone. `path` is that of the model. Errors: trace_error.
[[nodiscard]] stored_weights read_safetensors_weights(
    const std::filesystem::path& path, const std::vector<std::filesystem::path>& files,
    file_extent extent);

/// Names of llama.cpp: "blk.<l>.<part>"; "ffn_up_exps.weight" and its like stack experts along the last extent.
/// Errors: trace_error.
[[nodiscard]] stored_weights read_gguf_weights(const std::filesystem::path& path,
                                               std::span<const gguf_file> parts);

}  // namespace hotset::lab
