// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Predicts that a request's token is routed as the request's last token was.
///
/// Rule: for each of the next layers, 1/K for each expert that the same request's last token used there. If it used
///       none there, each expert gets its share of the ids of that layer's last visit.
/// Source: DeepSpeed's "dependency" prefetch, as the fMoE talk describes it; here as scores, per request.
/// Deviations: if a visit has several tokens of a request, the last one in the visit's order is its last token.
/// Exact: yes (never changes what is computed).
/// Cost: O(ids + tokens depth (K + E)). Memory: 4 bytes x layers x (requests x K + experts).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/status.hpp"
#include "hotset/policy/predictor.hpp"
#include "hotset/predict/forecast_rows.hpp"
#include "hotset/predict/history/live_sequences.hpp"
#include "hotset/predict/history/view_tokens.hpp"
#include "hotset/predict/refusals.hpp"

namespace hotset {

/// Threads: compatible. expect and on_sequence_end allocate nothing.
class last_routed {
 public:
  struct config {
    std::int32_t depth = 1;      ///< layers ahead
    std::int32_t requests = 64;  ///< requests that are followed at the same time

    /// Parameters by name, for example `last-routed:requests=16`.
    template <class From>
    static config read(From& from) {
      config out;
      out.requests = from.number("requests", out.requests);
      return out;
    }
    [[nodiscard]] validation validate() const {
      return detail::first_of(
          {detail::refuse_unless(depth >= 1, "last_routed depth", depth, "1 or more"),
           detail::within("last_routed requests", requests, 1, live_sequences::most_rows)});
    }
  };
  static constexpr std::string_view name = "last-routed";
  static constexpr predictor_traits traits{.opens_steps = true, .wants_sequence_ends = true};

  static result<last_routed> create(const geometry& shape, const config& options) {
    if (auto bad = detail::refuse_predictor("last_routed", shape, options, bytes_of))
      return *std::move(bad);
    return last_routed(shape, options);
  }

  /// Shape: [tokens, depth, experts]; rows of layers past the last are zeros. Valid until the next call.
  /// Returns: an empty forecast, and no change, if the view's arrays do not belong together.
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
      rows_.write(t, view.layer, [&](layer_id target, std::size_t, std::span<float> out) {
        write(row, target, out);
      });
    }
    return rows_.of(tokens);
  }
  /// Frees the request's row.
  void on_sequence_end(sequence_id sequence) noexcept {
    if (const auto row = live_.find(sequence); row != live_sequences::none) live_.leave(row);
  }

 private:
  last_routed(const geometry& shape, const config& options)
      : shape_(shape),
        layers_(shape.layer_count()),
        top_k_(shape.ranks()),
        live_(static_cast<std::size_t>(options.requests)),
        ids_(live_.rows() * layers_ * top_k_, no_expert),
        shares_(shape, 0.0F),
        rows_(shape, options.depth) {}

  /// Pre: depth <= layers. No product wraps: keys are at most 2^28, K is less than 2^16, requests at most 2^12.
  static std::uint64_t bytes_of(const geometry& shape, const config& options) noexcept {
    return 4 * (shape.layer_count() * static_cast<std::uint64_t>(options.requests) * shape.ranks() +
                shape.keys()) +
           detail::forecast_rows::bytes_for(shape, options.depth);
  }
  [[nodiscard]] std::span<expert_id> ids_of(std::size_t row, layer_id layer) noexcept {
    return std::span(ids_).subspan((row * layers_ + index_of(layer)) * top_k_, top_k_);
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
    const auto shares = shares_.row(view.layer);
    std::ranges::fill(shares, 0.0F);
    const auto part = 1.0F / static_cast<float>(view.chosen().size());
    for (const auto id : view.chosen())
      if (shape_.is_expert(id)) shares[index_of(id)] += part;
  }
  void write(std::size_t row, layer_id target, std::span<float> out) noexcept {
    std::ranges::fill(out, 0.0F);
    bool known = false;
    if (row != live_sequences::none)
      for (const auto id : ids_of(row, target)) {
        if (!shape_.is_expert(id)) continue;
        out[index_of(id)] = 1.0F / static_cast<float>(top_k_);
        known = true;
      }
    if (!known) std::ranges::copy(shares_.row(target), out.begin());
  }

  view_tokens shape_;
  std::size_t layers_;
  std::size_t top_k_;
  live_sequences live_;
  std::vector<expert_id> ids_;  ///< [requests, layers, K], ids of each request's last token
  per_key<float> shares_;       ///< shares of each layer's last visit
  detail::forecast_rows rows_;
};

static_assert(predictor<last_routed>);

}  // namespace hotset
