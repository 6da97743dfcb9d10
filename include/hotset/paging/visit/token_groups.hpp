// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Splits a visit whose experts do not fit into groups of tokens whose experts do.
///
/// Rule: open a group with the first unplaced token; while any fits, add the token that brings fewest new
///       experts, ties to the lower index. A token is never split, so its sum is computed as before.
/// Source: WiSP 3.2 ("fewest groups"); the greedy of algorithms.md section 0.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/ids/per_id.hpp"

namespace hotset {

/// Complexity: O(tokens * top_k + placed * (top_k + tokens / 64)). Memory: taken once for max_tokens_per_visit.
class token_groups {
 public:
  token_groups() = default;
  explicit token_groups(const geometry& shape)
      : top_k_(shape.ranks()),
        words_((shape.tokens_per_visit() + 63) / 64),
        user_begin_(shape.expert_count() + 1),
        users_(shape.tokens_per_visit() * top_k_),
        in_group_(shape.expert_count()),
        missing_(shape.tokens_per_visit()),
        by_missing_((top_k_ + 1) * words_),
        order_(shape.tokens_per_visit()),
        begin_(shape.tokens_per_visit() + 1) {}

  /// Pre: ids.size() is tokens * top_k; `needs_slot(id)` says whether a valid id takes up room.
  /// Returns false if one token alone needs more than `room`; then there is no grouping.
  template <class NeedsSlot>
  bool build(id_view<expert_id> ids, std::size_t room, NeedsSlot needs_slot) noexcept {
    tokens_ = ids.size() / top_k_;
    if (!index_users(ids, room, needs_slot)) return false;
    groups_ = 0;
    std::size_t placed = 0;
    begin_[0] = 0;
    while (placed < tokens_) {
      placed = fill_group(ids, room, placed);
      begin_[++groups_] = static_cast<std::uint32_t>(placed);
    }
    for (std::size_t g = 0; g < groups_; ++g)
      std::sort(order_.begin() + begin_[g], order_.begin() + begin_[g + 1]);
    return true;
  }
  [[nodiscard]] std::size_t groups() const noexcept { return groups_; }
  /// Tokens of a group, ascending.
  [[nodiscard]] std::span<const std::uint32_t> tokens(std::size_t group) const noexcept {
    return {order_.data() + begin_[group], begin_[group + 1] - begin_[group]};
  }

 private:
  static constexpr std::uint8_t no_room_needed = 2;  ///< also for ids outside the layer's experts

  /// Tokens of each expert (compressed rows), and how many distinct experts each token brings.
  template <class NeedsSlot>
  bool index_users(id_view<expert_id> ids, std::size_t room, NeedsSlot needs_slot) noexcept {
    std::fill(in_group_.begin(), in_group_.end(), no_room_needed);
    std::fill(user_begin_.begin(), user_begin_.end(), 0U);
    std::fill(by_missing_.begin(), by_missing_.end(), 0U);
    bool fits = true;
    for (std::size_t t = 0; t < tokens_; ++t) {
      missing_[t] = 0;
      for (std::size_t r = 0; r < top_k_; ++r) {
        const auto id = ids[t * top_k_ + r];
        if (!valid(id) || repeats(ids, t, r) || !needs_slot(id)) continue;
        in_group_[id] = 0;
        ++user_begin_[index_of(id) + 1];
        ++missing_[t];
      }
      fits = fits && missing_[t] <= room;
      bucket(missing_[t])[t / 64] |= std::uint64_t{1} << (t % 64);
    }
    if (!fits) return false;
    for (std::size_t e = 1; e < user_begin_.size(); ++e) user_begin_[e] += user_begin_[e - 1];
    for (std::size_t t = tokens_; t-- > 0;)
      for (std::size_t r = 0; r < top_k_; ++r) {
        const auto id = ids[t * top_k_ + r];
        if (!valid(id) || repeats(ids, t, r) || in_group_[id] == no_room_needed) continue;
        users_[--user_begin_[index_of(id) + 1]] = static_cast<std::uint32_t>(t);
      }
    // user_begin_[e + 1] now is where expert e's users begin; shift so that [e, e + 1) is its range.
    for (std::size_t e = 0; e + 1 < user_begin_.size(); ++e) user_begin_[e] = user_begin_[e + 1];
    user_begin_.back() = static_cast<std::uint32_t>(count_users());
    return true;
  }
  [[nodiscard]] std::size_t count_users() const noexcept {
    std::size_t total = 0;
    for (std::size_t t = 0; t < tokens_; ++t) total += missing_[t];
    return total;
  }

