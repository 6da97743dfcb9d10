// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Bytes of a model by the names of its tensors: routed experts by layer, and the rest.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace hotset::lab {

/// What the headers of a model's files say of one decoder layer. Units: bytes, and elements.
struct stored_layer {
  std::map<std::uint64_t, std::uint64_t> experts;  ///< bytes by expert; of experts that lie apart
  std::uint64_t stacked_experts = 0;               ///< in each tensor of stacked experts
  std::uint64_t stacked_bytes = 0;
  std::uint64_t resident_bytes = 0;
  std::uint64_t kv_elements = 0;  ///< rows of the projections that make keys and values

  [[nodiscard]] bool is_moe() const noexcept { return !experts.empty() || stacked_experts > 0; }
};

/// The layers in ascending order of their number, and what is in no layer.
struct stored_weights {
  std::map<std::uint64_t, stored_layer> layers;
  std::uint64_t resident_bytes = 0;
  std::size_t cut_files = 0;        ///< files that end before their data does
  std::uint64_t missing_bytes = 0;  ///< of their data
  std::string largest_other;        ///< the largest tensor that is not of experts
  std::uint64_t largest_other_bytes = 0;

  /// Experts of the first MoE layer, 0 where there is none.
  [[nodiscard]] std::uint64_t experts() const noexcept;
  /// The experts of each MoE layer, all of one size in a layer. Errors: trace_error if a layer has another number of
  /// experts than `experts`, or experts of several sizes.
  [[nodiscard]] std::vector<std::uint64_t> expert_bytes(std::uint64_t experts,
                                                        const std::string& file) const;
  [[nodiscard]] std::uint64_t all_resident_bytes() const noexcept;
};

/// The weights of a folder: model.safetensors, else what model.safetensors.index.json lists, else every .safetensors
/// file; or one file that is no part of several. Errors: trace_error.
[[nodiscard]] std::vector<std::filesystem::path> find_safetensors(
    const std::filesystem::path& path);

/// Headers alone, by the names of place_in_safetensors(). Errors: trace_error.
[[nodiscard]] stored_weights read_safetensors_weights(
    const std::vector<std::filesystem::path>& files);

}  // namespace hotset::lab
