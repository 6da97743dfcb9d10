// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Forecasts the next layers' routing from the running visit. Three predictors by source of the scores.
///
/// | `--predictor` | class | scores from |
/// |---|---|---|
/// | `recorded` | `recorded_scores` | predictions in the trace |
/// | `current-gate` | `current_gate` | the running layer's own scores |
/// | `next-router` | `next_router` | the next layers' routers on this layer's hidden state |
///
/// Rule: `next_router`: scores (softmax, unless the model says otherwise) of layer l+d's router, applied to the
///       hidden state that enters layer l's router. `current_gate`: the probabilities of layer l itself, for each
///       layer ahead; if the engine gives none, the logits' scores, normalised. `recorded`: predictions recorded with
///       the trace. All for d = 1..depth.
/// Source: Eliseev and Mazur (next_router); SpecMD A.3 (both).
/// Deviations: none. Rows of layers past the last are zeros; recorded rows stay as recorded.
/// Exact: yes (never changes what is computed).
/// Cost: next_router O(tokens depth experts d_model); else O(tokens depth experts).
///       Memory: 4 bytes x max_tokens_per_visit x depth x experts.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/router_scores.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/policy/policy_config.hpp"
#include "hotset/policy/predictor.hpp"
#include "hotset/predict/forecast_rows.hpp"
#include "hotset/predict/kernels/value_kernels.hpp"
#include "hotset/predict/refusals.hpp"

namespace hotset {

/// Source of a gate predictor's scores.
enum class gate_source : std::uint8_t { next_router, current_gate, recorded };

/// A forecast is valid until the next call. The last bits of products, sums and exponentials depend on the build:
/// they may differ between machines.
template <gate_source Source>
class gate_predictor {
  static constexpr bool by_routers = Source == gate_source::next_router;
  static constexpr bool by_record = Source == gate_source::recorded;

 public:
  struct config {
    std::int32_t depth = 1;    ///< layers ahead
    std::int32_t d_model = 0;  ///< width of the hidden state, for next_router
    /// Routers for next_router: [layers] of [experts, d_model], row-major. The caller keeps them alive. Layer 0's may
    /// be empty.
    std::vector<std::span<const float>> routers{};
    router_scores::config scores{};  ///< how routers turn logits into scores; not used by recorded
    /// Biases for next_router: [layers] of [experts], added to scores before the choice. All or each may be empty.
    std::vector<std::span<const float>> biases{};

