// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests every expert of the next layer whose predicted score is high among recent ones.
///
/// Rule: scores as in next_layer_top_k. The window holds the last predicted scores of all layers; this visit's scores
///   enter it first, in order of expert ids. Experts strictly above its q-th percentile (see sliding_percentile) are
///   requested. Higher score first, then the lower expert id.
/// Source: Zhu et al. in SpecMD 3.1.4; 80th percentile.
/// Deviations: the paper does not say which scores; a window smaller than L x E sees only the layers just before.
/// Exact: yes (never changes what is computed).
/// Cost: O(experts tokens + r log r) for r requests, and one percentile. Memory: 8 bytes per value and 200 KiB.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "hotset/policy/prefetch_policy.hpp"
#include "hotset/predict/layer_scores.hpp"
#include "hotset/predict/maps/sliding_percentile.hpp"

namespace hotset {

/// Call `propose` at most once per visit, because it adds the forecast to the window.
class score_threshold {
 public:
  struct config {
    double percentile = 80.0;
    std::uint32_t window = 16384;  ///< values
    /// Parameters by name, as in `score_threshold:percentile=80:window=4096`.
    template <class From>
    static config read(From& from) {
      return {.percentile = from.real("percentile", config{}.percentile),
              .window = from.number("window", config{}.window)};
    }
    [[nodiscard]] validation validate() const {
      if (!(percentile > 0.0 && percentile < 100.0))
        return refusal("score_threshold percentile = ", percentile,
                       ", accepted: above 0, below 100");
      if (window < 1 || window > (1U << 28U))
        return refusal("score_threshold window = ", window, ", accepted: 1..268435456");
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "score_threshold";
  static constexpr prefetch_traits traits{.needs = forecast_need::probabilities};

  score_threshold(const geometry& shape, const config& options)
      : layers_(shape.layers),
        experts_(shape.expert_count()),
        percentile_(options.percentile),
        scores_(experts_),
        window_(options.window) {}

  [[nodiscard]] std::int32_t depth() const noexcept { return 1; }
  [[nodiscard]] std::size_t most_requests() const noexcept { return experts_; }
  void observe(const routing_view&) noexcept {}
  [[nodiscard]] std::size_t propose(const routing_view& view, const forecast& expected,
                                    std::span<prefetch_request> out) noexcept {
    if (scores_.depth(expected) < 1 || view.layer + 1 >= layers_) return 0;
    const auto scored = scores_.take(expected, 0);
    for (const auto s : scored) window_.push(detail::score_of(s));
    const auto threshold = window_.percentile(percentile_);
    const auto low = std::partition(scored.begin(), scored.end(), [threshold](auto s) {
      return detail::score_of(s) > threshold;
    });
    const auto above = static_cast<std::size_t>(low - scored.begin());
    const auto count = std::min(above, out.size());
    std::partial_sort(scored.begin(), scored.begin() + static_cast<std::ptrdiff_t>(count), low,
                      std::greater<>());
    for (std::size_t n = 0; n < count; ++n)
      out[n] = {
          {view.layer + 1, detail::expert_of(scored[n])}, view.step, detail::score_of(scored[n])};
    return count;
  }

 private:
  std::int32_t layers_;
  std::size_t experts_;
  double percentile_;
  detail::layer_scores scores_;
  sliding_percentile window_;
};

static_assert(prefetch_policy<score_threshold>);

}  // namespace hotset
