// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Mean scores of a forecast for one layer's experts, ready to be ranked.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/forecast.hpp"
#include "hotset/core/ids.hpp"

namespace hotset {

namespace detail {

/// An expert and its score as one integer: a greater integer has the better score, or at equal scores the lower id.
using scored_expert = std::uint64_t;

/// A score that is not positive and finite counts as 0.
[[nodiscard]] inline scored_expert make_scored(float score, std::size_t expert) noexcept {
  const bool counts = score > 0.0F && score <= std::numeric_limits<float>::max();
  const auto pattern = std::bit_cast<std::uint32_t>(counts ? score : 0.0F);
  return (scored_expert{pattern} << 32U) | static_cast<std::uint32_t>(~expert);
}
[[nodiscard]] inline float score_of(scored_expert s) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(s >> 32U));
}
[[nodiscard]] inline expert_id expert_of(scored_expert s) noexcept {
  return static_cast<expert_id>(~static_cast<std::uint32_t>(s));
}

/// Moves the `count` best to the front, in order; the rest is unspecified. Pre: count <= scored.size().
inline void sort_best(std::span<scored_expert> scored, std::size_t count) noexcept {
  std::partial_sort(scored.begin(), scored.begin() + static_cast<std::ptrdiff_t>(count),
                    scored.end(), std::greater<>());
}

/// Means of a forecast over the tokens, for one layer's experts.
class layer_scores {
 public:
  explicit layer_scores(std::size_t experts) : sums_(experts), scored_(experts) {}

  /// Layers ahead that the forecast covers; 0 if it is not a whole number of tokens.
  [[nodiscard]] std::int32_t depth(const forecast& expected) const noexcept {
    return expected.tokens(sums_.size()) > 0 ? expected.depth : 0;
  }
  /// Returns the scores in order of expert ids; the caller may reorder them. Pre: 0 <= ahead < depth(expected).
  [[nodiscard]] std::span<scored_expert> take(const forecast& expected,
                                              std::int32_t ahead) noexcept {
    const auto experts = sums_.size();
    const auto count = expected.tokens(experts);
    const auto first = expected.row(0, ahead, experts);
    if (count == 1) {
      for (std::size_t e = 0; e < experts; ++e) scored_[e] = make_scored(first[e], e);
      return scored_;
    }
    std::ranges::copy(first, sums_.begin());
    for (std::size_t t = 1; t < count; ++t) {
      const auto next = expected.row(t, ahead, experts);
      for (std::size_t e = 0; e < experts; ++e) sums_[e] += double{next[e]};
    }
    for (std::size_t e = 0; e < experts; ++e)
      scored_[e] = make_scored(static_cast<float>(sums_[e] / static_cast<double>(count)), e);
    return scored_;
  }

 private:
  std::vector<double> sums_;
  std::vector<scored_expert> scored_;
};

}  // namespace detail

}  // namespace hotset
