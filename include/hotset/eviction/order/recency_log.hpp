// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots in order of use, one log per pool: a use is appended, and the slot's earlier entry becomes stale.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"

namespace hotset {

/// A use is two independent stores. A linked list would rewire neighbours that the use before has just rewired.
/// Complexity: O(1) amortised. A choice also skips ineligible slots, or examines all eligible ones. A use that finds
/// its log full compacts it, O(length of the log).
/// Memory: 4 bytes per slot; 40 per pool, and 16 to 33 for each slot that the pool could ever hold.
class recency_log {
 public:
  recency_log() = default;
  explicit recency_log(const pool_layout& layout)
      : place_(layout.slots(), nowhere), rings_(layout.pools()) {
    std::uint32_t places = 0;
    std::uint32_t longest = 0;
    for (const auto p : rings_.ids()) {
      const auto length = static_cast<std::uint32_t>(std::bit_ceil(spread * layout.most_slots(p)));
      auto& ring = rings_[p];
      ring.first = places;
      ring.mask = length - 1;
      ring.start = ring.end = ring.chosen_end = first_position;
      ring.first_slot = layout.at(p).first_slot;
      ring.end_slot = ring.first_slot + layout.at(p).slots;
      places += length;
      longest = std::max(longest, length);
    }
    log_.resize(places + window, slot_id{});
    valid_.resize((std::size_t{longest} + 63) / 64);
  }

  /// Makes the slot the most recent of the pool. Pre: it is in this pool's order or in none.
  void touch(pool_id pool, slot_id slot) noexcept {
    take_in(rings_[pool], slot);
    touch(pool, std::span(&slot, 1));
  }
  /// Makes several distinct slots the most recent, in this order. Pre: they are in this pool's order, or `replace`
  /// was called for them.
  void touch(pool_id pool, std::span<const slot_id> slots) noexcept {
    auto& ring = rings_[pool];
    if (ring.mask - (ring.end - ring.start) < slots.size()) [[unlikely]]
      gather(ring);
    HOTSET_ASSERT(ring.mask - (ring.end - ring.start) >= slots.size());
    const auto first = ring.first;
    const auto mask = ring.mask;
    auto end = ring.end;
    for (const auto slot : slots) {
      const auto at = first + (end++ & mask);
      place_[slot] = at;
      log_[at] = slot;
    }
    ring.end = end;
  }
  /// Call it before these fills' slots are touched. If the fills use all slots of the last choice, no later choice
  /// examines those entries again.
  void replace(pool_id pool, std::span<const fill> fills) noexcept {
    auto& ring = rings_[pool];
    const auto span = ring.chosen_end - ring.start;
    std::uint32_t replaced = 0;
    for (const auto& f : fills) {
      const auto place = place_[f.slot] - ring.first;
      const bool is_chosen = ((place - ring.start) & ring.mask) < span;
      replaced += (is_chosen & (place <= ring.mask)) ? 1U : 0U;
      if (f.victim == no_key) take_in(ring, f.slot);
    }
    if (replaced == ring.chosen) ring.start = ring.chosen_end;
  }
  /// Removes a slot from its order, if it is in one.
  void erase(slot_id slot) noexcept { place_[slot] = nowhere; }
  /// Puts `to` in the place of `from`, which is then in no order. Pre: `from` is in an order, `to` in none.
  /// Complexity: O(pools).
  void take_place(slot_id from, slot_id to) noexcept {
    HOTSET_ASSERT(contains(from) && !contains(to));
    const auto at = place_[from];
    log_[at] = to;
    place_[to] = at;
    place_[from] = nowhere;
    for (auto& ring : rings_)
      if (at - ring.first < ring.length()) take_in(ring, to);
  }
  [[nodiscard]] bool contains(slot_id slot) const noexcept { return place_[slot] != nowhere; }

