// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Converts a router's logits to scores and to the probability that it selects each expert.
///
/// Rule: scores are the softmax of the logits, or the sigmoid of each. An expert ranks by score plus bias.
///       With groups, a group ranks by the sum of its two best experts. Only experts of the best `top_groups` groups
///       stay. Ties between groups go to the lower index.
/// Source: DeepSeek-V3 2.1.2 (sigmoid, bias); its published inference code (groups).
/// Deviations: none. (Another published form scores experts of refused groups 0, so they beat negative ranks.)
/// Exact: yes.
/// Cost: O(E).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// Writes the softmax of the logits, or zeros if no logit is above minus infinity. `logits` and `out` may be the same.
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
/// Writes 1 / (1 + exp(-logit)) for each logit. `logits` and `out` may be the same.
inline void sigmoid(std::span<const float> logits, std::span<float> out) noexcept {
  for (std::size_t e = 0; e < logits.size(); ++e) out[e] = 1.0F / (1.0F + std::exp(-logits[e]));
}
/// Divides scores by their sum. Writes zeros if the sum is not positive.
inline void divide_by_sum(std::span<float> scores) noexcept {
  double sum = 0.0;
  for (const auto s : scores) sum += static_cast<double>(s);
  if (!(sum > 0)) {
    std::ranges::fill(scores, 0.0F);
    return;
  }
  for (auto& s : scores) s = static_cast<float>(static_cast<double>(s) / sum);
}

/// The function that converts logits to scores.
enum class score_function : std::uint8_t { softmax, sigmoid };

/// Scores one token at a time. Arrays are [experts]; an empty bias means no bias. Allocates nothing after
/// construction. Exponentials come from the build's math library, so the last bits of scores may differ between
/// machines. Threads: compatible.
class router_scores {
 public:
  struct config {
    score_function function = score_function::softmax;
    std::int32_t groups = 1;      ///< sigmoid only: groups of neighbouring experts, equal in size
    std::int32_t top_groups = 1;  ///< groups from which a token may select experts

    /// Reads the parameters that scores depend on, such as `current-gate:scores=sigmoid:groups=8:top_groups=4`.
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
      return std::nullopt;
    }
    /// Also checks that the groups divide this shape.
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

  /// Pre: shape.validate() and options.validate(shape) return no error.
  router_scores([[maybe_unused]] const geometry& shape, const config& options)
      : options_(options), groups_(static_cast<std::size_t>(options.groups)) {
    HOTSET_ASSERT(!options.validate(shape));
  }

  /// Writes scores as shares that sum to 1. `logits` and `out` may be the same.
  void shares(std::span<const float> logits, std::span<float> out) const noexcept {
    score(logits, out);
    if (options_.function == score_function::sigmoid) divide_by_sum(out);
  }
  /// Writes shares in the order of the ranks. Without a bias and refused groups they are shares().
  /// Experts of refused groups have share 0. A bias may be any number. With a bias, a share is proportional to the
  /// rank minus the lowest rank that is not refused. `logits` and `out` may be the same.
  // NOLINTNEXTLINE(bugprone-easily-swappable-parameters): inputs, then the output
  void likely(std::span<const float> logits, std::span<const float> bias,
              std::span<float> out) noexcept {
    if (bias.empty() && options_.top_groups == options_.groups) return shares(logits, out);
    constexpr auto refused = -std::numeric_limits<float>::infinity();
    score(logits, out);
    for (std::size_t e = 0; e < bias.size(); ++e) out[e] += bias[e];
    if (options_.top_groups < options_.groups) refuse_groups(out);
    float lowest = bias.empty() ? 0.0F : std::numeric_limits<float>::max();
    for (const auto r : out) lowest = r < lowest && r > refused ? r : lowest;
    for (auto& r : out) r = r > refused ? r - lowest : 0.0F;
    divide_by_sum(out);
  }

 private:
  void score(std::span<const float> logits, std::span<float> out) const noexcept {
    options_.function == score_function::softmax ? softmax(logits, out) : sigmoid(logits, out);
  }

  struct group {
    float rank;  ///< never NaN
    std::size_t place;
  };
  static bool is_better(const group& a, const group& b) noexcept {
    return a.rank != b.rank ? a.rank > b.rank : a.place < b.place;
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
    constexpr auto never = -std::numeric_limits<float>::infinity();
    const auto size = ranks.size() / groups_.size();
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const auto rank = sum_of_two_best(ranks.subspan(g * size, size));
      groups_[g] = {std::isnan(rank) ? never : rank, g};
    }
    const auto staying = groups_.begin() + static_cast<std::ptrdiff_t>(options_.top_groups);
    std::nth_element(groups_.begin(), staying, groups_.end(), is_better);
    for (auto refused = staying; refused != groups_.end(); ++refused)
      std::ranges::fill(ranks.subspan(refused->place * size, size), never);
  }

  config options_;
  std::vector<group> groups_;
};

}  // namespace hotset
