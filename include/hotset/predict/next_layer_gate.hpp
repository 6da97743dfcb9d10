// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Predicts the next layers' routing from what the running visit shows, as a forecast.
///
/// Rule: `next_router`: scores (softmax, unless the model says otherwise) of layer l+d's router applied to the hidden state
///       that enters layer l's router. `current_gate`: the probabilities of layer l itself (shares of the logits' scores if
///       the engine gives none), for each layer ahead. `recorded`: what was predicted when a trace was taken. All for
///       d = 1..depth.
/// Source: Eliseev and Mazur (next_router); SpecMD A.3 (both).
/// Deviations: none. Rows of layers past the last are zeros, but for recorded ones, which stay as they are.
/// Exact: yes (never changes what is computed).
/// Cost: next_router O(tokens depth experts d_model); else O(tokens depth experts) where something is copied.
///       Memory: 4 bytes x max_tokens_per_visit x depth x experts.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/router_scores.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/predict/kernels/dot_product.hpp"

namespace hotset {

/// What next_layer_gate goes by.
enum class gate_source : std::uint8_t { next_router, current_gate, recorded };

/// A forecast is good until the next call, and while the arrays that it was made from live. Sums of products and
/// exponentials are those of the build: their last bits may differ between machines.
class next_layer_gate {
 public:
  struct config {
    gate_source source = gate_source::current_gate;
    std::int32_t depth = 1;    ///< layers ahead
    std::int32_t d_model = 0;  ///< of next_router: width of the hidden state
    /// Of next_router: [layers] of [experts, d_model], row-major; the caller keeps them alive. Layer 0's may be empty.
    std::vector<std::span<const float>> routers{};
    router_scores::config scores{};  ///< how the model's routers make scores of logits
    /// Of next_router: [layers] of [experts], what routers add to scores before they choose. Empty: nothing; so may each be.
    std::vector<std::span<const float>> biases{};

    [[nodiscard]] validation validate() const {
      if (source != gate_source::next_router && source != gate_source::current_gate &&
          source != gate_source::recorded)
        return error{"next_layer_gate source = " + std::to_string(static_cast<int>(source)) +
                     ", accepted: 0 (next_router), 1 (current_gate), 2 (recorded)"};
      if (depth < 1)
        return error{"next_layer_gate depth = " + std::to_string(depth) + ", accepted: 1 or more"};
      if (source == gate_source::next_router && d_model < 1)
        return error{"next_layer_gate d_model = " + std::to_string(d_model) +
                     ", accepted: 1 or more"};
      return scores.validate();
    }
    /// As validate(), and it must belong to this shape.
    [[nodiscard]] validation validate(const geometry& shape) const {
      if (auto bad = validate()) return bad;
      if (depth > shape.layers - 1)
        return error{"next_layer_gate depth = " + std::to_string(depth) + ", accepted: 1.." +
                     std::to_string(shape.layers - 1) + " (layers - 1)"};
      if (source == gate_source::recorded) return std::nullopt;
      if (auto bad = scores.validate(shape)) return bad;
      if (source == gate_source::current_gate) return std::nullopt;
      if (routers.size() != shape.layer_count())
        return error{"next_layer_gate has " + std::to_string(routers.size()) +
                     " routers, accepted: one per layer (" + std::to_string(shape.layers) + ")"};
      const auto values = shape.expert_count() * static_cast<std::size_t>(d_model);
      for (std::size_t l = 0; l < routers.size(); ++l)
        if (routers[l].size() != values && !(l == 0 && routers[l].empty()))
          return error{"next_layer_gate routers[" + std::to_string(l) + "] has " +
                       std::to_string(routers[l].size()) +
                       " values, accepted: experts x d_model (" + std::to_string(values) + ")"};
      return validate_biases(shape);
    }

   private:
    [[nodiscard]] validation validate_biases(const geometry& shape) const {
      if (!biases.empty() && biases.size() != shape.layer_count())
        return error{"next_layer_gate has " + std::to_string(biases.size()) +
                     " biases, accepted: none, or one per layer (" + std::to_string(shape.layers) +
                     ")"};
      for (std::size_t l = 0; l < biases.size(); ++l)
        if (!biases[l].empty() && biases[l].size() != shape.expert_count())
          return error{"next_layer_gate biases[" + std::to_string(l) + "] has " +
                       std::to_string(biases[l].size()) + " values, accepted: none, or experts (" +
                       std::to_string(shape.experts) + ")"};
      return std::nullopt;
    }
  };

  /// Pre: options.validate(shape) has no reason to refuse.
  next_layer_gate(const geometry& shape, config options)
      : options_(std::move(options)),
        layers_(shape.layers),
        experts_(shape.expert_count()),
        depth_(static_cast<std::size_t>(options_.depth)),
        most_tokens_(shape.tokens_per_visit()),
        scores_(shape, options_.source == gate_source::recorded ? router_scores::config{}
                                                                : options_.scores),
        rows_(most_tokens_ * depth_ * experts_) {
    HOTSET_ASSERT(!options_.validate(shape));
  }

