// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Predicts later layers from pairs of experts that are used together: a table that learns online.
///
/// Rule: for each token, count how often expert i of layer s and expert j of layer s + d are used together, d =
///       1..reach, and how often i is used. The score of j in layer t is the sum over the experts i used in earlier
///       layers s of decay^(t - s - 1) * count(i, j) / used(i).
/// Source: WiSP Appendix C.
/// Deviations: scores are divided by the sum of decay^(t - s - 1) * experts used in layer s, so that they lie in
///       0..1.
/// Exact: yes (never changes what is computed).
/// Cost: observe O(tokens reach K^2); predict O(tokens depth reach K E).
///       Memory: 4 bytes x layers x reach x E^2.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
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
#include "hotset/policy/predictor.hpp"
#include "hotset/predict/forecast_rows.hpp"
#include "hotset/predict/refusals.hpp"

namespace hotset {

/// Threads: compatible. observe and predict allocate nothing.
class co_activation {
 public:
  struct config {
    std::int32_t reach = 4;  ///< layers back that the score looks at
    std::int32_t depth = 1;  ///< layers ahead that are predicted, at most `reach`
    double decay = 0.8;      ///< factor on an earlier layer's weight, for each layer of distance

    /// Parameters by name, for example `co-activation:reach=4:decay=0.8`.
    template <class From>
    static config read(From& from) {
      config out;
      out.reach = from.number("reach", out.reach);
      out.decay = from.real("decay", out.decay);
      return out;
    }
    [[nodiscard]] validation validate() const {
      return detail::first_of(
          {detail::refuse_unless(reach >= 1, "co_activation reach", reach, "1 or more"),
           detail::within("co_activation depth", depth, 1, reach, "reach"),
           detail::refuse_unless(decay > 0 && decay <= 1, "co_activation decay", decay,
                                 "more than 0, at most 1")});
    }
  };
  static constexpr std::string_view name = "co-activation";
  static constexpr predictor_traits traits{};

  static result<co_activation> create(const geometry& shape, const config& options) {
    if (auto bad = shape.validate()) return *std::move(bad);
    if (auto bad = options.validate()) return *std::move(bad);
    const auto layers = static_cast<std::uint64_t>(shape.layers);
    const auto experts = static_cast<std::uint64_t>(shape.experts);
    const auto reach = static_cast<std::uint64_t>(options.reach);
    if (!fits(layers, experts, reach))
      return refusal("a co_activation table of ", detail::shape_text(layers, experts), ", reach ",
                     reach, ", accepted: at most ", detail::most_predictor_bytes, " bytes");
    // The table's size limit also keeps the products below from wrapping.
    const auto scratch = detail::forecast_rows::bytes_for(shape, options.depth) +
                         4 * shape.tokens_per_visit() * layers * shape.ranks();
    if (auto bad = detail::refuse_bytes("co_activation", shape, scratch)) return *std::move(bad);
    return co_activation(shape, options);
  }

  /// Learns a layer's routing. Views of one step come in layer order; a view of another step starts a new step.
  /// Errors: invalid_visit (no such layer, ids that are no whole number of tokens), visit_too_large; nothing was
  /// learned then.
  status observe(const routing_view& view) noexcept {
    if (const auto bad = check(view); bad != status::ok) return bad;
    const auto layer = index_of(view.layer);
    seen_[layer] = {view.step, view.experts.size()};
    std::copy(view.experts.begin(), view.experts.end(), ids_of(layer).begin());
    for (const auto i : view.experts)
      if (is_expert(i)) count(fired_[layer * experts_ + index_of(i)]);
    for (std::size_t back = 1; back <= std::min(layer, reach_); ++back) {
      const auto& source = seen_[layer - back];
      if (source.step != view.step || source.ids != view.experts.size()) continue;
      for (std::size_t t = 0; t < source.ids; t += top_k_)
        count_pairs(layer - back, back, ids_of(layer - back).subspan(t, top_k_),
                    view.experts.subspan(t, top_k_));
    }
    return status::ok;
  }

  /// Forecasts the next layers from this layer and the earlier layers of its step. Pre: observe(view) was called
  /// before.
  /// Shape: [tokens, depth, experts]; rows of layers past the last are zeros. Valid until the next call.
  /// Returns: an empty forecast for a view that observe refuses.
  [[nodiscard]] forecast predict(const routing_view& view) noexcept {
    if (check(view) != status::ok) return {};
    const auto layer = index_of(view.layer);
    const auto tokens = view.experts.size() / top_k_;
    for (std::size_t t = 0; t < tokens; ++t)
      forecast_.write(t, view.layer, [&](layer_id target, std::size_t, std::span<float> out) {
        std::ranges::fill(out, 0.0F);
        score(view.step, t, layer, index_of(target), out);
      });
    return forecast_.of(tokens);
  }
  /// Predictor interface: learns from the visit, then forecasts.
  [[nodiscard]] forecast expect(const routing_view& view, std::span<const float> /*recorded*/,
                                std::int32_t /*ahead*/) noexcept {
    return observe(view) == status::ok ? predict(view) : forecast{};
  }

