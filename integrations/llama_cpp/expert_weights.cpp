// SPDX-License-Identifier: Apache-2.0
#include "expert_weights.hpp"

#include "graph_nodes.hpp"

namespace hotset_llama_cpp {

namespace {

ggml_backend_buffer_t buffer_of(const ggml_tensor& tensor) {
  return tensor.view_src != nullptr ? tensor.view_src->buffer : tensor.buffer;
}

}  // namespace

void weight_finder::see(ggml_tensor& node) {
  ++nodes_;
  buffers_.insert(buffer_of(node));
  for (const auto* const source : node.src)
    if (source != nullptr) buffers_.insert(buffer_of(*source));
  auto router = chosen_of(node);
  if (router) top_k_ = node.ne[0];
  if (router && routed_.contains(*router)) twice_ = router;
  if (!router) router = weights_of(node);
  if (router && !layers_.contains(*router)) routed_[*router] = node.name;
  const auto op = expert_operation_of(node);
  const auto layer = op ? ids_of(**op->ids) : std::nullopt;
  if (!layer) return;
  const std::string name = (*op->weight)->name;
  const auto prefix = "blk." + std::to_string(*layer) + ".";
  if (name.starts_with(prefix))
    layers_[*layer][name.substr(prefix.size())] = {*op->weight, op->bytes, op->experts};
}

const expert_weight* weight_finder::find(std::int32_t layer, const std::string& name) const {
  const auto found = layers_.find(layer);
  if (found == layers_.end()) return nullptr;
  const auto weight = found->second.find(name);
  return weight == found->second.end() ? nullptr : &weight->second;
}

std::uint64_t weight_finder::host_bytes_of(ggml_backend_buffer_usage usage) const {
  std::uint64_t out = 0;
  for (auto* const buffer : buffers_)
    if (buffer != nullptr && ggml_backend_buffer_is_host(buffer) &&
        ggml_backend_buffer_get_usage(buffer) == usage)
      out += ggml_backend_buffer_get_size(buffer);
  return out;
}

}  // namespace hotset_llama_cpp
