// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How a router's logits become scores, and which experts those choose.
///
/// Rule: scores are the softmax of the logits, or the sigmoid of each. An expert ranks by its score plus its bias. Where experts
///       lie in groups, a group ranks by the sum of its two best experts, and those of the best `top_groups` groups stay.
///       The K best that stayed are chosen; they weigh their scores without the bias, divided by their sum where
///       `renormalise` says so, times `scale`. Ties go to the lower id, of groups as of experts.
/// Source: DeepSeek-V3 2.1.2 (sigmoid, bias); its published inference code (groups).
/// Deviations: none. (Another public form leaves an expert of a refused group at 0, so that it beats one with a negative rank.)
/// Exact: yes.
/// Cost: O(E) for scores, O(E log K) for a selection.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// `logits` and `out` may be the same. Zeros where no logit is above minus infinity.
inline void softmax(std::span<const float> logits, std::span<float> out) noexcept {
  float highest = -std::numeric_limits<float>::infinity();
  for (const auto s : logits) highest = s > highest ? s : highest;
  if (highest == -std::numeric_limits<float>::infinity()) {
    std::ranges::fill(out, 0.0F);
    return;
  }
  double sum = 0.0;
  for (std::size_t e = 0; e < logits.size(); ++e) {
    out[e] = std::exp(logits[e] - highest);
    sum += static_cast<double>(out[e]);
  }
  for (auto& p : out) p = static_cast<float>(static_cast<double>(p) / sum);
}
/// 1 / (1 + exp(-logit)), each by itself. `logits` and `out` may be the same.
inline void sigmoid(std::span<const float> logits, std::span<float> out) noexcept {
  for (std::size_t e = 0; e < logits.size(); ++e) out[e] = 1.0F / (1.0F + std::exp(-logits[e]));
}
/// Divides scores by their sum. Zeros where that is no positive number.
inline void divide_by_sum(std::span<float> scores) noexcept {
  double sum = 0.0;
  for (const auto s : scores) sum += static_cast<double>(s);
  if (!(sum > 0)) {
    std::ranges::fill(scores, 0.0F);
    return;
  }
  for (auto& s : scores) s = static_cast<float>(static_cast<double>(s) / sum);
}

/// How logits become scores.
enum class score_function : std::uint8_t { softmax, sigmoid };

/// Scores and selects for one token at a time. Arrays are [experts]; an empty bias is none. Allocates nothing after
/// construction. Exponentials are those of the build: the last bits of scores may differ between machines. Threads:
/// compatible.
class router_scores {
 public:
  struct config {
    score_function function = score_function::softmax;
    std::int32_t groups = 1;      ///< of sigmoid: groups of neighbouring experts, all of one size
    std::int32_t top_groups = 1;  ///< groups that the experts of a token may come from
    bool renormalise = true;      ///< the weights of the chosen sum to `scale`
    float scale = 1;              ///< of weights

    /// Parameters by name, as in `current-gate:scores=sigmoid:groups=8:top_groups=4`: those that scores depend on.
    template <class From>
    static config read(From& from) {
      config out;
      out.function = static_cast<score_function>(from.choice("scores", {"softmax", "sigmoid"}, 0));
      out.groups = from.number("groups", out.groups);
      out.top_groups = from.number("top_groups", out.top_groups);
      return out;
    }
    [[nodiscard]] validation validate() const {
      if (function != score_function::softmax && function != score_function::sigmoid)
        return refusal("router_scores function = ", static_cast<int>(function),
                       ", accepted: 0 (softmax), 1 (sigmoid)");
      if (groups < 1 || (groups > 1 && function == score_function::softmax))
        return refusal("router_scores groups = ", groups,
                       ", accepted: 1 for softmax, 1 or more for sigmoid");
      if (top_groups < 1 || top_groups > groups)
        return refusal("router_scores top_groups = ", top_groups, ", accepted: 1..", groups,
                       " (groups)");
      if (!(scale > 0 && scale <= std::numeric_limits<float>::max()))
        return refusal("router_scores scale = ", scale, ", accepted: more than 0, finite");
      return std::nullopt;
    }
    /// Checks also that the groups suit this shape.
    [[nodiscard]] validation validate(const geometry& shape) const {
      if (auto bad = validate()) return bad;
      if (shape.experts % groups != 0)
        return refusal("router_scores groups = ", groups, ", accepted: divisors of ", shape.experts,
                       " (experts)");
      const auto eligible = shape.experts / groups * top_groups;
      if (eligible < shape.top_k)
        return refusal("router_scores top_groups = ", top_groups, " hold ", eligible,
                       " experts, accepted: ", shape.top_k, " (top_k) or more");
      return std::nullopt;
    }
  };

  /// Errors: those of the shape and of the configuration for it.
  static result<router_scores> create(const geometry& shape, const config& options) {
    if (auto bad = shape.validate()) return *std::move(bad);
    if (auto bad = options.validate(shape)) return *std::move(bad);
    return router_scores(shape, options);
  }
  /// Pre: shape.validate() and options.validate(shape) have no reason to refuse.
  router_scores(const geometry& shape, const config& options)
      : options_(options),
        top_k_(shape.ranks()),
        ranks_(shape.expert_count()),
        keys_(ranks_.size()),
        group_keys_(static_cast<std::size_t>(options.groups)) {
    HOTSET_ASSERT(!options.validate(shape));
  }