  std::size_t fill_group(id_view<expert_id> ids, std::size_t room, std::size_t placed) noexcept {
    close_group(ids, placed);
    const auto first = first_unplaced();
    auto token = first;
    std::size_t used = 0;
    while (token < tokens_) {
      used += missing_[token];
      remove(token);
      order_[placed++] = static_cast<std::uint32_t>(token);
      add_experts(ids, token);
      token = cheapest(room - used);
    }
    return placed;
  }
  /// Forgets the experts of the group before, so that every unplaced token counts all of its own again.
  void close_group(id_view<expert_id> ids, std::size_t placed) noexcept {
    const auto from = groups_ == 0 ? placed : begin_[groups_ - 1];
    for (auto at = static_cast<std::size_t>(from); at < placed; ++at)
      for (std::size_t r = 0; r < top_k_; ++r) {
        const auto id = ids[order_[at] * top_k_ + r];
        if (!valid(id) || in_group_[id] != 1) continue;
        in_group_[id] = 0;
        for_each_unplaced_user(id, [this](std::size_t user) { move(user, missing_[user] + 1); });
      }
  }
  void add_experts(id_view<expert_id> ids, std::size_t token) noexcept {
    for (std::size_t r = 0; r < top_k_; ++r) {
      const auto id = ids[token * top_k_ + r];
      if (!valid(id) || in_group_[id] != 0) continue;
      in_group_[id] = 1;
      for_each_unplaced_user(id, [this](std::size_t user) { move(user, missing_[user] - 1); });
    }
  }
  template <class Do>
  void for_each_unplaced_user(expert_id id, Do apply) noexcept {
    const auto e = index_of(id);
    for (auto at = user_begin_[e]; at < user_begin_[e + 1]; ++at)
      if (const std::size_t user = users_[at]; unplaced(user)) apply(user);
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
  [[nodiscard]] std::uint64_t* bucket(std::size_t missing) noexcept {
    return by_missing_.data() + missing * words_;
  }
  [[nodiscard]] bool unplaced(std::size_t token) noexcept {
    return ((bucket(missing_[token])[token / 64] >> (token % 64)) & 1U) != 0;
  }
  void remove(std::size_t token) noexcept {
    bucket(missing_[token])[token / 64] &= ~(std::uint64_t{1} << (token % 64));
  }
  void move(std::size_t token, std::size_t missing) noexcept {
    remove(token);
    missing_[token] = static_cast<std::uint16_t>(missing);
    bucket(missing)[token / 64] |= std::uint64_t{1} << (token % 64);
  }
  [[nodiscard]] bool valid(expert_id id) const noexcept {
    return id >= 0 && index_of(id) < in_group_.size();
  }
  [[nodiscard]] bool repeats(id_view<expert_id> ids, std::size_t token,
                             std::size_t rank) const noexcept {
    const auto first = ids.subspan(token * top_k_);
    for (std::size_t r = 0; r < rank; ++r)
      if (first[r] == first[rank]) return true;
    return false;
  }

  std::size_t top_k_ = 1;
  std::size_t words_ = 0;
  std::size_t tokens_ = 0;
  std::size_t groups_ = 0;
  std::vector<std::uint32_t> user_begin_;  ///< [experts + 1]
  std::vector<std::uint32_t> users_;       ///< tokens, grouped by expert
  per_expert<std::uint8_t> in_group_;      ///< 0 not yet, 1 in the open group, 2 takes no room
  std::vector<std::uint16_t> missing_;     ///< experts that a token would bring
  std::vector<std::uint64_t> by_missing_;  ///< [top_k + 1][words]: unplaced tokens by that number
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> begin_;
};

}  // namespace hotset
