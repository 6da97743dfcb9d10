// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Records the routers' scores: logits, probabilities, inputs, and predictions of the next layers' scores.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ggml.h"
#include "hotset/core/geometry.hpp"
#include "hotset/core/router_scores.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/trace/routing_trace.hpp"
#include "router_tap.hpp"

namespace hotset_llama_cpp {

/// Arrays beside ids and gate weights.
struct score_options {
  bool on = false;
  std::int32_t next_layers = 1;  ///< layers ahead with predictions
  bool hidden = false;           ///< the routers' inputs
};

/// For one context.
///
/// logits: with the router's bias, without the bias of the choice. probabilities: softmax of all logits; or sigmoid,
/// divided by the sum. predictions: likely() scores of later layers' routers on this layer's input.
class score_recorder {
 public:
  /// `layers`: number in the model of each layer with experts. shape.max_tokens_per_visit: of a micro-batch.
  /// Pre: 0 <= wanted.next_layers < shape.layers.
  score_recorder(const hotset::geometry& shape, const std::vector<std::uint64_t>& layers,
                 const score_options& wanted);

  /// Call for every node as ggml's scheduler calls back. Returns whether to stop at the node.
  bool see(const ggml_tensor& node, bool ask) { return tap_.see(node, ask); }
  /// Call after each micro-batch. Errors: throws std::runtime_error: those of router_tap::check.
  void close_step(std::size_t tokens);
  /// Adds the last micro-batch's scores. The view is valid until the next call.
  void add_to(hotset::routing_view& view);
  /// Adds the predictions of all micro-batches, and descriptions.
  void move_into(hotset::routing_trace& trace);

 private:
  void predict(std::size_t tokens);

  hotset::geometry shape_;
  score_options wanted_;
  router_tap tap_;
  // Made from the routers that the first micro-batch shows.
  std::optional<hotset::router_scores> shares_{};
  std::optional<next_layer_scores> next_{};
  std::vector<float> probabilities_{};        ///< of the view
  std::vector<std::uint16_t> predictions_{};  ///< [tokens, layers, next_layers, experts]
};

}  // namespace hotset_llama_cpp