  /// Number of uses of each expert. Shape: [layers, experts].
  [[nodiscard]] std::vector<double> uses() const { return {fired_.begin(), fired_.end()}; }

 private:
  /// Last routing of a layer.
  struct seen {
    step_id step = std::numeric_limits<step_id>::max();
    std::size_t ids = 0;
  };

  co_activation(const geometry& shape, const config& options)
      : layers_(shape.layer_count()),
        experts_(shape.expert_count()),
        top_k_(shape.ranks()),
        most_ids_(shape.tokens_per_visit() * top_k_),
        reach_(static_cast<std::size_t>(options.reach)),
        fired_(layers_ * experts_, 0),
        together_(layers_ * reach_ * experts_ * experts_, 0),
        seen_(layers_),
        ids_(layers_ * most_ids_, no_expert),
        forecast_(shape, options.depth) {
    double weight = 1;
    for (std::size_t d = 0; d < reach_; ++d, weight *= options.decay)
      weights_.push_back(static_cast<float>(weight));
  }

  /// Whether the table's size is within its limit. Pre: layers * reach does not wrap.
  static bool fits(std::uint64_t layers, std::uint64_t experts, std::uint64_t reach) noexcept {
    return experts >= 1 && experts <= 65536 &&
           experts * experts <= detail::most_predictor_bytes / 4 / (layers * reach);
  }
  [[nodiscard]] status check(const routing_view& view) const noexcept {
    if (view.layer < 0 || index_of(view.layer) >= layers_) return status::invalid_visit;
    if (view.experts.size() > most_ids_) return status::visit_too_large;
    return view.experts.size() % top_k_ == 0 ? status::ok : status::invalid_visit;
  }
  [[nodiscard]] bool is_expert(expert_id id) const noexcept {
    return id >= 0 && index_of(id) < experts_;
  }
  static void count(std::uint32_t& n) noexcept {
    n += n == std::numeric_limits<std::uint32_t>::max() ? 0U : 1U;
  }
  [[nodiscard]] std::span<expert_id> ids_of(std::size_t layer) noexcept {
    return std::span(ids_).subspan(layer * most_ids_, most_ids_);
  }
  /// Counts of expert i in layer s together with each expert of layer s + back. Shape: [experts].
  [[nodiscard]] std::span<std::uint32_t> row(std::size_t s, std::size_t back,
                                             expert_id i) noexcept {
    const auto at = (s * reach_ + back - 1) * experts_ + index_of(i);
    return std::span(together_).subspan(at * experts_, experts_);
  }

  // NOLINTNEXTLINE(bugprone-easily-swappable-parameters): earlier layer first
  void count_pairs(std::size_t s, std::size_t back, id_view<expert_id> before,
                   id_view<expert_id> now) noexcept {
    for (const auto i : before) {
      if (!is_expert(i)) continue;
      const auto counts = row(s, back, i);
      for (const auto j : now)
        if (is_expert(j)) count(counts[index_of(j)]);
    }
  }
  void score(step_id step, std::size_t token, std::size_t layer, std::size_t target,
             std::span<float> out) noexcept {
    float total = 0;
    for (std::size_t back = target - layer; back <= std::min(target, reach_); ++back) {
      const auto s = target - back;
      if (seen_[s].step != step || seen_[s].ids < (token + 1) * top_k_) continue;
      for (const auto i : ids_of(s).subspan(token * top_k_, top_k_)) {
        if (!is_expert(i)) continue;
        total += weights_[back - 1];
        const auto fired = fired_[s * experts_ + index_of(i)];
        if (fired == 0) continue;
        const auto weight = weights_[back - 1] / static_cast<float>(fired);
        const auto counts = row(s, back, i);
        for (std::size_t j = 0; j < experts_; ++j) out[j] += weight * static_cast<float>(counts[j]);
      }
    }
    if (total == 0) return;
    for (auto& score : out) score /= total;
  }

  std::size_t layers_ = 0;
  std::size_t experts_ = 0;
  std::size_t top_k_ = 0;
  std::size_t most_ids_ = 0;
  std::size_t reach_ = 0;
  std::vector<std::uint32_t> fired_;     ///< [layers, experts]
  std::vector<std::uint32_t> together_;  ///< [layers, reach, experts, experts of the later layer]
  std::vector<seen> seen_;               ///< [layers]
  std::vector<expert_id> ids_;           ///< [layers, maximum ids of a visit]
  std::vector<float> weights_;           ///< [reach]
  detail::forecast_rows forecast_;
};

}  // namespace hotset
