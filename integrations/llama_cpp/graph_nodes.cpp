// SPDX-License-Identifier: Apache-2.0
#include "graph_nodes.hpp"

#include <charconv>

#include "ggml-backend.h"

namespace hotset_llama_cpp {

namespace {
constexpr std::string_view chosen_name = "ffn_moe_topk";
}  // namespace

std::optional<std::int32_t> layer_of(std::string_view name, std::string_view what) {
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
  return layer_of(node.name, chosen_name);
}

std::optional<std::int32_t> ids_of(const ggml_tensor& tensor) {
  std::string_view name = tensor.name;
  if (const auto copy = name.rfind('#'); copy != std::string_view::npos && copy > 0) {
    name = name.substr(0, copy);
    const auto device = name.rfind('#');
    if (device == std::string_view::npos) return std::nullopt;
    name.remove_prefix(device + 1);
  }
  return layer_of(name, chosen_name);
}

std::optional<std::int32_t> weights_of(const ggml_tensor& node) {
  for (const auto* const what : {"ffn_moe_weights", "ffn_moe_weights_softmax",
                                 "ffn_moe_weights_norm", "ffn_moe_weights_scaled"})
    if (const auto layer = layer_of(node.name, what)) return layer;
  return std::nullopt;
}

const std::byte* host_bytes(const ggml_tensor& node, std::vector<std::byte>& buffer) {
  const auto* const place = node.view_src != nullptr ? node.view_src->buffer : node.buffer;
  if (ggml_backend_buffer_is_host(const_cast<ggml_backend_buffer_t>(place)))
    return static_cast<const std::byte*>(node.data);
  buffer.resize(ggml_nbytes(&node));
  ggml_backend_tensor_get(&node, buffer.data(), 0, buffer.size());
  return buffer.data();
}

std::optional<expert_operation> expert_operation_of(ggml_tensor& node) {
  const auto of = [&](std::size_t weight, int extent) {
    const auto& tensor = *node.src[weight];
    return expert_operation{&node.src[weight], &node.src[2], tensor.nb[extent], tensor.ne[extent]};
  };
  if (node.op == GGML_OP_MUL_MAT_ID) return of(0, 2);
  if (node.op == GGML_OP_ADD_ID) return of(1, 1);
  return std::nullopt;
}

void replaced_sources::replace(ggml_tensor& node, const expert_operation& op, ggml_tensor& weight,
                               ggml_tensor& ids) {
  nodes_[&node] = {*op.weight, *op.ids, &weight};
  *op.weight = &weight;
  *op.ids = &ids;
}

void replaced_sources::restore(ggml_tensor& node) {
  const auto op = expert_operation_of(node);
  if (!op) return;
  const auto found = nodes_.find(&node);
  if (found == nodes_.end() || *op->weight != found->second.weight) return;
  *op->weight = found->second.own_weight;
  *op->ids = found->second.own_ids;
}

}  // namespace hotset_llama_cpp