  /// Writes the eligible slots of a pool, oldest first; returns how many. The rest of `out` is undefined.
  std::size_t select(pool_id pool, const slot_mask& eligible, std::span<slot_id> out) noexcept {
    if (out.empty()) return 0;
    auto& ring = rings_[pool];
    const bool may_rank = out.size() <= most_ranked;
    if (may_rank && ring.is_protected) return rank(ring, eligible, out);
    std::size_t count = 0;
    std::uint32_t valid = 0;
    auto at = ring.start;
    while (at != ring.end && count < out.size()) {
      if (may_rank && valid - count >= most_ineligible) return rank(ring, eligible, out);
      const auto place = ring.place_at(at);
      const auto length = std::min({window, ring.end - at, ring.length() - (place - ring.first)});
      auto left = valid_of(place, length);
      if (at == ring.start) ring.start += lowest(left, length);
      for (; left != 0 && count < out.size(); left &= left - 1, ++valid) {
        const auto slot = log_[place + lowest(left, length)];
        out[count] = slot;
        count += eligible.test(slot) ? 1U : 0U;
      }
      at += lowest(left, length);
    }
    ring.chosen_end = at;
    ring.chosen = valid;
    if (at - ring.start - valid > most_passed) close_up(ring, at);
    return count;
  }

 private:
  /// A log has at least this many entries for each slot that it could ever hold, so that it is rarely compacted.
  static constexpr std::size_t spread = 4;
  /// The numbers wrap after few uses, so that tests reach the wrap.
  static constexpr std::uint32_t first_position = 0U - 1024U;
  /// Stale entries that a choice skips each time. If it finds more, it closes up, which costs two stores for each
  /// earlier valid entry.
  static constexpr std::uint32_t most_passed = 24;
  /// Entries that a choice examines together, branch-free: whether a slot was used since is unpredictable.
  static constexpr std::uint32_t window = 8;
  /// Most ineligible slots that a choice skips. If there are more, examining the eligible slots is faster.
  static constexpr std::size_t most_ineligible = 16;
  /// Most slots that a choice ranks: it inserts each in a sorted list.
  static constexpr std::size_t most_ranked = 64;
  static constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();

  /// Positions count up and wrap; `place_at` maps a position to log_. No two positions of start..end share a place.
  struct ring_part {
    std::uint32_t first = 0;  ///< position in log_
    std::uint32_t mask = 0;
    std::uint32_t start = 0;  ///< all earlier entries are stale
    std::uint32_t end = 0;
    std::uint32_t chosen_end = 0;  ///< end of what the last choice read
    std::uint32_t chosen = 0;      ///< valid entries that it found there
    bool is_protected = false;     ///< the last choice would have skipped many slots
    slot_id first_slot{};          ///< with end_slot: range of slots that it can hold
    slot_id end_slot{};
    [[nodiscard]] std::uint32_t length() const noexcept { return mask + 1; }
    [[nodiscard]] std::uint32_t place_at(std::uint32_t at) const noexcept {
      return first + (at & mask);
    }
  };

