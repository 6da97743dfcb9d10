// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Reads routers among the nodes of llama.cpp's graphs: their inputs, logits and weights, and how logits become scores.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ggml.h"
#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/router_scores.hpp"
#include "hotset/predict/gate_predictors.hpp"

namespace hotset_llama_cpp {

/// A layer's router. Its logits are weight * input + bias.
struct router {
  std::vector<float> weight{};          ///< [experts, width]
  std::vector<float> bias{};            ///< [experts] or empty
  std::vector<float> selection_bias{};  ///< [experts] or empty: added to scores before the choice
  hotset::router_scores::config scores{};
  std::string unknown_scores{};  ///< operation that makes other scores; empty if they are supported
  // Values of the last micro-batch.
  std::vector<float> logits{};  ///< [tokens, experts]
  std::vector<float> input{};   ///< [tokens, width]

  [[nodiscard]] std::int32_t width(std::int32_t experts) const noexcept {
    return static_cast<std::int32_t>(weight.size()) / experts;
  }
};

/// Observes the routers of one context.
class router_tap {
 public:
  /// `layers`: number in the model of each layer with experts.
  explicit router_tap(const std::vector<std::uint64_t>& layers);

  /// Call for every node as ggml's scheduler calls back. Returns whether to stop at the node.
  bool see(const ggml_tensor& node, bool ask);

  /// Call after the first micro-batch.
  /// Errors: a layer whose router is not a product of a matrix and an input, is wider or narrower than the first, or
  /// has other scores than softmax and sigmoid.
  [[nodiscard]] hotset::validation check() const;

  /// [layers with experts]
  [[nodiscard]] const std::vector<router>& routers() const noexcept { return routers_; }

 private:
  void look(const ggml_tensor& node);
  /// The router whose logits this node holds, before or after its bias is added; or null.
  [[nodiscard]] router* of_logits(const ggml_tensor& node);
  [[nodiscard]] router* named(const ggml_tensor& node, const char* what);

  std::vector<std::uint64_t> layers_;
  std::map<std::int32_t, std::size_t> number_of_{};  ///< layer of the model -> layer with experts
  std::vector<router> routers_;
};

/// Scores that the next layers' routers give a layer's input.
class next_layer_scores {
 public:
  /// Keeps copies of the routers. Pre: check() returned no error, 1 <= depth < layers.
  next_layer_scores(const hotset::geometry& shape, const std::vector<router>& routers,
                    std::int32_t depth);
  /// Shape: [tokens, depth, experts]; zeros past the last layer.
  [[nodiscard]] std::vector<float> expect(hotset::layer_id layer, const std::vector<float>& input);

 private:
  std::size_t width_;
  std::size_t row_;  ///< values of a token in all layers ahead
  std::int32_t layers_;
  std::vector<std::vector<float>> weights_;  ///< [layers] of [experts, width + 1], the bias last
  std::vector<std::vector<float>> selection_biases_;
  std::optional<hotset::next_router> predictor_{};
};

}  // namespace hotset_llama_cpp
