// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Weights in a format that the user wishes, in place of the released one.

#include <span>
#include <string>
#include <string_view>

#include "hotset/core/error.hpp"
#include "lab/models/stored_weights.hpp"

namespace hotset::lab {

struct model_shape;

/// Known formats, from most to fewest bits of an expert. "4.5bpw", any number of bits in linear layers, is known too.
[[nodiscard]] std::span<const std::string_view> wished_weight_names() noexcept;

/// Returns nothing for a known format, in any case of letters.
[[nodiscard]] validation check_wish(std::string_view name);

/// The name of wished_weight_names() for another spelling, or "4.5bpw" for "4.5". Pre: check_wish() accepts it.
[[nodiscard]] std::string wish_name(std::string_view name);

/// Whether llama.cpp's quantiser writes the format: Q4_K_M, MXFP4, ...
[[nodiscard]] bool is_llama_mixture(std::string_view name);

/// Replaces the formats of all modules, in all layers, and adds a note with the bytes of an expert before and after.
/// llama.cpp's mixtures follow the rules of its quantiser, by role and layer; those with IQ in their name as with an
/// importance matrix, the others as without. Experts that were released in MXFP4 keep it in these mixtures.
/// Pre: check_wish() accepts the name.
void wish_weights(std::string_view name, model_shape& shape);

/// Bytes of each tensor of a GGUF file, in the format `name`; nothing for an empty name. `layers`: block_count;
/// `queries`: heads of queries for each head of keys.
[[nodiscard]] tensor_bytes wish_tensors(std::string_view name, std::span<const gguf_file> parts,
                                        std::uint64_t layers, std::uint64_t experts,
                                        std::uint64_t queries);

/// A tensor of a .safetensors file.
struct plain_tensor {
  std::string name;
  std::vector<std::uint64_t> shape;
};
/// wish_tensors() for these tensors, none of which is packed.
[[nodiscard]] tensor_bytes wish_plain(std::string_view name, std::span<const plain_tensor> tensors,
                                      std::uint64_t experts);

/// "weights as Q4_K_M: 2.7 MiB an expert on average; as released 9 MiB". Bytes of an expert in each MoE layer, or in
/// all; none: unknown.
[[nodiscard]] std::string wish_note(std::string_view name, std::span<const std::uint64_t> bytes,
                                    std::span<const std::uint64_t> before);

}  // namespace hotset::lab
