// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The lowest ranks of a small pool, found by looking at all of them.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/ids.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/eviction/order/slot_rank.hpp"

namespace hotset {

/// A slot and its rank, as they are compared.
struct ranked_slot {
  slot_rank rank;
  std::uint32_t slot = 0;
};

/// The most slots of which each is compared with each.
inline constexpr std::size_t most_counted = 8;
/// Writes the slots of `found` in ascending rank; returns how many. Vacant ones are left out. Counts for each how many are
/// below it: nothing is guessed. Pre: found.size() <= most_counted. Complexity: O(found^2).
inline std::size_t take_by_count(std::span<const ranked_slot> found,
                                 std::span<slot_id> out) noexcept {
  std::array<std::uint32_t, most_counted> below;
  for (std::size_t n = 0; n < found.size(); ++n) {
    const auto rank = found[n].rank;
    std::uint32_t lower = 0;
    for (std::size_t m = 0; m < n; ++m) {
      const auto less = static_cast<std::uint32_t>(rank < found[m].rank);
      below[m] += less;
      lower += 1 - less;
    }
    below[n] = lower;
  }
  std::array<std::uint32_t, most_counted> order;
  for (std::uint32_t n = 0; n < found.size(); ++n) order[below[n]] = n;
  std::size_t count = 0;
  for (; count < std::min(out.size(), found.size()); ++count) {
    const auto& e = found[order[count]];
    if (e.rank == vacant_rank) break;
    out[count] = static_cast<slot_id>(e.slot);
  }
  return count;
}

/// Writes the slots of `found` in ascending rank, which is left in disorder; returns how many. Vacant ones are left out.
/// Takes the smallest again and again: no branch need depend on the data, which is worth more here than fewer comparisons.
/// Complexity: O(found * out), and O(found^2) for the few of which each is compared with each.
inline std::size_t take_lowest(std::span<ranked_slot> of, std::span<slot_id> out) noexcept {
  if (of.size() <= most_counted) return take_by_count(of, out);
  ranked_slot* const found = of.data();
  std::size_t size = of.size();
  std::size_t count = 0;
  while (count < out.size() && size > 0) {
    std::size_t best = 0;
    slot_rank least = found[0].rank;
    for (std::size_t n = 1; n < size; ++n) {
      const auto rank = found[n].rank;
      const bool less = rank < least;
      least.key = less ? rank.key : least.key;
      least.position = less ? rank.position : least.position;
      best = less ? n : best;
    }
    if (least == vacant_rank) break;
    out[count++] = static_cast<slot_id>(found[best].slot);
    found[best] = found[--size];
  }
  return count;
}

/// Writes the eligible ones of `slots` in ascending rank; returns how many. Vacant slots are left out.
/// Shapes: ranks [all slots]; scratch: room for slots.size() + 1.
/// Complexity: O(slots * (1 + out)).
inline std::size_t scan_ranks(std::span<const slot_id> slots, std::span<const slot_rank> ranks,
                              const slot_mask& eligible, std::span<ranked_slot> scratch,
                              std::span<slot_id> out) noexcept {
  ranked_slot* const found = scratch.data();
  const auto words = eligible.words();
  std::size_t size = 0;
  for (const auto slot : slots) {
    const auto s = index_of(slot);
    found[size] = {ranks[s], static_cast<std::uint32_t>(slot)};
    size += static_cast<std::size_t>((words[s / 64] >> (s % 64)) & 1U);
  }
  return take_lowest(scratch.first(size), out);
}

}  // namespace hotset
