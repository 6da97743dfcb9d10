// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which places hold something of a token id, the oldest first.
///
/// Rule: the places of a token id form a list in order of arrival; a table with open addressing finds the list.
/// Cost: add and remove O(1) expected. Memory: 36 to 52 bytes per place, taken once.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// Threads: compatible. Nothing allocates after construction.
class token_places {
 public:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  /// The places of one token id. Groups have numbers below that of the places.
  struct group {
    std::int32_t token = 0;
    std::uint32_t first = none;  ///< the oldest
    std::uint32_t last = none;
    std::uint32_t count = 0;
  };

  /// Pre: 1 <= places <= 2^30.
  explicit token_places(std::size_t places)
      : table_(std::bit_ceil(2 * places), none),
        groups_(places),
        next_(places),
        before_(places),
        group_(places),
        free_(places) {
    clear();
  }

  /// Bytes of `places` places.
  [[nodiscard]] static std::uint64_t bytes_for(std::uint64_t places) noexcept {
    return 4 * std::bit_ceil(2 * places) + places * (sizeof(group) + 16);
  }

  /// The place now is the newest of the token's. Pre: it is nobody's.
  void add(std::uint32_t place, std::int32_t token) noexcept {
    HOTSET_ASSERT(group_[place] == none);
    auto slot = slot_of(token);
    if (table_[slot] == none) {
      table_[slot] = free_[--free_count_];
      groups_[table_[slot]] = {token, none, none, 0};
    }
    const auto number = table_[slot];
    auto& to = groups_[number];
    group_[place] = number;
    before_[place] = to.last;
    next_[place] = none;
    (to.last == none ? to.first : next_[to.last]) = place;
    to.last = place;
    ++to.count;
  }
  /// Nothing happens where the place is nobody's.
  void remove(std::uint32_t place) noexcept {
    const auto number = group_[place];
    if (number == none) return;
    auto& of = groups_[number];
    (before_[place] == none ? of.first : next_[before_[place]]) = next_[place];
    (next_[place] == none ? of.last : before_[next_[place]]) = before_[place];
    group_[place] = none;
    if (--of.count > 0) return;
    erase(slot_of(of.token));
    free_[free_count_++] = number;
  }
  void clear() noexcept {
    std::fill(table_.begin(), table_.end(), none);
    std::fill(group_.begin(), group_.end(), none);
    std::fill(groups_.begin(), groups_.end(), group{});
    free_count_ = free_.size();
    // The lowest number is given first.
    for (std::size_t i = 0; i < free_.size(); ++i)
      free_[i] = static_cast<std::uint32_t>(free_.size() - 1 - i);
  }

  /// The number of the token's group; none if it has no place.
  [[nodiscard]] std::uint32_t find(std::int32_t token) const noexcept {
    return table_[slot_of(token)];
  }
  /// The number of the group that a place is in; none if it is nobody's.
  [[nodiscard]] std::uint32_t group_of(std::uint32_t place) const noexcept { return group_[place]; }
  /// Groups by number; those with a count of 0 are free. Pre: number < places.
  [[nodiscard]] const group& at(std::uint32_t number) const noexcept { return groups_[number]; }
  [[nodiscard]] std::size_t places() const noexcept { return groups_.size(); }

 private:
  [[nodiscard]] std::size_t home(std::int32_t token) const noexcept {
    const auto hash =
        static_cast<std::uint64_t>(static_cast<std::uint32_t>(token)) * 0x9e3779b97f4a7c15U;
    return static_cast<std::size_t>(hash >> 32U) & (table_.size() - 1);
  }
  /// Where the token's group is, or would be: half of the table is empty, so the search ends.
  [[nodiscard]] std::size_t slot_of(std::int32_t token) const noexcept {
    auto slot = home(token);
    while (table_[slot] != none && groups_[table_[slot]].token != token)
      slot = (slot + 1) & (table_.size() - 1);
    return slot;
  }
  /// Moves up what would no longer be found.
  void erase(std::size_t hole) noexcept {
    const auto mask = table_.size() - 1;
    for (auto slot = (hole + 1) & mask; table_[slot] != none; slot = (slot + 1) & mask) {
      const auto wanted = home(groups_[table_[slot]].token);
      if (((slot - wanted) & mask) < ((slot - hole) & mask)) continue;
      table_[hole] = table_[slot];
      hole = slot;
    }
    table_[hole] = none;
  }

  std::vector<std::uint32_t> table_;  ///< numbers of groups
  std::vector<group> groups_;
  std::vector<std::uint32_t> next_;    ///< [place] the next newer of the same token
  std::vector<std::uint32_t> before_;  ///< [place]
  std::vector<std::uint32_t> group_;   ///< [place]
  std::vector<std::uint32_t> free_;    ///< numbers of free groups
  std::size_t free_count_ = 0;
};

}  // namespace hotset
