// SPDX-License-Identifier: Apache-2.0
#include "graph_nodes.hpp"

#include <charconv>

namespace hotset_llama_cpp {

std::optional<std::int32_t> layer_of(const ggml_tensor& node, std::string_view what) {
  const std::string_view name = node.name;
  if (name.size() < what.size() + 2 || !name.starts_with(what) || name[what.size()] != '-')
    return std::nullopt;
  const auto* const begin = name.data() + what.size() + 1;
  const auto* const end = name.data() + name.size();
  std::int32_t layer = -1;
  const auto read = std::from_chars(begin, end, layer);
  return read.ec == std::errc() && read.ptr == end && layer >= 0 ? std::optional(layer)
                                                                 : std::nullopt;
}

std::optional<std::int32_t> chosen_of(const ggml_tensor& node) {
  return layer_of(node, "ffn_moe_topk");
}

std::optional<std::int32_t> weights_of(const ggml_tensor& node) {
  for (const auto* const what : {"ffn_moe_weights", "ffn_moe_weights_softmax",
                                 "ffn_moe_weights_norm", "ffn_moe_weights_scaled"})
    if (const auto layer = layer_of(node, what)) return layer;
  return std::nullopt;
}

}  // namespace hotset_llama_cpp