  [[nodiscard]] const config& options() const noexcept { return options_; }
  [[nodiscard]] std::int32_t top_k() const noexcept { return static_cast<std::int32_t>(top_k_); }

  /// Scores, from which weights are made. `logits` and `out` may be the same.
  void score(std::span<const float> logits, std::span<float> out) const noexcept {
    if (options_.function == score_function::softmax)
      softmax(logits, out);
    else
      sigmoid(logits, out);
  }
  /// Scores as shares that sum to 1. `logits` and `out` may be the same.
  void shares(std::span<const float> logits, std::span<float> out) const noexcept {
    score(logits, out);
    if (options_.function == score_function::sigmoid) divide_by_sum(out);
  }
  /// Ranks, by which experts are chosen: score plus bias, minus infinity in groups that do not stay.
  /// `scores` and `out` may be the same.
  void rank(std::span<const float> scores, std::span<const float> bias,
            std::span<float> out) noexcept {
    for (std::size_t e = 0; e < out.size(); ++e)
      out[e] = bias.empty() ? scores[e] : scores[e] + bias[e];
    if (options_.top_groups < options_.groups) refuse_groups(out);
  }
  /// Shares in the order of rank(), for forecasts: where there is neither bias nor a group to refuse, shares(). Else experts of
  /// refused groups have none; with a bias, which may be of any size, the others have what they rank above the lowest of them.
  /// `logits` and `out` may be the same.
  // NOLINTNEXTLINE(bugprone-easily-swappable-parameters): in the order of rank()
  void likely(std::span<const float> logits, std::span<const float> bias,
              std::span<float> out) noexcept {
    if (bias.empty() && options_.top_groups == options_.groups) return shares(logits, out);
    constexpr auto refused = -std::numeric_limits<float>::infinity();
    score(logits, out);
    rank(out, bias, out);
    float lowest = bias.empty() ? 0.0F : std::numeric_limits<float>::max();
    for (const auto r : out) lowest = r < lowest && r > refused ? r : lowest;
    for (auto& r : out) r = r > refused ? r - lowest : 0.0F;
    divide_by_sum(out);
  }
  /// The experts that the router chooses, best first. Shape: `ids` [top_k], `weights` [top_k] or empty.
  void select(std::span<const float> scores, std::span<const float> bias, std::span<expert_id> ids,
              std::span<float> weights) noexcept {
    rank(scores, bias, ranks_);
    for (std::size_t e = 0; e < ranks_.size(); ++e) keys_[e] = key_of(ranks_[e], e);
    std::partial_sort(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(top_k_),
                      keys_.end(), std::greater<>{});
    for (std::size_t k = 0; k < top_k_; ++k) ids[k] = static_cast<expert_id>(place_of(keys_[k]));
    if (!weights.empty()) weigh(scores, ids, weights);
  }

 private:
  /// A rank and a place as one integer: greater is better, and among equal ranks the lower place is. NaN is below all numbers.
  using ranked = std::uint64_t;
  static ranked key_of(float rank, std::size_t place) noexcept {
    constexpr std::uint32_t sign = 0x80000000U;
    const float number = std::isnan(rank) ? -std::numeric_limits<float>::infinity() : rank + 0.0F;
    const auto pattern = std::bit_cast<std::uint32_t>(number);
    const auto ordered = (pattern & sign) != 0 ? ~pattern : pattern | sign;
    return (ranked{ordered} << 32U) | static_cast<std::uint32_t>(~place);
  }
  static std::size_t place_of(ranked key) noexcept {
    return static_cast<std::uint32_t>(~static_cast<std::uint32_t>(key));
  }

  static float sum_of_two_best(std::span<const float> ranks) noexcept {
    constexpr auto least = -std::numeric_limits<float>::infinity();
    if (ranks.size() == 1) return ranks.front();
    float best = least;
    float second = least;
    for (const auto r : ranks) {
      second = r > best ? best : r > second ? r : second;
      best = r > best ? r : best;
    }
    return best + second;
  }
  void refuse_groups(std::span<float> ranks) noexcept {
    const auto size = ranks.size() / group_keys_.size();
    for (std::size_t g = 0; g < group_keys_.size(); ++g)
      group_keys_[g] = key_of(sum_of_two_best(ranks.subspan(g * size, size)), g);
    const auto staying = group_keys_.begin() + static_cast<std::ptrdiff_t>(options_.top_groups);
    std::nth_element(group_keys_.begin(), staying, group_keys_.end(), std::greater<>{});
    for (auto refused = staying; refused != group_keys_.end(); ++refused)
      std::ranges::fill(ranks.subspan(place_of(*refused) * size, size),
                        -std::numeric_limits<float>::infinity());
  }
  void weigh(std::span<const float> scores, id_view<expert_id> ids,
             std::span<float> weights) const noexcept {
    for (std::size_t k = 0; k < top_k_; ++k) weights[k] = scores[index_of(ids[k])];
    if (options_.renormalise) divide_by_sum(weights);
    for (auto& w : weights) w *= options_.scale;
  }

  config options_;
  std::size_t top_k_;
  std::vector<float> ranks_;
  std::vector<ranked> keys_;
  std::vector<ranked> group_keys_;
};

}  // namespace hotset
