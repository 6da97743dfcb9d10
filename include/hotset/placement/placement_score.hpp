// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How evenly a placement serves steps, and to how many ranks it sends a token.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/placement/placement_shape.hpp"
#include "hotset/placement/step_loads.hpp"
#include "hotset/placement/token_ranks.hpp"

namespace hotset {

/// Loads of some steps. Scores of several layers add up.
struct placement_score {
  double fullest = 0;        ///< sum over the steps of the fullest rank's load, in tokens
  double mean = 0;           ///< sum over the steps of the mean load of a rank, in tokens
  std::uint64_t tokens = 0;  ///< tokens that were dispatched; 0: loads were split evenly
  std::uint64_t copies = 0;  ///< ranks of all tokens that were dispatched

  placement_score& operator+=(const placement_score& other) noexcept {
    fullest += other.fullest;
    mean += other.mean;
    tokens += other.tokens;
    copies += other.copies;
    return *this;
  }
  /// The share by which the fullest rank exceeds the mean: how much longer steps last than balanced ones. 0: balanced.
  [[nodiscard]] double excess() const noexcept { return mean > 0 ? fullest / mean - 1 : 0; }
  /// Mean over fullest, as vLLM computes balancedness. 1: balanced.
  [[nodiscard]] double balancedness() const noexcept { return fullest > 0 ? mean / fullest : 1; }
  [[nodiscard]] double ranks_per_token() const noexcept {
    return tokens > 0 ? static_cast<double>(copies) / static_cast<double>(tokens) : 0;
  }
};

/// Scores steps whose loads are shared evenly by an expert's replicas. Pre: check_placement(shape, placed).
[[nodiscard]] inline placement_score score_of(const placement_shape& shape,
                                              std::span<const expert_id> placed,
                                              const step_loads& loads) {
  const auto replicas = replicas_of(shape.experts, placed);
  std::vector<double> ranks(static_cast<std::size_t>(shape.ranks));
  placement_score out;
  for (std::size_t s = 0; s < loads.steps(); ++s) {
    const auto step = loads.step(s);
    std::ranges::fill(ranks, 0.0);
    for (std::size_t slot = 0; slot < placed.size(); ++slot) {
      const auto e = index_of(placed[slot]);
      ranks[static_cast<std::size_t>(shape.rank_of(slot))] +=
          static_cast<double>(step[e]) / replicas[e];
    }
    out.fullest += std::ranges::max(ranks);
    for (const auto count : step) out.mean += static_cast<double>(count) / shape.ranks;
  }
  return out;
}

/// How a token chooses among an expert's replicas.
enum class replica_choice : std::uint8_t {
  /// By a hash of the token's index in the step, as vLLM does.
  hash,
  /// By the rank that the token comes from: the replica of that rank, else one of its node, else always the same one,
  /// as SGLang's static dispatch does.
  near,
  /// The replica to which this rank's own tokens of the step have sent least so far. Needs no message.
  own_tokens,
};

/// Dispatches the tokens of steps. Tokens come from the ranks in equal, contiguous parts of the step.
class token_dispatch {
 public:
  /// Pre: check_placement(shape, placed).
  token_dispatch(const placement_shape& shape, std::span<const expert_id> placed,
                 replica_choice choice)
      : shape_(shape),
        choice_(choice),
        holders_(static_cast<std::size_t>(shape.experts)),
        loads_(static_cast<std::size_t>(shape.ranks)),
        own_(loads_.size()),
        seen_(loads_.size(), 0) {
    for (std::size_t slot = 0; slot < placed.size(); ++slot)
      holders_[index_of(placed[slot])].push_back(static_cast<std::size_t>(shape.rank_of(slot)));
  }

  /// Adds a step. Shape: ids [tokens][top_k]; an id that is no expert is skipped.
  void add_step(std::span<const expert_id> ids, std::size_t top_k) {
    const auto tokens = ids.size() / top_k;
    std::ranges::fill(loads_, 0U);
    auto source = loads_.size();
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto from = t * loads_.size() / tokens;
      if (from != source) std::ranges::fill(own_, 0U);
      source = from;
      ++mark_;
      for (const auto e : ids.subspan(t * top_k, top_k))
        if (is_within(e, shape_.experts)) send(t, source, holders_[index_of(e)]);
    }
    std::uint64_t all = 0;
    for (const auto load : loads_) all += load;
    score_.fullest += static_cast<double>(std::ranges::max(loads_));
    score_.mean += static_cast<double>(all) / static_cast<double>(loads_.size());
    score_.tokens += tokens;
  }
  [[nodiscard]] const placement_score& score() const noexcept { return score_; }

 private:
  void send(std::size_t token, std::size_t source, const std::vector<std::size_t>& holders) {
    const auto rank = choose(token, source, holders);
    ++loads_[rank];
    ++own_[rank];
    if (seen_[rank] != mark_) ++score_.copies;
    seen_[rank] = mark_;
  }
  [[nodiscard]] std::size_t choose(std::size_t token, std::size_t source,
                                   const std::vector<std::size_t>& holders) const {
    switch (choice_) {
      case replica_choice::hash: return holders[detail::replica_of(token, holders.size())];
      case replica_choice::near: return nearest(source, holders);
      case replica_choice::own_tokens: break;
    }
    return *std::ranges::min_element(holders, {}, [&](std::size_t rank) { return own_[rank]; });
  }
  [[nodiscard]] std::size_t nearest(std::size_t source,
                                    const std::vector<std::size_t>& holders) const {
    if (std::ranges::find(holders, source) != holders.end()) return source;
    const auto width = static_cast<std::size_t>(shape_.ranks / shape_.nodes);
    std::vector<std::size_t> local;
    for (const auto rank : holders)
      if (rank / width == source / width) local.push_back(rank);
    const auto& near = local.empty() ? holders : local;
    return near[source % near.size()];
  }

  placement_shape shape_;
  replica_choice choice_;
  std::vector<std::vector<std::size_t>> holders_;  ///< ranks of each expert's replicas, ascending
  std::vector<std::uint64_t> loads_;               ///< [ranks], of the step
  std::vector<std::uint64_t> own_;   ///< [ranks], of the step's tokens of one source rank
  std::vector<std::uint64_t> seen_;  ///< [ranks]: mark of the last token that was sent there
  std::uint64_t mark_ = 0;
  placement_score score_;
};

}  // namespace hotset
