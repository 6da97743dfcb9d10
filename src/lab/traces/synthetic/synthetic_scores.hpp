// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Draws router scores that fit a given routing.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/numbers/splitmix64.hpp"
#include "lab/traces/synthetic/integer_math.hpp"
#include "lab/traces/synthetic/score_rows.hpp"
#include "lab/traces/synthetic/synthetic_config.hpp"

namespace hotset {
namespace detail {

/// Router scores for a given routing, drawn from a separate random stream.
///
/// Masses: a routed expert has its gate weight. Each other one has its popularity times a draw, to the power 1, 1/2
/// or 1/4, scaled so that the greatest of them has a share in (0, 1) of the least routed mass. The power and the
/// share are drawn for each token and layer, so some rows are peaked and some flat. If the routed experts would hold
/// less than half of the probability, all others are scaled down by one factor.
/// Probabilities are masses divided by their sum, logits the logarithms of probabilities in steps of 2^-18.
class synthetic_scores {
 public:
  explicit synthetic_scores(const synthetic_config& config)
      : random_(splitmix64(~config.seed).next()),
        masses_(static_cast<std::size_t>(config.experts)),
        steps_(masses_.size()) {}

  [[nodiscard]] splitmix64& random() noexcept { return random_; }

  /// Adds the current token's next layer to rows. `gates`: of the ids, descending, in 1..2^32. `popular`: all
  /// experts, most popular first; `cumulative`: cumulative sums of their popularities.
  void add_layer(id_view<expert_id> ids, std::span<const std::uint64_t> gates,
                 id_view<expert_id> popular, std::span<const std::uint64_t> cumulative,
                 score_rows& rows) {
    std::ranges::fill(masses_, 0);
    std::uint64_t routed = 0;
    for (std::size_t rank = 0; rank < ids.size(); ++rank) {
      mass(ids[rank]) = gates[rank] << 8U;  // leaves room for masses below a gate weight of 1
      routed += mass(ids[rank]);
    }
    const auto total = routed + weigh_others(gates.back() << 8U, routed, popular, cumulative);
    const auto whole = ln_q18(total);
    for (std::size_t e = 0; e < steps_.size(); ++e) steps_[e] = ln_q18(masses_[e]) - whole;
    rows.add(ids, steps_, masses_, total);
  }

 private:
  [[nodiscard]] std::uint64_t& mass(expert_id id) { return masses_[index_of(id)]; }

  /// Draws masses for all experts without one. Returns their sum.
  std::uint64_t weigh_others(std::uint64_t least, std::uint64_t routed, id_view<expert_id> popular,
                             std::span<const std::uint64_t> cumulative) {
    const std::uint64_t share = (random_.next() >> 40U) | 1U;  // in units of 2^-24
    const auto roots = random_.below(3);
    others_.clear();
    std::uint64_t best = 1;
    for (std::size_t rank = 0; rank < popular.size(); ++rank) {
      if (mass(popular[rank]) != 0) continue;
      const auto popularity = cumulative[rank] - (rank == 0 ? 0 : cumulative[rank - 1]);
      const auto drawn = (random_.next() >> 33U) + 1;  // in units of 2^-31
      others_.emplace_back((std::max<std::uint64_t>(popularity >> 8U, 1) * drawn) >> 31U,
                           popular[rank]);
      best = std::max(best, others_.back().first);
    }
    const std::uint64_t most = (least * share) >> 24U;
    std::uint64_t sum = 0;
    for (auto& [value, id] : others_) {
      value = (value << 23U) / best;
      for (std::uint64_t n = 0; n < roots; ++n) value = integer_sqrt(value << 23U);
      value = (most * std::max<std::uint64_t>(value, 1)) >> 23U;
      sum += value;
    }
    return hand_out(sum > routed ? static_cast<double>(routed) / static_cast<double>(sum) : 1.0);
  }

  std::uint64_t hand_out(double factor) {
    std::uint64_t sum = 0;
    for (const auto& [value, id] : others_) {
      const double shrunk = static_cast<double>(value) * factor;
      mass(id) = std::max<std::uint64_t>(static_cast<std::uint64_t>(shrunk), 1);
      sum += mass(id);
    }
    return sum;
  }

  splitmix64 random_;
  std::vector<std::uint64_t> masses_;  // [E]
  std::vector<std::int64_t> steps_;    // [E] logits
  std::vector<std::pair<std::uint64_t, expert_id>> others_;
};

}  // namespace detail
}  // namespace hotset