    /// Parameters by name, for example `current-gate:scores=sigmoid`; `recorded` has none.
    template <class From>
    static config read([[maybe_unused]] From& from) {
      config out;
      if constexpr (!by_record) out.scores = router_scores::config::read(from);
      return out;
    }
    /// Checks the options without routers: the engine supplies those later.
    [[nodiscard]] validation validate() const {
      return detail::first_of(
          {detail::refuse_unless(depth >= 1, "next_layer_gate depth", depth, "1 or more"),
           scores.validate()});
    }
    /// Checks validate() and that the options match this shape.
    [[nodiscard]] validation validate(const geometry& shape) const {
      if (auto bad = validate()) return bad;
      if (auto bad =
              detail::within("next_layer_gate depth", depth, 1, shape.layers - 1, "layers - 1"))
        return bad;
      if (by_record) return std::nullopt;
      if (auto bad = scores.validate(shape); bad || !by_routers) return bad;
      if (d_model < 1) return refuse_value("next_layer_gate d_model", d_model, "1 or more");
      if (routers.size() != shape.layer_count())
        return refusal("next_layer_gate has ", routers.size(),
                       " routers, accepted: one per layer (", shape.layers, ")");
      if (!biases.empty() && biases.size() != shape.layer_count())
        return refusal("next_layer_gate has ", biases.size(),
                       " biases, accepted: none, or one per layer (", shape.layers, ")");
      const auto values = shape.expert_count() * static_cast<std::size_t>(d_model);
      for (std::size_t l = 0; l < routers.size(); ++l) {
        if (routers[l].size() != values && !(l == 0 && routers[l].empty()))
          return refusal("next_layer_gate routers[", l, "] has ", routers[l].size(),
                         " values, accepted: experts x d_model (", values, ")");
        if (!biases.empty() && !biases[l].empty() && biases[l].size() != shape.expert_count())
          return refusal("next_layer_gate biases[", l, "] has ", biases[l].size(),
                         " values, accepted: none, or experts (", shape.experts, ")");
      }
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = by_routers  ? "next-router"
                                           : by_record ? "recorded"
                                                       : "current-gate";
  static constexpr predictor_traits traits{.needs_recorded = by_record,
                                           .needs_scores = Source == gate_source::current_gate,
                                           .needs_routers = by_routers};

  static result<gate_predictor> create(const geometry& shape, const config& options) {
    if (auto bad = options.validate(shape)) return *std::move(bad);
    return gate_predictor(shape, options);
  }

  /// Shape: `predictions`, for recorded, is [tokens, ahead, experts]: the layers after the view's.
  /// Pre: 0 <= view.layer.
  /// Returns: an empty forecast in the last layer, if the view or the record lacks the scores, and for more tokens
  /// than max_tokens_per_visit.
  [[nodiscard]] forecast expect(const routing_view& view,
                                [[maybe_unused]] std::span<const float> predictions = {},
                                [[maybe_unused]] std::int32_t ahead = 0) noexcept {
    if (view.layer + 1 >= layers_) return {};
    if constexpr (by_routers)
      return from_routers(view);
    else if constexpr (by_record)
      return from_record(predictions, ahead);
    else
      return from_current_gate(view);
  }

 private:
  gate_predictor(const geometry& shape, const config& options)
      : options_(options),
        layers_(shape.layers),
        experts_(shape.expert_count()),
        most_tokens_(shape.tokens_per_visit()),
        scores_(shape, by_record ? router_scores::config{} : options_.scores),
        rows_(shape, options_.depth) {}

  /// Number of tokens; 0 if the values are no whole number of tokens or more than max_tokens_per_visit.
  [[nodiscard]] std::size_t tokens_in(std::span<const float> values,
                                      std::size_t width) const noexcept {
    const auto tokens = values.size() / width;
    return tokens * width == values.size() && tokens <= most_tokens_ ? tokens : 0;
  }

  [[nodiscard]] forecast from_record(std::span<const float> predictions,
                                     std::int32_t ahead) noexcept {
    if (ahead < options_.depth) return {};
    const auto width = static_cast<std::size_t>(ahead) * experts_;
    const auto wanted = rows_.depth() * experts_;
    const auto tokens = tokens_in(predictions, width);
    for (std::size_t t = 0; t < tokens; ++t)
      std::copy_n(&predictions[t * width], wanted, rows_.row(t, 0).data());
    return tokens == 0 ? forecast{} : rows_.of(tokens);
  }
  [[nodiscard]] forecast from_routers(const routing_view& view) noexcept {
    const auto width = static_cast<std::size_t>(options_.d_model);
    const auto tokens = tokens_in(view.hidden, width);
    if (tokens == 0) return {};
    const auto first = layers_until(view.layer);
    // One layer's router for all tokens, so that memory delivers it once.
    for (std::size_t d = 0; d < rows_.depth() && first + d < options_.routers.size(); ++d)
      for (std::size_t e = 0; e < experts_; ++e)
        for (std::size_t t = 0; t < tokens; ++t)
          rows_.row(t, d)[e] =
              detail::dot(&options_.routers[first + d][e * width], &view.hidden[t * width], width);
    for (std::size_t t = 0; t < tokens; ++t)
      rows_.write(t, view.layer, [&](layer_id of, std::size_t, std::span<float> row) {
        const auto& biases = options_.biases;
        scores_.likely(row, biases.empty() ? std::span<const float>() : biases[index_of(of)], row);
      });
    return rows_.of(tokens);
  }
  [[nodiscard]] forecast from_current_gate(const routing_view& view) noexcept {
    const bool known = !view.probabilities.empty();
    const auto values = known ? view.probabilities : view.logits;
    const auto tokens = tokens_in(values, experts_);
    if (tokens == 0) return {};
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto of_token = values.subspan(t * experts_, experts_);
      const auto first = rows_.row(t, 0);
      if (known)
        std::ranges::copy(of_token, first.begin());
      else
        scores_.shares(of_token, first);
      rows_.write(t, view.layer, [&](layer_id, std::size_t d, std::span<float> row) {
        if (d > 0) std::ranges::copy(first, row.begin());
      });
    }
    return rows_.of(tokens);
  }

  config options_;
  std::int32_t layers_;
  std::size_t experts_;
  std::size_t most_tokens_;
  router_scores scores_;
  detail::forecast_rows rows_;
};

/// Scores from predictions that the trace or the engine recorded.
using recorded_scores = gate_predictor<gate_source::recorded>;
/// Gate scores of the running layer, used for the next layers.
using current_gate = gate_predictor<gate_source::current_gate>;
/// Scores of the next layers' routers on the running layer's hidden state.
using next_router = gate_predictor<gate_source::next_router>;

static_assert(predictor<recorded_scores> && predictor<current_gate> && predictor<next_router>);

}  // namespace hotset
