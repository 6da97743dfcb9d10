// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds the stored place that stands for a token id: the oldest of the same id, or of the id whose embedding is
/// nearest.
///
/// Rule: the places of a token id form a list in order of arrival; a table with open addressing finds the list. Two ids
///       are as alike as the cosine of their rows in the engine's input embedding table.
/// Cost: add and remove O(1) expected; match O(1), else O(token ids x width). Memory: 36 to 52 bytes per place, 4 per
///       row of the table.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/predict/kernels/map_kernels.hpp"
#include "hotset/predict/kernels/value_kernels.hpp"

namespace hotset {

/// Views an embedding table that the caller keeps alive; it may be empty. Threads: compatible. Nothing allocates after
/// construction.
class token_index {
 public:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  /// Shape: `table` is [vocabulary, width]; empty: ids are like themselves alone. Pre: 1 <= places <= 2^30.
  /// Errors: a table of another size, one value of which is not finite, or whose squares are not.
  static result<token_index> create(std::span<const float> table, std::int32_t width,
                                    std::size_t places) {
    if (auto bad = validate(table, width)) return *std::move(bad);
    token_index out(places);
    if (table.empty()) return out;
    out.table_ = table;
    out.width_ = static_cast<std::size_t>(width);
    for (std::size_t t = 0; t < table.size() / out.width_; ++t) {
      const auto squares = out.dot(t, t);
      if (!std::isfinite(squares))
        return error{"embeddings of token " + std::to_string(t) +
                     " are not finite, accepted: finite values"};
      out.inverse_norms_.push_back(squares > 0 ? 1.0F / std::sqrt(squares) : 0.0F);
    }
    return out;
  }
  static validation validate(std::span<const float> table, std::int32_t width) {
    if (table.empty()) return std::nullopt;
    if (width < 1 || table.size() % static_cast<std::size_t>(width) != 0)
      return error{"embeddings of " + std::to_string(table.size()) + " values and width " +
                   std::to_string(width) + ", accepted: vocabulary x width values"};
    return std::nullopt;
  }
  /// Bytes of `places` places, for an embedding table of so many rows.
  [[nodiscard]] static std::uint64_t bytes_for(std::uint64_t places, std::uint64_t rows) noexcept {
    return 4 * std::bit_ceil(2 * places) + places * (sizeof(group) + 16) + 4 * rows;
  }

  /// Makes the place the newest of the token's. Pre: it belongs to no token.
  void add(std::uint32_t place, std::int32_t token) noexcept {
    HOTSET_ASSERT(group_[place] == none);
    auto& number = slots_[slot_of(token)];
    if (number == none) {
      number = free_.back();
      free_.pop_back();
      groups_[number] = {token, none, none, 0};
    }
    auto& to = groups_[number];
    group_[place] = number;
    before_[place] = to.last;
    next_[place] = none;
    (to.last == none ? to.first : next_[to.last]) = place;
    to.last = place;
    ++to.count;
  }
  /// Does nothing if the place belongs to no token.
  void remove(std::uint32_t place) noexcept {
    const auto number = group_[place];
    if (number == none) return;
    auto& of = groups_[number];
    (before_[place] == none ? of.first : next_[before_[place]]) = next_[place];
    (next_[place] == none ? of.last : before_[next_[place]]) = before_[place];
    group_[place] = none;
    if (--of.count > 0) return;
    erase(slot_of(of.token));
    free_.push_back(number);
  }
  /// The group of places with this one's token, a number below that of the places; none if it belongs to no token.
  [[nodiscard]] std::uint32_t group_of(std::uint32_t place) const noexcept { return group_[place]; }
  /// Places of a group.
  [[nodiscard]] std::uint32_t count_of(std::uint32_t number) const noexcept {
    return groups_[number].count;
  }

  /// The oldest place of the token id and 1; failing that, the oldest of the token id whose embedding is nearest, and
  /// their cosine, ties to the lower place; none if nothing is known.
  [[nodiscard]] map_kernels::best_of match(std::int32_t token) const noexcept {
    map_kernels::best_of best;
    if (token < 0) return best;
    if (const auto number = slots_[slot_of(token)]; number != none)
      return {1.0F, groups_[number].first};
    if (!knows(token)) return best;
    for (const auto& one : groups_) {
      if (one.count == 0 || !knows(one.token)) continue;
      const auto found = cosine(token, one.token);
      if (found > best.score || (found == best.score && one.first < best.place))
        best = {found, one.first};
    }
    return best;
  }
  /// 1 for a token with itself, known or not; 0 where one is not known. Negative ids are no token's.
  [[nodiscard]] float cosine(std::int32_t a, std::int32_t b) const noexcept {
    if (a < 0 || b < 0) return 0.0F;
    if (a == b) return 1.0F;
    if (!knows(a) || !knows(b)) return 0.0F;
    const auto one = static_cast<std::size_t>(a);
    const auto two = static_cast<std::size_t>(b);
    return dot(one, two) * inverse_norms_[one] * inverse_norms_[two];
  }

 private:
  /// The places of one token id; free while the count is 0.
  struct group {
    std::int32_t token = 0;
    std::uint32_t first = none;  ///< the oldest
    std::uint32_t last = none;
    std::uint32_t count = 0;
  };

  explicit token_index(std::size_t places)
      : slots_(std::bit_ceil(2 * places), none),
        groups_(places),
        next_(places, none),
        before_(places, none),
        group_(places, none) {
    for (auto number = places; number-- > 0;) free_.push_back(static_cast<std::uint32_t>(number));
  }

  [[nodiscard]] bool knows(std::int32_t token) const noexcept {
    return token >= 0 && static_cast<std::size_t>(token) < inverse_norms_.size();
  }
  [[nodiscard]] float dot(std::size_t a, std::size_t b) const noexcept {
    return detail::dot(&table_[a * width_], &table_[b * width_], width_);
  }
  [[nodiscard]] std::size_t home(std::int32_t token) const noexcept {
    const auto hash =
        static_cast<std::uint64_t>(static_cast<std::uint32_t>(token)) * 0x9e3779b97f4a7c15U;
    return static_cast<std::size_t>(hash >> 32U) & (slots_.size() - 1);
  }
  /// Where the token's group is, or would be: half of the table is empty, so the search ends.
  [[nodiscard]] std::size_t slot_of(std::int32_t token) const noexcept {
    auto slot = home(token);
    while (slots_[slot] != none && groups_[slots_[slot]].token != token)
      slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }
  /// Moves up what would no longer be found.
  void erase(std::size_t hole) noexcept {
    const auto mask = slots_.size() - 1;
    for (auto slot = (hole + 1) & mask; slots_[slot] != none; slot = (slot + 1) & mask) {
      const auto wanted = home(groups_[slots_[slot]].token);
      if (((slot - wanted) & mask) < ((slot - hole) & mask)) continue;
      slots_[hole] = slots_[slot];
      hole = slot;
    }
    slots_[hole] = none;
  }

  std::span<const float> table_;
  std::size_t width_ = 0;
  std::vector<float> inverse_norms_;  ///< [vocabulary]
  std::vector<std::uint32_t> slots_;  ///< numbers of groups
  std::vector<group> groups_;
  std::vector<std::uint32_t> next_;    ///< [place] the next newer of the same token
  std::vector<std::uint32_t> before_;  ///< [place]
  std::vector<std::uint32_t> group_;   ///< [place]
  std::vector<std::uint32_t> free_;    ///< numbers of free groups, the next one last
};

}  // namespace hotset
