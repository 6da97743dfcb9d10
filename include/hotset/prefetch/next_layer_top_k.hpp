// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests the experts that the forecast ranks highest in each of the next layers.
///
/// Rule: the score of an expert is the mean of its predicted probabilities over the visit's tokens. The nearest layer
///   comes first; in each layer the K x overfetch best experts (rounded half up, at most all) are requested: higher
///   score first, then lower expert id. Layers past the last one and layers nearer than `from` get no requests.
/// Source: Eliseev and Mazur; SpecMD 3.1.4 (overfetch) and A.3; HOBBIT and MoE-APEX look further than one layer.
/// Deviations: an expert with a score of 0 is not requested; a mean that is not finite counts as 0.
/// Exact: yes (never changes what is computed).
/// Cost: O(experts (tokens + log K)) per layer ahead. Memory: 16 bytes per expert of a layer.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hotset/policy/prefetch_policy.hpp"
#include "hotset/predict/layer_scores.hpp"

namespace hotset {

class next_layer_top_k {
 public:
  struct config {
    double overfetch = 1.0;  ///< requested experts, in multiples of K
    std::int32_t depth = 1;  ///< layers ahead; at most those that exist
    std::int32_t from = 1;   ///< nearest layer ahead; equal to `depth`: a stride
    /// Parameters by name, as in `next_layer_top_k:overfetch=1.5:depth=2`.
    template <class From>
    static config read(From& from) {
      return {.overfetch = from.real("overfetch", config{}.overfetch),
              .depth = from.number("depth", config{}.depth),
              .from = from.number("from", config{}.from)};
    }
    [[nodiscard]] validation validate() const {
      if (!(overfetch >= 1.0) || std::isinf(overfetch))
        return refusal("next_layer_top_k overfetch = ", overfetch, ", accepted: finite, 1 or more");
      if (depth < 1) return refusal("next_layer_top_k depth = ", depth, ", accepted: 1 or more");
      if (from < 1 || from > depth)
        return refusal("next_layer_top_k from = ", from, ", accepted: 1..", depth, " (depth)");
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "next_layer_top_k";
  static constexpr prefetch_traits traits{.needs = forecast_need::probabilities};

  next_layer_top_k(const geometry& shape, const config& options)
      : layers_(shape.layers),
        depth_(std::min(options.depth, shape.layers - 1)),
        from_(std::min(options.from, std::max(depth_, 1))),
        count_(static_cast<std::size_t>(
            std::lround(std::min<double>(shape.top_k * options.overfetch, shape.experts)))),
        scores_(shape.expert_count()) {}

  [[nodiscard]] std::int32_t depth() const noexcept { return depth_; }
  [[nodiscard]] std::size_t most_requests() const noexcept {
    return count_ * static_cast<std::size_t>(depth_ - from_ + 1);
  }
  void observe(const routing_view&) noexcept {}
  [[nodiscard]] std::size_t propose(const routing_view& view, const forecast& expected,
                                    std::span<prefetch_request> out) noexcept {
    const auto reach =
        std::min({depth_, scores_.depth(expected), layers_ - 1 - number(view.layer)});
    std::size_t written = 0;
    for (std::int32_t ahead = from_ - 1; ahead < reach && written < out.size(); ++ahead) {
      const auto scored = scores_.take(expected, ahead);
      const auto best = scored.first(std::min(count_, out.size() - written));
      detail::sort_best(scored, best.size());
      for (const auto s : best) {
        const auto score = detail::score_of(s);
        if (score == 0.0F) break;
        out[written++] = {{view.layer + 1 + ahead, detail::expert_of(s)}, view.step, score};
      }
    }
    return written;
  }

 private:
  std::int32_t layers_;
  std::int32_t depth_;
  std::int32_t from_;
  std::size_t count_;
  detail::layer_scores scores_;
};

static_assert(prefetch_policy<next_layer_top_k>);

}  // namespace hotset
