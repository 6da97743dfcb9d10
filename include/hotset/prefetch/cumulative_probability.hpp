// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests as many experts as needed to be sure: few if the forecast is confident, more if it is not.
///
/// Rule: for each token, take the fewest experts in descending p (ties: lower id) whose sum reaches 1 - confidence,
///   at least K; none with p = 0. The sets of all tokens are merged, each expert with its highest p. Best first by p
///   / (l - l_now); ties: the nearer layer, then the lower id. In layer l, layer l + d is requested; before a step's
///   first layer, layers 0..d-1.
/// Source: fMoE, expert map guided prefetching.
/// Deviations: none. If a forecast is usually confident, the sets have K experts and the sum decides nothing.
/// Exact: yes (never changes what is computed).
/// Cost: O(tokens experts), plus O(log experts) for each expert of a set, per requested layer. Memory: at most 28
///   bytes per expert of d layers.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/policy/prefetch_policy.hpp"
#include "hotset/predict/layer_scores.hpp"

namespace hotset {

/// If the forecast has no confidence, each token's is 1.
class cumulative_probability {
 public:
  struct config {
    std::int32_t distance = 3;  ///< d; at most the number of layers ahead
    /// Parameters by name, as in `cumulative_probability:distance=2`.
    template <class From>
    static config read(From& from) {
      return {.distance = from.number("distance", config{}.distance)};
    }
    [[nodiscard]] validation validate() const {
      return detail::refuse_unless(distance >= 1, "cumulative_probability distance", distance,
                                   "1 or more");
    }
  };
  static constexpr std::string_view name = "cumulative_probability";
  static constexpr prefetch_traits traits{.needs = forecast_need::probabilities};

  cumulative_probability(const geometry& shape, const config& options)
      : layers_(shape.layers),
        distance_(std::min(options.distance, std::max(1, shape.layers - 1))),
        experts_(shape.expert_count()),
        top_k_(shape.ranks()),
        ranked_(experts_),
        highest_(experts_) {
    wanted_.reserve(most_requests());
  }

  [[nodiscard]] std::int32_t depth() const noexcept { return distance_; }
  [[nodiscard]] std::size_t most_requests() const noexcept {
    return experts_ * static_cast<std::size_t>(distance_);
  }
  void observe(const routing_view&) noexcept {}
  [[nodiscard]] std::size_t propose(const routing_view& view, const forecast& expected,
                                    std::span<prefetch_request> out) noexcept {
    wanted_.clear();
    const auto rows = expected.tokens(experts_) > 0 ? std::min(expected.depth, distance_) : 0;
    // Earlier visits have requested the nearer layers.
    const auto first = view.layer == before_layers ? 0 : distance_ - 1;
    for (auto row = first; row < rows && view.layer + 1 + row < layers_; ++row)
      collect(expected, row);
    std::sort(wanted_.begin(), wanted_.end());
    const auto count = std::min(out.size(), wanted_.size());
    for (std::size_t n = 0; n < count; ++n) {
      const auto& w = wanted_[n];
      out[n] = {{view.layer + 1 + w.row, w.expert}, view.step, w.probability};
    }
    return count;
  }

 private:
  /// Sorts best first.
  struct candidate {
    float priority = 0.0F;
    std::int32_t row = 0;  ///< 0 is the next layer
    expert_id expert = no_expert;
    float probability = 0.0F;
    friend bool operator<(const candidate& a, const candidate& b) noexcept {
      if (a.priority != b.priority) return a.priority > b.priority;
      return a.row != b.row ? a.row < b.row : a.expert < b.expert;
    }
  };

  /// Returns the sum that a token's set must reach. A confidence that is NaN counts as 0.
  static double doubt(const forecast& expected, std::size_t token) noexcept {
    if (token >= expected.confidence.size()) return 0.0;
    const auto confidence = static_cast<double>(expected.confidence[token]);
    return confidence > 0.0 ? std::max(0.0, 1.0 - confidence) : 1.0;
  }
  /// Collects all tokens' sets in the layer of one row.
  void collect(const forecast& expected, std::int32_t row) noexcept {
    std::fill(highest_.begin(), highest_.end(), 0.0F);
    for (std::size_t t = 0; t < expected.tokens(experts_); ++t)
      mark(expected.row(t, row, experts_), doubt(expected, t));
    for (std::size_t e = 0; e < experts_; ++e)
      if (highest_[e] > 0.0F)
        wanted_.push_back({highest_[e] / static_cast<float>(row + 1), row,
                           static_cast<expert_id>(e), highest_[e]});
  }
  /// Marks one token's set.
  void mark(std::span<const float> probabilities, double doubt) noexcept {
    for (std::size_t e = 0; e < experts_; ++e)
      ranked_[e] = detail::make_scored(probabilities[e], e);
    std::make_heap(ranked_.begin(), ranked_.end());
    double sum = 0.0;
    auto end = ranked_.end();
    for (std::size_t taken = 0; taken < experts_ && (taken < top_k_ || sum < doubt); ++taken) {
      const auto best = ranked_.front();
      const auto p = detail::score_of(best);
      if (p == 0.0F) return;
      auto& highest = highest_[index_of(detail::expert_of(best))];
      highest = std::max(highest, p);
      sum += static_cast<double>(p);
      std::pop_heap(ranked_.begin(), end--);
    }
  }

  std::int32_t layers_;
  std::int32_t distance_;
  std::size_t experts_;
  std::size_t top_k_;
  std::vector<detail::scored_expert> ranked_;  // of one token
  std::vector<float> highest_;                 // [expert] of one layer
  std::vector<candidate> wanted_;
};

static_assert(prefetch_policy<cumulative_probability>);

}  // namespace hotset
