// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Weights of a model by their tensors' names: routed experts by layer, and the rest.

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

/// Experts stored one after the other in one tensor.
struct expert_run {
  std::uint64_t first = 0;
  std::uint64_t count = 1;
  hotset::file_extent extent{};
};

/// One decoder layer, from the headers of a model's files. Units: bytes, and elements.
struct stored_layer {
  /// Tensors of routed experts: "up_proj.weight" of each expert, or of a stack.
  std::map<std::string, std::vector<expert_run>> parts{};
  /// Stacks under other names: experts, if there are as many as rows of the router, and no others.
  std::map<std::string, expert_run> other_stacks{};
  std::uint64_t resident_bytes = 0;
  std::uint64_t router_rows = 0;
  /// Rows of the projections for keys, for values, and for a vector that is both.
  std::uint64_t key_rows = 0, value_rows = 0, latent_rows = 0;
  std::uint64_t index_rows = 0;  ///< of the key that sparse attention chooses tokens by
  bool has_attention = false;    ///< of any kind
  bool has_other_rows =
      false;  ///< fused or expanded: the cache's elements need the number of heads
  bool is_recurrent = false;

  [[nodiscard]] bool is_moe() const noexcept { return !parts.empty(); }
  /// Elements that the cache keeps of a token; 0 also if rows do not tell. Values without a projection are the keys.
  [[nodiscard]] std::uint64_t kv_elements() const noexcept {
    if (is_recurrent || has_other_rows) return 0;
    return latent_rows + key_rows + (value_rows > 0 ? value_rows : key_rows) + index_rows;
  }
};

struct stored_weights {
  std::string model{};  ///< path, for messages
  std::vector<std::string> paths{};
  std::map<std::uint64_t, stored_layer> layers{};
  bool found_by_shape = false;           ///< experts, and not by their names
  std::set<std::uint64_t> prediction{};  ///< layers of multi-token prediction, not in `layers`
  std::uint64_t prediction_bytes =
      0;                             ///< in .safetensors files, where they are counted nowhere else
  std::uint64_t resident_bytes = 0;  ///< bytes outside all layers
  std::size_t cut_files = 0;         ///< truncated files
  std::uint64_t missing_bytes = 0;   ///< bytes missing from them
  std::string largest_other{};       ///< largest tensor without experts
  std::uint64_t largest_other_bytes = 0;

  /// Experts of the first MoE layer; 0 without one.
  [[nodiscard]] std::uint64_t experts() const noexcept;
  /// Sorts the runs of each part. Errors: trace_error unless each part has each of `experts` experts once, all of one
  /// size.
  void check_experts(std::uint64_t experts);
  /// Bytes of an expert in each MoE layer. Pre: the experts were checked.
  [[nodiscard]] std::vector<std::uint64_t> expert_bytes() const;
  [[nodiscard]] std::uint64_t all_resident_bytes() const noexcept;
};

/// Weight files of a folder: model.safetensors, else the files in model.safetensors.index.json, else every
/// .safetensors file; or the given file, with the others if it is one of several parts. Errors: trace_error, which
/// names a part that is missing.
[[nodiscard]] std::vector<std::filesystem::path> find_safetensors(
    const std::filesystem::path& path);

/// Names of Hugging Face and MLX, for messages: experts apart, or in stacks along the first extent.
inline constexpr std::string_view known_expert_names =
    "layers.0.mlp.experts.0.up_proj.weight, layers.0.mlp.experts.gate_up_proj, "
    "layers.0.mlp.switch_mlp.up_proj.weight or layers.0.block_sparse_moe.input_linear.weight";

using tensor_bytes = std::map<std::string, std::uint64_t, std::less<>>;
/// Reads only headers. `path` is that of the model; `bytes`: of each tensor, else as stored. Errors: trace_error.
[[nodiscard]] stored_weights read_safetensors_weights(
    const std::filesystem::path& path, const std::vector<std::filesystem::path>& files,
    file_extent extent, const tensor_bytes& bytes = {});

/// Names of llama.cpp: "blk.<l>.<part>"; "ffn_up_exps.weight" and similar names stack experts along the last extent;
/// older files have "ffn_up.<e>.weight". Errors: trace_error.
[[nodiscard]] stored_weights read_gguf_weights(const std::filesystem::path& path,
                                               std::span<const gguf_file> parts,
                                               const tensor_bytes& bytes = {});

}  // namespace hotset::lab