  /// An entry is stale if the slot's place is another one now.
  [[nodiscard]] bool is_valid(std::uint32_t place) const noexcept {
    return place_[log_[place]] == place;
  }
  /// Bit n is set if the entry at place + n is valid and n < length.
  [[nodiscard]] std::uint32_t valid_of(std::uint32_t place, std::uint32_t length) const noexcept {
    std::uint32_t bits = 0;
    for (std::uint32_t n = 0; n < window; ++n) bits |= (is_valid(place + n) ? 1U : 0U) << n;
    return bits & ((1U << length) - 1);
  }
  /// Returns the lowest set bit, or `length`.
  [[nodiscard]] static std::uint32_t lowest(std::uint32_t bits, std::uint32_t length) noexcept {
    return static_cast<std::uint32_t>(std::countr_zero(bits | 1U << length));
  }
  /// Finds the oldest slots by their places.
  [[gnu::noinline]] std::size_t rank(ring_part& ring, const slot_mask& eligible,
                                     std::span<slot_id> out) const noexcept {
    const auto place_in = [&](slot_id slot) { return place_[slot] - ring.first; };
    const auto newness = [&](slot_id slot) { return (place_in(slot) - ring.start) & ring.mask; };
    std::size_t count = 0;
    std::uint32_t newest = 0;  // newness of the newest chosen slot
    const auto words = eligible.words();
    for (auto w = index_of(ring.first_slot) / 64; w * 64 < index_of(ring.end_slot); ++w)
      for (auto left = words[w]; left != 0; left &= left - 1) {
        const auto slot =
            static_cast<slot_id>(w * 64 + static_cast<unsigned>(std::countr_zero(left)));
        if (place_in(slot) >= ring.length()) continue;  // in another pool's order, or in none
        const auto own = newness(slot);
        if (count == out.size() && own > newest) continue;
        auto n = count < out.size() ? count++ : count - 1;
        for (; n > 0 && own < newness(out[n - 1]); --n) out[n] = out[n - 1];
        out[n] = slot;
        newest = newness(out[count - 1]);
      }
    ring.chosen_end = ring.start;
    ring.chosen = 0;
    ring.is_protected = count < out.size() || newest >= most_ranked;
    return count;
  }
  /// Moves the valid entries before a position up to it, so that stale entries there are not skipped again.
  [[gnu::noinline]] void close_up(ring_part& ring, std::uint32_t end) noexcept {
    auto to = end;
    for (auto at = end; at != ring.start;) {
      const auto from = ring.place_at(--at);
      if (!is_valid(from)) continue;
      const auto place = ring.place_at(--to);
      log_[place] = log_[from];
      place_[log_[place]] = place;
    }
    ring.start = to;
  }
  /// A pool's slots are a range until a quota change brings in another pool's slot.
  void take_in(ring_part& ring, slot_id slot) const noexcept {
    if (slot >= ring.first_slot && slot < ring.end_slot) return;
    ring.first_slot = slot_id{};
    ring.end_slot = static_cast<slot_id>(place_.size());
  }
  /// Removes stale entries. Finds the valid ones through the slots, which are fewer than the entries.
  [[gnu::noinline]] void gather(ring_part& ring) noexcept {
    const auto words = std::span(valid_).first((std::size_t{ring.length()} + 63) / 64);
    std::ranges::fill(words, 0);
    for (auto slot = ring.first_slot; slot != ring.end_slot; ++slot) {
      const auto at = place_[slot] - ring.first;
      if (at < ring.length()) words[at / 64] |= std::uint64_t{1} << at % 64;
    }
    const auto begin = ring.start & ring.mask;
    const auto before = (std::uint64_t{1} << begin % 64) - 1;
    const auto first = begin / 64;
    ring.end = ring.chosen_end = ring.start;
    ring.chosen = 0;
    ring.is_protected = false;
    move_up(ring, first, words[first] & ~before);
    for (std::size_t w = first + 1; w < words.size(); ++w) move_up(ring, w, words[w]);
    for (std::size_t w = 0; w < first; ++w) move_up(ring, w, words[w]);
    move_up(ring, first, words[first] & before);
  }
  /// Appends the slots at the places of a word.
  void move_up(ring_part& ring, std::size_t word, std::uint64_t places) noexcept {
    for (; places != 0; places &= places - 1) {
      const auto slot =
          log_[ring.first + word * 64 + static_cast<unsigned>(std::countr_zero(places))];
      const auto place = ring.place_at(ring.end++);
      log_[place] = slot;
      place_[slot] = place;
    }
  }

  per_slot<std::uint32_t> place_;     ///< [slot] place of its last entry in log_, or `nowhere`
  std::vector<slot_id> log_;          ///< one ring per pool, adjacent
  std::vector<std::uint64_t> valid_;  ///< scratch: one bit per place of a ring
  per_pool<ring_part> rings_;
};

}  // namespace hotset