  [[nodiscard]] gate_source source() const noexcept { return options_.source; }
  [[nodiscard]] std::int32_t depth() const noexcept { return options_.depth; }

  /// Pre: 0 <= view.layer.
  /// Returns: an empty forecast in the last layer, for `recorded`, where the view lacks what is needed, and for
  /// more tokens than max_tokens_per_visit.
  [[nodiscard]] forecast expect(const routing_view& view) noexcept {
    if (options_.source == gate_source::next_router) return from_routers(view);
    if (options_.source == gate_source::current_gate) return from_current_gate(view);
    return {};
  }
  /// Of `recorded`. Shape: `predictions` is [tokens, ahead, experts], of the layers after the view's.
  /// Returns: an empty forecast also where `ahead` < depth, and for another source.
  [[nodiscard]] forecast expect(const routing_view& view, std::span<const float> predictions,
                                std::int32_t ahead) noexcept {
    if (options_.source != gate_source::recorded || ahead < options_.depth) return {};
    const auto width = static_cast<std::size_t>(ahead) * experts_;
    const auto tokens = tokens_in(predictions, width);
    if (tokens == 0 || is_last(view)) return {};
    const auto wanted = depth_ * experts_;
    if (width == wanted || tokens == 1) return made(predictions.first(tokens * wanted));
    for (std::size_t t = 0; t < tokens; ++t)
      std::copy_n(&predictions[t * width], wanted, &rows_[t * wanted]);
    return made(std::span(rows_).first(tokens * wanted));
  }

 private:
  [[nodiscard]] forecast made(std::span<const float> probabilities) const noexcept {
    forecast out;
    out.probabilities = probabilities;
    out.depth = options_.depth;
    return out;
  }
  [[nodiscard]] bool is_last(const routing_view& view) const noexcept {
    return view.layer + 1 >= layers_;
  }
  /// 0 where the values are no whole number of tokens, or of more than there is room for.
  [[nodiscard]] std::size_t tokens_in(std::span<const float> values,
                                      std::size_t width) const noexcept {
    const auto tokens = values.size() / width;
    return tokens * width == values.size() && tokens <= most_tokens_ ? tokens : 0;
  }
  /// Rows ahead that a layer of the model stands for.
  [[nodiscard]] std::size_t reach(const routing_view& view) const noexcept {
    return std::min(depth_, static_cast<std::size_t>(layers_ - 1 - number(view.layer)));
  }
  [[nodiscard]] std::span<float> row(std::size_t token, std::size_t ahead) noexcept {
    return std::span(rows_).subspan((token * depth_ + ahead) * experts_, experts_);
  }
  /// Zeros for the layers past the last; the forecast of what rows_ holds.
  [[nodiscard]] forecast finished(const routing_view& view, std::size_t tokens) noexcept {
    for (std::size_t t = 0; t < tokens; ++t)
      for (auto d = reach(view); d < depth_; ++d) std::ranges::fill(row(t, d), 0.0F);
    return made(std::span(rows_).first(tokens * depth_ * experts_));
  }

  [[nodiscard]] forecast from_routers(const routing_view& view) noexcept {
    const auto width = static_cast<std::size_t>(options_.d_model);
    const auto tokens = tokens_in(view.hidden, width);
    if (tokens == 0 || is_last(view)) return {};
    for (std::size_t d = 0; d < reach(view); ++d) {
      // One layer's router for all tokens: it is read from memory once.
      const auto of = layers_until(view.layer) + d;
      const auto router = options_.routers[of];
      const auto bias = options_.biases.empty() ? std::span<const float>() : options_.biases[of];
      for (std::size_t e = 0; e < experts_; ++e)
        for (std::size_t t = 0; t < tokens; ++t)
          row(t, d)[e] = detail::dot(&router[e * width], &view.hidden[t * width], width);
      for (std::size_t t = 0; t < tokens; ++t) scores_.likely(row(t, d), bias, row(t, d));
    }
    return finished(view, tokens);
  }
  [[nodiscard]] forecast from_current_gate(const routing_view& view) noexcept {
    const bool known = !view.probabilities.empty();
    const auto values = known ? view.probabilities : view.logits;
    const auto tokens = tokens_in(values, experts_);
    if (tokens == 0 || is_last(view)) return {};
    if (known && depth_ == 1) return made(values);
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto of_token = values.subspan(t * experts_, experts_);
      if (known)
        std::ranges::copy(of_token, row(t, 0).begin());
      else
        scores_.shares(of_token, row(t, 0));
      for (std::size_t d = 1; d < reach(view); ++d) std::ranges::copy(row(t, 0), row(t, d).begin());
    }
    return finished(view, tokens);
  }

  config options_;
  std::int32_t layers_;
  std::size_t experts_;
  std::size_t depth_;
  std::size_t most_tokens_;
  router_scores scores_;
  std::vector<float> rows_;  // [tokens, depth, experts]
};

}  // namespace hotset
