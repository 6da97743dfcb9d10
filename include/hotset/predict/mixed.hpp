// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Mixes other predictors, and learns online the weight of each at each distance.
///
/// Rule: for each distance d, p(e) = logistic(b_d + sum over the parts j of w_dj x_j(e)), x = sqrt of the part's
///       score, from 0 to 1. When a forecast layer is routed, b_d and w_d take a gradient step that reduces the log
///       loss of that forecast (AdaGrad), token by token. An expert's score is p, divided by the row's sum.
/// Source: ours; logistic mixing comes from context-mixing compressors, AdaGrad from Duchi, Hazan and Singer.
/// Deviations: none. The gradient is computed at the stored forecast; the weights may have changed since.
/// Exact: yes (never changes what is computed).
/// Cost: that of the parts, and O(tokens depth parts E) a visit.
///       Memory: 4 bytes x learned x depth^2 x (parts + 1) x E.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/policy/any/any_predictor.hpp"
#include "hotset/policy/predictor.hpp"
#include "hotset/predict/forecast_rows.hpp"
#include "hotset/predict/history/view_tokens.hpp"
#include "hotset/predict/kernels/value_kernels.hpp"
#include "hotset/predict/refusals.hpp"

namespace hotset {

/// Move-only. Threads: compatible. expect and on_sequence_end allocate only if a part does.
/// Before it has learned, it sums the parts' x.
class mixed {
 public:
  struct config {
    /// The mixed predictors; each gets the depth of the mix.
    std::vector<any_predictor::config> parts{};
    std::int32_t depth = 1;  ///< layers ahead
    /// Maximum tokens of a visit to learn from; the first ones are used.
    std::int32_t learned = 16;
    double rate = 1.0;  ///< learning rate: size of a weight's first step
    // Inputs from the engine for the parts; a part with its own value keeps it.
    std::int32_t d_model = 0;
    std::vector<std::span<const float>> routers{};
    std::vector<std::span<const float>> biases{};
    std::span<const float> embeddings{};
    std::int32_t embedding_width = 0;

    /// Parameters by name, for example `mixed:rate=0.5+co-activation+last-routed`; the parts come from the registry.
    template <class From>
    static config read(From& from) {
      config out;
      out.learned = from.number("learned", out.learned);
      out.rate = from.real("rate", out.rate);
      return out;
    }
    [[nodiscard]] validation validate() const {
      if (parts.empty() || parts.size() > most_parts)
        return refusal("mixed has ", parts.size(), " parts, accepted: 1..", most_parts);
      if (auto bad = detail::first_of({detail::within("mixed depth", depth, 1, most_depth),
                                       detail::within("mixed learned", learned, 1, most_learned),
                                       detail::refuse_unless(rate > 0 && rate <= 10, "mixed rate",
                                                             rate, "more than 0, at most 10")}))
        return bad;
      for (const auto& part : parts)
        if (auto bad = with_depth(part, depth).validate()) return *std::move(bad);
      return std::nullopt;
    }
    /// Inputs that at least one part needs.
    [[nodiscard]] predictor_traits needs() const noexcept {
      predictor_traits out;
      for (const auto& part : parts) {
        out.needs_recorded |= part.traits.needs_recorded;
        out.needs_scores |= part.traits.needs_scores;
        out.needs_routers |= part.traits.needs_routers;
        out.needs_hidden |= part.traits.needs_hidden;
        out.takes_embeddings |= part.traits.takes_embeddings;
        out.opens_steps |= part.traits.opens_steps;
        out.wants_sequence_ends |= part.traits.wants_sequence_ends;
      }
      return out;
    }
  };
  static constexpr std::string_view name = "mixed";
  static constexpr predictor_traits traits{.opens_steps = true, .wants_sequence_ends = true};
  static constexpr std::size_t most_parts = 16;
  static constexpr std::int32_t most_depth = 64;
  static constexpr std::int32_t most_learned = 4096;

  /// Errors: those of the parts, too.
  static result<mixed> create(const geometry& shape, const config& options) {
    if (auto bad = detail::refuse_predictor("mixed", shape, options, bytes_of))
      return *std::move(bad);
    std::vector<any_predictor> parts;
    for (const auto& part : options.parts) {
      auto made = any_predictor::create(shape, supplied(part, options));
      if (!made) return made.error();
      parts.push_back(*std::move(made));
    }
    return mixed(shape, options, std::move(parts));
  }

