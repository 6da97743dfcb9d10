// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Predicts that a request's token is routed as its last one was.
///
/// Rule: for each of the next layers, 1/K for each expert that the same request's last token used there. Where it had
///       none there, what the layer's last visit routed: each expert's share of that visit's ids.
/// Source: DeepSpeed's "dependency" prefetch, as the fMoE talk describes it; here as scores, per request.
/// Deviations: of a visit's several tokens of one request, the last in the visit's order is its last token.
/// Exact: yes (never changes what is computed).
/// Cost: O(ids + tokens depth (K + E)). Memory: 4 bytes x layers x (requests x K + experts).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/policy/predictor.hpp"
#include "hotset/predict/history/live_sequences.hpp"
#include "hotset/predict/history/view_tokens.hpp"

namespace hotset {

/// Threads: compatible. expect and on_sequence_end allocate nothing.
class last_routed {
 public:
  struct config {
    std::int32_t depth = 1;      ///< layers ahead
    std::int32_t requests = 64;  ///< that are followed at the same time

    /// Parameters by name, as in `last-routed:requests=16`.
    template <class From>
    static config read(From& from) {
      config out;
      out.requests = from.number("requests", out.requests);
      return out;
    }
    [[nodiscard]] validation validate() const {
      if (depth < 1)
        return error{"last_routed depth = " + std::to_string(depth) + ", accepted: 1 or more"};
      if (requests < 1 || requests > static_cast<std::int32_t>(live_sequences::most_rows))
        return error{"last_routed requests = " + std::to_string(requests) + ", accepted: 1.." +
                     std::to_string(live_sequences::most_rows)};
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "last-routed";
  static constexpr predictor_traits traits{.opens_steps = true, .hears_sequence_ends = true};
  static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 34U;

#if HOTSET_EXCEPTIONS
  /// Errors: throws invalid_config.
  last_routed(const geometry& shape, const config& options)
      : last_routed(create(shape, options).value()) {}
#endif
  static result<last_routed> create(const geometry& shape, const config& options) {
    if (auto bad = shape.validate()) return *std::move(bad);
    if (auto bad = options.validate()) return *std::move(bad);
    if (options.depth > shape.layers)
      return error{"last_routed depth = " + std::to_string(options.depth) + ", accepted: 1.." +
                   std::to_string(shape.layers) + " (layers)"};
    if (const auto bytes = bytes_of(shape, options); bytes > most_bytes)
      return error{"last_routed needs " + std::to_string(bytes) + " bytes, accepted: at most " +
                   std::to_string(most_bytes)};
    return last_routed(shape, options, checked{});
  }

  /// Shape: [tokens, depth, experts]; rows of layers past the last are zeros. Good until the next call.
  /// Returns: an empty forecast for a view whose arrays do not belong together, which changes nothing.
  [[nodiscard]] forecast expect(const routing_view& view, std::span<const float> /*recorded*/,
                                std::int32_t /*ahead*/) noexcept {
    if (shape_.check(view) != status::ok) return {};
    const auto tokens = shape_.tokens(view);
    if (view.layer != before_layers) take_shares(view);
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto sequence = sequence_of(view, t);
      const auto row = view.layer == before_layers ? live_.find(sequence) : enter(sequence, view);
      if (view.layer != before_layers && row != live_sequences::none)
        std::ranges::copy(shape_.ids_of(view, t), ids_of(row, view.layer).begin());
      for (std::size_t ahead = 0; ahead < depth_; ++ahead)
        write(row, view.layer + 1 + static_cast<std::int32_t>(ahead),
              std::span(scores_).subspan((t * depth_ + ahead) * experts_, experts_));
    }
    forecast out;
    out.probabilities = std::span<const float>(scores_).first(tokens * depth_ * experts_);
    out.depth = static_cast<std::int32_t>(depth_);
    return out;
  }
  /// Its row may be another's.
  void on_sequence_end(sequence_id sequence) noexcept {
    if (const auto row = live_.find(sequence); row != live_sequences::none) live_.leave(row);
  }

 private:
  struct checked {};

  last_routed(const geometry& shape, const config& options, checked)
      : shape_(shape),
        layers_(shape.layer_count()),
        experts_(shape.expert_count()),
        top_k_(shape.ranks()),
        depth_(static_cast<std::size_t>(options.depth)),
        live_(static_cast<std::size_t>(options.requests)),
        ids_(live_.rows() * layers_ * top_k_, no_expert),
        shares_(layers_ * experts_, 0.0F),
        scores_(shape.tokens_per_visit() * depth_ * experts_) {}

  /// Pre: depth <= layers. No product wraps: keys are at most 2^28, K is less than 2^16, requests at most 2^12.
  static std::uint64_t bytes_of(const geometry& shape, const config& options) noexcept {
    const auto layers = static_cast<std::uint64_t>(shape.layers);
    const auto experts = static_cast<std::uint64_t>(shape.experts);
    return 4 * (layers * static_cast<std::uint64_t>(options.requests) *
                    static_cast<std::uint64_t>(shape.top_k) +
                layers * experts +
                static_cast<std::uint64_t>(shape.max_tokens_per_visit) *
                    static_cast<std::uint64_t>(options.depth) * experts);
  }
  [[nodiscard]] std::span<expert_id> ids_of(std::size_t row, layer_id layer) noexcept {
    return std::span(ids_).subspan((row * layers_ + index_of(layer)) * top_k_, top_k_);
  }
  [[nodiscard]] std::span<float> shares_of(layer_id layer) noexcept {
    return std::span(shares_).subspan(index_of(layer) * experts_, experts_);
  }
  [[nodiscard]] bool is_expert(expert_id id) const noexcept {
    return id >= 0 && index_of(id) < experts_;
  }
  [[nodiscard]] std::size_t enter(sequence_id sequence, const routing_view& view) noexcept {
    return live_.enter(
        sequence, view.step, [](std::size_t) {},
        [this](std::size_t row) {
          std::fill_n(ids_of(row, layer_id{}).begin(), layers_ * top_k_, no_expert);
        });
  }
  void take_shares(const routing_view& view) noexcept {
    if (view.experts.empty()) return;
    const auto shares = shares_of(view.layer);
    std::ranges::fill(shares, 0.0F);
    const auto part = 1.0F / static_cast<float>(view.chosen().size());
    for (const auto id : view.chosen())
      if (is_expert(id)) shares[index_of(id)] += part;
  }
  void write(std::size_t row, layer_id target, std::span<float> out) noexcept {
    std::ranges::fill(out, 0.0F);
    if (index_of(target) >= layers_) return;
    bool known = false;
    if (row != live_sequences::none)
      for (const auto id : ids_of(row, target)) {
        if (!is_expert(id)) continue;
        out[index_of(id)] = 1.0F / static_cast<float>(top_k_);
        known = true;
      }
    if (!known) std::ranges::copy(shares_of(target), out.begin());
  }

  view_tokens shape_;
  std::size_t layers_;
  std::size_t experts_;
  std::size_t top_k_;
  std::size_t depth_;
  live_sequences live_;
  std::vector<expert_id> ids_;  ///< [requests, layers, K] of each request's last token
  std::vector<float> shares_;   ///< [layers, experts] of each layer's last visit
  std::vector<float> scores_;   ///< [tokens, depth, experts]
};

static_assert(predictor<last_routed>);

}  // namespace hotset
