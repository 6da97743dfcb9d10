// SPDX-License-Identifier: Apache-2.0
#include "expert_weights.hpp"

#include <cstring>
#include <string_view>

#include "ggml-backend.h"
#include "graph_nodes.hpp"

namespace hotset_llama_cpp {

void weight_finder::see(ggml_tensor& node) {
  if (const auto layer = chosen_of(node)) {
    chosen_[&node] = *layer;
    return;
  }
  if (const auto layer = weights_of(node)) last_[*layer] = node.name;
  for (auto* const source : node.src) {
    const auto found = chosen_.find(source);
    if (found == chosen_.end()) continue;
    switch (node.op) {
      case GGML_OP_VIEW:
      case GGML_OP_RESHAPE:
      case GGML_OP_CONT: chosen_[&node] = found->second; break;
      case GGML_OP_MUL_MAT_ID: add(node, node.src[0], node.src[0]->nb[2]); break;
      case GGML_OP_ADD_ID: add(node, node.src[1], node.src[1]->nb[1]); break;
      case GGML_OP_GET_ROWS:
        if (weights_of(node)) break;  // the gate's weights, read before the ids are changed
        [[fallthrough]];
      default:
        trouble_ = std::string("node ") + node.name + " (" + ggml_op_name(node.op) +
                   ") goes by the number of an expert, accepted: products and biases alone";
    }
    return;
  }
}

void weight_finder::add(const ggml_tensor& node, ggml_tensor* weight, std::size_t bytes) {
  const std::string_view name = weight->name;
  constexpr std::string_view blocks = "blk.";
  const auto digits =
      name.starts_with(blocks) ? name.find('.', blocks.size()) : std::string_view::npos;
  if (digits == std::string_view::npos) {
    trouble_ =
        std::string("weight '") + weight->name + "' of node " + node.name + " has an unknown name";
    return;
  }
  const auto layer = std::stoi(std::string(name.substr(blocks.size(), digits - blocks.size())));
  if (weight->buffer == nullptr || !ggml_backend_buffer_is_host(weight->buffer))
    trouble_ = std::string("weight '") + weight->name +
               "' is not in host memory as the file has it, accepted: n_gpu_layers = 0 and "
               "use_extra_bufts = false";
  layers_[layer][std::string(name.substr(digits + 1))] = {weight, bytes, weight->data};
}

hotset::validation weight_finder::check() const {
  if (layers_.empty())
    return hotset::error{"the model has no experts, accepted: a Mixture-of-Experts model"};
  if (!trouble_.empty()) return hotset::error{trouble_};
  for (const auto& [layer, weights] : layers_)
    if (!last_.contains(layer))
      return hotset::error{"layer " + std::to_string(layer) +
                           " has no gate weights that hotset knows"};
  return std::nullopt;
}

}  // namespace hotset_llama_cpp