  /// Shape: [tokens, depth, experts]; rows sum to 1, those of layers past the last are zeros. Valid until the next
  /// call.
  /// Returns: an empty forecast if no part has one, and for a view whose arrays do not belong together.
  [[nodiscard]] forecast expect(const routing_view& view, std::span<const float> recorded,
                                std::int32_t ahead) noexcept {
    if (shape_.check(view) != status::ok) return {};
    if (view.layer != before_layers) learn(view);
    auto& place = kept_[place_of(view.layer)];
    place = {};
    const auto tokens = shape_.tokens(view);
    if (tokens == 0 || !ask(view, recorded, ahead, tokens)) return {};
    place = {.step = view.step, .layer = view.layer, .tokens = tokens};
    for (std::size_t t = 0; t < tokens; ++t)
      forecast_.write(t, view.layer, [&](layer_id, std::size_t d, std::span<float> out) {
        write(view.layer, t, d, out);
      });
    return forecast_.of(tokens);
  }
  void on_sequence_end(sequence_id sequence) noexcept {
    for (auto& part : parts_) part.on_sequence_end(sequence);
  }

  /// Learned weights for a distance, 1..depth: one for each part, then the bias. Forecasts that open a step have
  /// their own weights, because not every part forecasts there. Valid until the next call.
  [[nodiscard]] std::span<const double> weights(std::size_t distance,
                                                bool opening = false) const noexcept {
    return std::span(weights_).subspan((opening ? depth_ + distance - 1 : distance - 1) * inputs(),
                                       inputs());
  }

 private:
  /// Stored forecasts of one layer, to learn from.
  struct kept {
    step_id step = 0;
    layer_id layer = before_layers;
    std::size_t tokens = 0;  ///< 0: none
  };

  mixed(const geometry& shape, const config& options, std::vector<any_predictor> parts)
      : shape_(shape),
        experts_(shape.expert_count()),
        depth_(static_cast<std::size_t>(options.depth)),
        learned_(static_cast<std::size_t>(std::min(options.learned, shape.max_tokens_per_visit))),
        rate_(options.rate),
        parts_(std::move(parts)),
        answers_(parts_.size()),
        weights_(2 * depth_ * inputs(), 1.0),
        squares_(2 * depth_ * inputs(), 0.0),
        kept_(depth_),
        inputs_((depth_ * learned_ * depth_ + 1) * parts_.size() * experts_),
        chances_((depth_ * learned_ * depth_ + 1) * experts_),
        forecast_(shape, options.depth) {
    // Prior: K of the E experts are used.
    const auto share = static_cast<double>(shape.top_k) / static_cast<double>(shape.experts);
    for (std::size_t set = 0; set < 2 * depth_; ++set)
      weights_[set * inputs() + parts_.size()] = std::log(std::max(share, 1e-6));
  }

  static any_predictor::config supplied(const any_predictor::config& part, const config& options) {
    auto out = with_depth(part, options.depth);
    if (out.d_model == 0) out.d_model = options.d_model;
    if (out.routers.empty()) out.routers = options.routers;
    if (out.biases.empty()) out.biases = options.biases;
    if (out.embeddings.empty()) out.embeddings = options.embeddings;
    return out;
  }
  /// Memory in bytes of the larger of stored and current forecasts: the limit applies to each part.
  /// Pre: depth <= layers. No product wraps: keys are at most 2^28, tokens 2^24, parts 2^4, depth 2^6, learned 2^12.
  static std::uint64_t bytes_of(const geometry& shape, const config& options) noexcept {
    const auto depth = static_cast<std::uint64_t>(options.depth);
    const auto experts = static_cast<std::uint64_t>(shape.experts);
    const auto tokens = static_cast<std::uint64_t>(shape.max_tokens_per_visit);
    const auto learned = std::min(static_cast<std::uint64_t>(options.learned), tokens);
    const auto rows = depth * learned * depth + 1;
    return std::max(4 * rows * (options.parts.size() + 1) * experts,
                    detail::forecast_rows::bytes_for(shape, options.depth));
  }
  /// Number of weights of a distance: one for each part, and the bias.
  [[nodiscard]] std::size_t inputs() const noexcept { return parts_.size() + 1; }
  /// Index of the forecasts made at a layer; it is reused after `depth` layers.
  [[nodiscard]] std::size_t place_of(layer_id layer) const noexcept {
    return layers_until(layer) % depth_;
  }
  [[nodiscard]] std::size_t row_at(std::size_t place, std::size_t token,
                                   std::size_t d) const noexcept {
    return token < learned_ ? (place * learned_ + token) * depth_ + d : depth_ * learned_ * depth_;
  }
  [[nodiscard]] std::size_t set_of(layer_id made_at, std::size_t d) const noexcept {
    return made_at == before_layers ? depth_ + d : d;
  }

