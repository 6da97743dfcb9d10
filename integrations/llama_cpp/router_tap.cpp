// SPDX-License-Identifier: Apache-2.0
#include "router_tap.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "graph_nodes.hpp"

namespace hotset_llama_cpp {

using namespace hotset;

namespace {

std::vector<float> numbers_of(const ggml_tensor& tensor) {
  std::vector<std::byte> buffer;
  const auto* const bytes = host_bytes(tensor, buffer);
  std::vector<float> out(static_cast<std::size_t>(ggml_nelements(&tensor)));
  if (tensor.type == GGML_TYPE_F32)
    std::memcpy(out.data(), bytes, out.size() * sizeof(float));
  else
    ggml_get_type_traits(tensor.type)->to_float(bytes, out.data(), ggml_nelements(&tensor));
  return out;
}

bool is_product(const ggml_tensor& node) { return node.op == GGML_OP_MUL_MAT; }
bool is_sum(const ggml_tensor& node) { return node.op == GGML_OP_ADD; }

void look_at_scores(router& of, const ggml_tensor& node) {
  if (node.op == GGML_OP_UNARY && ggml_get_unary_op(&node) == GGML_UNARY_OP_SIGMOID)
    of.scores.function = score_function::sigmoid;
  else if (node.op == GGML_OP_SOFT_MAX || is_product(node) || is_sum(node))
    of.scores.function = score_function::softmax;
  else
    of.unknown_scores = ggml_op_desc(&node);
}

}  // namespace

router_tap::router_tap(const std::vector<std::uint64_t>& layers)
    : layers_(layers), routers_(layers.size()) {
  for (std::size_t l = 0; l < layers.size(); ++l)
    number_of_[static_cast<std::int32_t>(layers[l])] = l;
}

router* router_tap::named(const ggml_tensor& node, const char* what) {
  const auto layer = layer_of(node.name, what);
  const auto found = layer ? number_of_.find(*layer) : number_of_.end();
  return found == number_of_.end() ? nullptr : &routers_[found->second];
}

router* router_tap::of_logits(const ggml_tensor& node) {
  if (!is_product(node) && !is_sum(node)) return nullptr;
  auto* const of = named(node, is_product(node) ? "ffn_moe_logits" : "ffn_moe_logits_biased");
  // llama.cpp gives the logits this name if the router weighs only the chosen experts.
  return of != nullptr ? of : named(node, "ffn_moe_probs");
}

bool router_tap::see(const ggml_tensor& node, bool ask) {
  if (ask) look(node);
  auto* const of = of_logits(node);
  if (of == nullptr || ask) return of != nullptr;
  copy_rows(node, node.ne[0], of->logits);
  if (is_product(node)) copy_rows(*node.src[1], node.src[1]->ne[0], of->input);
  return true;
}

void router_tap::look(const ggml_tensor& node) {
  if (auto* const of = of_logits(node)) {
    if (is_product(node) && of->weight.empty()) of->weight = numbers_of(*node.src[0]);
    if (is_sum(node) && of->bias.empty()) of->bias = numbers_of(*node.src[1]);
  }
  if (auto* const of = named(node, "ffn_moe_probs")) look_at_scores(*of, node);
  if (auto* const of = named(node, "ffn_moe_probs_biased"))
    if (is_sum(node) && of->selection_bias.empty()) of->selection_bias = numbers_of(*node.src[1]);
  if (auto* const of = named(node, "ffn_moe_group_topk")) {
    of->scores.groups = static_cast<std::int32_t>(node.src[0]->ne[0]);
    of->scores.top_groups = static_cast<std::int32_t>(node.ne[0]);
  }
}

validation router_tap::check() const {
  for (std::size_t l = 0; l < routers_.size(); ++l) {
    const auto& r = routers_[l];
    const auto where = "layer " + std::to_string(layers_[l]);
    if (!r.unknown_scores.empty())
      return error{where + ": its router scores by " + r.unknown_scores +
                   ", accepted: softmax or sigmoid"};
    if (r.weight.empty() || r.weight.size() != routers_.front().weight.size())
      return error{where +
                   ": its router is not a product of a matrix and an input, accepted: one as wide "
                   "as the first layer's"};
  }
  return std::nullopt;
}

next_layer_scores::next_layer_scores(const geometry& shape, const std::vector<router>& routers,
                                     std::int32_t depth)
    : width_(static_cast<std::size_t>(routers.front().width(shape.experts))),
      row_(static_cast<std::size_t>(depth) * shape.expert_count()),
      layers_(shape.layers) {
  next_router::config config;
  config.depth = depth;
  config.d_model = static_cast<std::int32_t>(width_ + 1);
  config.scores = routers.back().scores;
  // Groups of softmax scores rank by another rule in each family.
  if (config.scores.function == score_function::softmax)
    config.scores.groups = config.scores.top_groups = 1;
  for (const auto& r : routers) {
    auto& rows = weights_.emplace_back();
    for (std::size_t e = 0; e < shape.expert_count(); ++e) {
      const auto begin = r.weight.begin() + static_cast<std::ptrdiff_t>(e * width_);
      rows.insert(rows.end(), begin, begin + static_cast<std::ptrdiff_t>(width_));
      rows.push_back(r.bias.empty() ? 0.0F : r.bias[e]);
    }
    selection_biases_.push_back(r.selection_bias);
  }
  config.routers.assign(weights_.begin(), weights_.end());
  config.biases.assign(selection_biases_.begin(), selection_biases_.end());
  predictor_.emplace(next_router::create(shape, config).value());
}

std::vector<float> next_layer_scores::expect(layer_id layer, const std::vector<float>& input) {
  const auto tokens = input.size() / width_;
  std::vector<float> widened;
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto row = std::span(input).subspan(t * width_, width_);
    widened.insert(widened.end(), row.begin(), row.end());
    widened.push_back(1.0F);
  }
  routing_view view;
  view.layer = layer;
  view.hidden = widened;
  const auto expected = predictor_->expect(view);
  if (layer + 1 >= layers_) return std::vector<float>(tokens * row_, 0.0F);
  return {expected.probabilities.begin(), expected.probabilities.end()};
}

}  // namespace hotset_llama_cpp
