// SPDX-License-Identifier: Apache-2.0
#pragma once
/// To how many ranks tokens are sent under a placement, kept while the placement changes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/placement/placement_shape.hpp"

namespace hotset::detail {

/// Index of the replica, of `replicas`, that serves a token of a step by a hash of the token's index, as in vLLM.
[[nodiscard]] constexpr std::size_t replica_of(std::size_t token, std::size_t replicas) noexcept {
  return static_cast<std::uint32_t>(token * 2654435769U) % replicas;
}

/// A token is sent once to each rank that holds one of its experts, to the replica that replica_of() chooses.
class token_ranks {
 public:
  /// `ids` [tokens][top_k]: a sample. An id that is no expert is skipped.
  token_ranks(const placement_shape& shape, std::span<const expert_id> ids, std::size_t top_k)
      : shape_(shape), ids_(ids), top_k_(top_k), ranks_of_(top_k == 0 ? 0 : ids.size() / top_k, 0) {
    users_.resize(static_cast<std::size_t>(shape.experts));
    holders_.resize(users_.size());
    seen_.resize(static_cast<std::size_t>(shape.ranks), 0);
    for (std::size_t t = 0; t < ranks_of_.size(); ++t)
      for (const auto e : of(t))
        if (is_within(e, shape.experts)) users_[index_of(e)].push_back(t);
  }

  [[nodiscard]] std::size_t tokens() const noexcept { return ranks_of_.size(); }
  /// Ranks of all tokens.
  [[nodiscard]] std::int64_t ranks() const noexcept { return ranks_; }

  /// Tokens that use the expert.
  [[nodiscard]] std::int64_t uses(expert_id e) const noexcept {
    return static_cast<std::int64_t>(users_[index_of(e)].size());
  }

  /// Computes everything anew.
  void place(std::span<const expert_id> placed) {
    for (const auto e : each<expert_id>(shape_.experts)) holders_[index_of(e)] = holders(e, placed);
    ranks_ = 0;
    for (std::size_t t = 0; t < ranks_of_.size(); ++t) {
      ranks_of_[t] = count(t);
      ranks_ += ranks_of_[t];
    }
  }
  /// Ranks of all tokens if the slots of e and f were as in `placed`.
  [[nodiscard]] std::int64_t if_changed(expert_id e, expert_id f,
                                        std::span<const expert_id> placed) {
    auto before_e = std::exchange(holders_[index_of(e)], holders(e, placed));
    auto before_f = std::exchange(holders_[index_of(f)], holders(f, placed));
    auto out = ranks_;
    // A token that uses both counts once.
    for (const auto t : users_[index_of(e)]) out += count(t) - ranks_of_[t];
    for (const auto t : users_[index_of(f)])
      if (std::ranges::find(of(t), e) == of(t).end()) out += count(t) - ranks_of_[t];
    holders_[index_of(e)] = std::move(before_e);
    holders_[index_of(f)] = std::move(before_f);
    return out;
  }

 private:
  [[nodiscard]] std::span<const expert_id> of(std::size_t token) const noexcept {
    return ids_.subspan(token * top_k_, top_k_);
  }
  [[nodiscard]] std::vector<std::int32_t> holders(expert_id e,
                                                  std::span<const expert_id> placed) const {
    std::vector<std::int32_t> out;
    for (std::size_t slot = 0; slot < placed.size(); ++slot)
      if (placed[slot] == e) out.push_back(shape_.rank_of(slot));
    return out;
  }
  [[nodiscard]] std::int32_t count(std::size_t token) {
    ++mark_;
    std::int32_t out = 0;
    for (const auto e : of(token)) {
      if (!is_within(e, shape_.experts)) continue;
      const auto& at = holders_[index_of(e)];
      auto& seen = seen_[static_cast<std::size_t>(at[replica_of(token, at.size())])];
      out += seen != mark_;
      seen = mark_;
    }
    return out;
  }

  placement_shape shape_;
  std::span<const expert_id> ids_;
  std::size_t top_k_;
  std::vector<std::int32_t> ranks_of_;              ///< [tokens]
  std::vector<std::vector<std::size_t>> users_;     ///< tokens of each expert
  std::vector<std::vector<std::int32_t>> holders_;  ///< ranks of each expert's replicas
  std::vector<std::uint64_t> seen_;  ///< [ranks]: mark of the last token that was sent there
  std::uint64_t mark_ = 0;
  std::int64_t ranks_ = 0;
};

}  // namespace hotset::detail