  /// Queries the parts; returns whether one has a forecast. A forecast of another shape is ignored.
  [[nodiscard]] bool ask(const routing_view& view, std::span<const float> recorded,
                         std::int32_t ahead, std::size_t tokens) noexcept {
    bool known = false;
    for (std::size_t j = 0; j < parts_.size(); ++j) {
      answers_[j] = {};
      if (view.layer == before_layers && !parts_[j].facts().opens_steps) continue;
      const auto answer = parts_[j].expect(view, recorded, ahead);
      if (answer.depth != static_cast<std::int32_t>(depth_) ||
          answer.probabilities.size() != tokens * depth_ * experts_)
        continue;
      answers_[j] = answer.probabilities;
      known = true;
    }
    return known;
  }
  void write(layer_id layer, std::size_t token, std::size_t d, std::span<float> out) noexcept {
    const auto at = token * depth_ + d;
    const auto row = row_at(place_of(layer), token, d);
    const auto* const w = &weights_[set_of(layer, d) * inputs()];
    float* const p = &chances_[row * experts_];
    std::fill_n(p, experts_, static_cast<float>(w[parts_.size()]));
    for (std::size_t j = 0; j < parts_.size(); ++j) {
      float* const x = &inputs_[(row * parts_.size() + j) * experts_];
      if (answers_[j].empty()) {
        std::fill_n(x, experts_, 0.0F);
        continue;
      }
      const auto weight = static_cast<float>(w[j]);
      const float* const from = &answers_[j][at * experts_];
      for (std::size_t e = 0; e < experts_; ++e) {
        x[e] = stretched(from[e]);
        p[e] += weight * x[e];
      }
    }
    for (std::size_t e = 0; e < experts_; ++e) p[e] = logistic(p[e]);
    const auto total = detail::sum(p, experts_);
    for (std::size_t e = 0; e < experts_; ++e) out[e] = p[e] / total;
  }

  /// Learns from the stored forecasts for this layer, made at earlier layers of its step.
  void learn(const routing_view& view) noexcept {
    const auto tokens = shape_.tokens(view);
    for (std::size_t d = 0; d < depth_ && view.layer - static_cast<std::int32_t>(d) >= 0; ++d) {
      const auto made_at = view.layer - 1 - static_cast<std::int32_t>(d);
      const auto& from = kept_[place_of(made_at)];
      if (from.tokens != tokens || from.step != view.step || from.layer != made_at) continue;
      for (std::size_t t = 0; t < std::min(tokens, learned_); ++t)
        step(set_of(made_at, d), row_at(place_of(made_at), t, d), shape_.ids_of(view, t));
    }
  }
  void step(std::size_t set, std::size_t row, id_view<expert_id> ids) noexcept {
    float* const p = &chances_[row * experts_];
    for (const auto id : ids)
      if (shape_.is_expert(id) && p[index_of(id)] > 0) p[index_of(id)] -= 1;
    for (std::size_t j = 0; j < parts_.size(); ++j)
      move(set * inputs() + j,
           detail::dot(p, &inputs_[(row * parts_.size() + j) * experts_], experts_));
    move(set * inputs() + parts_.size(), detail::sum(p, experts_));
  }
  void move(std::size_t weight, float gradient) noexcept {
    const double g{gradient};
    if (g == 0) return;
    squares_[weight] += g * g;
    weights_[weight] -= rate_ * g / std::sqrt(squares_[weight]);
  }

  /// The square root spreads the many small scores, and is 0 if a part has no score.
  static float stretched(float score) noexcept {
    return score > 0 ? std::sqrt(std::min(score, 1.0F)) : 0.0F;
  }
  /// 1 / (1 + e^-z), z clamped to -30..30, by the same arithmetic on every machine; between 0 and 1 except for
  /// rounding.
  static float logistic(float z) noexcept {
    const auto below = z < 30.0F ? z : 30.0F;
    const auto t = (below > -30.0F ? below : -30.0F) * -1.44269504F;
    // Rounds to the nearest integer without a branch: the sum of t and 127 + 1/2 is positive.
    const auto whole = static_cast<std::int32_t>(t + 127.5F);
    const auto f = t - static_cast<float>(whole - 127);
    // 2^f for f from -1/2 to 1/2.
    const auto power =
        1.0F +
        f * (0.693147181F +
             f * (0.240226507F + f * (0.0555041087F + f * (0.00961812911F + f * 0.00133335581F))));
    return 1.0F / (1.0F + power * std::bit_cast<float>(whole << 23));
  }

  view_tokens shape_;
  std::size_t experts_;
  std::size_t depth_;
  std::size_t learned_;
  double rate_;
  std::vector<any_predictor> parts_;
  std::vector<std::span<const float>> answers_;  ///< [parts] forecasts for the running visit
  /// [2, depth, inputs]: within a step, then opening one.
  std::vector<double> weights_;
  std::vector<double> squares_;  ///< [2, depth, inputs]: sums of squared gradients
  std::vector<kept> kept_;       ///< [depth]
  /// [depth, learned, depth, parts, experts], and one scratch row for tokens past `learned`.
  std::vector<float> inputs_;
  std::vector<float> chances_;  ///< [depth, learned, depth, experts], and one scratch row
  detail::forecast_rows forecast_;
};

static_assert(predictor<mixed>);

}  // namespace hotset
