// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Splits a visit whose experts do not fit into groups of tokens whose experts fit.
///
/// Rule: open a group with the first unplaced token. While any token fits, add the one with the fewest new experts;
///       ties: the lower index. A token is never split, so the order of its sum does not change.
/// Source: WiSP 3.2 ("fewest groups"); the greedy of algorithms.md section 0.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/ids/per_id.hpp"

namespace hotset {

/// Complexity: O(tokens * top_k + placed * (top_k + tokens / 64)). Memory: allocated once for max_tokens_per_visit.
class token_groups {
 public:
  explicit token_groups(const geometry& shape)
      : top_k_(shape.ranks()),
        words_((shape.tokens_per_visit() + 63) / 64),
        needed_(shape.tokens_per_visit() * top_k_),
        needed_count_(shape.tokens_per_visit()),
        missing_(shape.tokens_per_visit()),
        user_begin_(shape.expert_count() + 1),
        users_(needed_.size()),
        in_group_(shape.expert_count(), 0),
        by_missing_((top_k_ + 1) * words_),
        order_(shape.tokens_per_visit()),
        begin_(shape.tokens_per_visit() + 1) {}

  /// Builds the groups. Pre: ids.size() is tokens * top_k; `needs_slot(id)` is true if a valid id takes a slot.
  /// Returns false if one token needs more than `room` slots; then there are no groups.
  template <class NeedsSlot>
  bool build(id_view<expert_id> ids, std::size_t room, NeedsSlot needs_slot) noexcept {
    tokens_ = ids.size() / top_k_;
    std::ranges::fill(by_missing_, 0U);
    for (std::size_t t = 0; t < tokens_; ++t) {
      collect_needed(t, ids.subspan(t * top_k_, top_k_), needs_slot);
      if (missing_[t] > room) return false;
    }
    index_users();
    groups_ = 0;
    for (std::size_t placed = 0; placed < tokens_;) {
      const auto first = placed;
      placed = fill_group(room, first);
      for (auto at = first; at < placed; ++at) set_in_group(order_[at], false);
      begin_[groups_] = static_cast<std::uint32_t>(first);
      begin_[++groups_] = static_cast<std::uint32_t>(placed);
      std::sort(order_.data() + first, order_.data() + placed);
    }
    return true;
  }
  [[nodiscard]] std::size_t groups() const noexcept { return groups_; }
  /// Tokens of a group in ascending order.
  [[nodiscard]] std::span<const std::uint32_t> tokens(std::size_t group) const noexcept {
    return {order_.data() + begin_[group], begin_[group + 1] - begin_[group]};
  }

 private:
  /// Collects the token's distinct experts that take a slot. All of them are missing at first.
  template <class NeedsSlot>
  void collect_needed(std::size_t token, id_view<expert_id> ids, NeedsSlot& needs_slot) noexcept {
    auto* const first = needed_.data() + token * top_k_;
    auto* last = first;
    for (const expert_id id : ids)
      if (id >= 0 && index_of(id) < in_group_.size() && std::find(first, last, id) == last &&
          needs_slot(id))
        *last++ = id;
    missing_[token] = needed_count_[token] = static_cast<std::uint16_t>(last - first);
    put(token);
  }
  [[nodiscard]] std::span<const expert_id> needed(std::size_t token) const noexcept {
    return {needed_.data() + token * top_k_, needed_count_[token]};
  }
  /// Builds the list of tokens of each expert in compressed rows.
  void index_users() noexcept {
    std::ranges::fill(user_begin_, 0U);
    for (std::size_t t = 0; t < tokens_; ++t)
      for (const auto e : needed(t)) ++user_begin_[index_of(e)];
    std::partial_sum(user_begin_.begin(), user_begin_.end(), user_begin_.begin());
    for (std::size_t t = 0; t < tokens_; ++t)
      for (const auto e : needed(t))
        users_[--user_begin_[index_of(e)]] = static_cast<std::uint32_t>(t);
  }

  std::size_t fill_group(std::size_t room, std::size_t placed) noexcept {
    std::size_t used = 0;
    for (auto token = first_unplaced(); token < tokens_; token = cheapest(room - used)) {
      used += missing_[token];
      remove(token);
      order_[placed++] = static_cast<std::uint32_t>(token);
      set_in_group(token, true);
    }
    return placed;
  }
  /// Adds the token's experts to the open group or removes them, and updates the missing counts of other tokens.
  void set_in_group(std::size_t token, bool joins) noexcept {
    for (const auto expert : needed(token)) {
      if ((in_group_[expert] != 0) == joins) continue;
      in_group_[expert] = joins ? 1 : 0;
      const auto e = index_of(expert);
      for (auto at = user_begin_[e]; at < user_begin_[e + 1]; ++at) {
        const std::size_t user = users_[at];
        if (!is_unplaced(user)) continue;
        remove(user);
        joins ? --missing_[user] : ++missing_[user];
        put(user);
      }
    }
  }
  [[nodiscard]] std::size_t cheapest(std::size_t room) const noexcept {
    for (std::size_t missing = 0; missing <= std::min(room, top_k_); ++missing)
      if (const auto token = first_in(missing); token < tokens_) return token;
    return tokens_;
  }
  [[nodiscard]] std::size_t first_unplaced() const noexcept {
    std::size_t first = tokens_;
    for (std::size_t missing = 0; missing <= top_k_; ++missing)
      first = std::min(first, first_in(missing));
    return first;
  }
  [[nodiscard]] std::size_t first_in(std::size_t missing) const noexcept {
    const auto* const words = by_missing_.data() + missing * words_;
    for (std::size_t w = 0; w * 64 < tokens_; ++w)
      if (words[w] != 0) return w * 64 + static_cast<std::size_t>(std::countr_zero(words[w]));
    return tokens_;
  }
  [[nodiscard]] std::uint64_t& word_of(std::size_t token) noexcept {
    return by_missing_[missing_[token] * words_ + token / 64];
  }
  [[nodiscard]] static std::uint64_t bit_of(std::size_t token) noexcept {
    return std::uint64_t{1} << (token % 64);
  }
  [[nodiscard]] bool is_unplaced(std::size_t token) noexcept {
    return (word_of(token) & bit_of(token)) != 0;
  }
  void put(std::size_t token) noexcept { word_of(token) |= bit_of(token); }
  void remove(std::size_t token) noexcept { word_of(token) &= ~bit_of(token); }

  std::size_t top_k_;
  std::size_t words_;
  std::size_t tokens_ = 0;
  std::size_t groups_ = 0;
  std::vector<expert_id> needed_;            ///< [tokens][top_k] distinct experts that take a slot
  std::vector<std::uint16_t> needed_count_;  ///< [tokens]
  std::vector<std::uint16_t> missing_;     ///< [tokens] experts that a token would add to the group
  std::vector<std::uint32_t> user_begin_;  ///< [experts + 1]
  std::vector<std::uint32_t> users_;       ///< tokens grouped by expert
  per_expert<std::uint8_t> in_group_;      ///< 1 if the expert is in the open group
  /// [top_k + 1][words]: unplaced tokens by number of missing experts.
  std::vector<std::uint64_t> by_missing_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> begin_;
};

}  // namespace hotset
