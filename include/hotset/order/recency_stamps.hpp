// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots of small pools in order of use: a stamp per slot, which are sorted when the oldest are wanted.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/numbers/rank_kernels.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"

namespace hotset::inline v0 {

/// A use is one store that waits for no other, where a list rewires neighbours that the use before it rewired.
/// A pool is its first range of slots: it cannot take in others.
/// A use only makes a stamp larger: what was sorted once stays in order, but for those used since, which are behind all of it.
/// Complexity: O(1), but `walk` O(pool) for each slot it gives, and `select` O(pool^2), vectorised (rank_kernels), when it has
/// come to the end of what was sorted; uses of just what is given up lengthen that. Memory: 16 bytes per slot, 72 per pool.
class recency_stamps {
 public:
  /// Above so many slots the sort costs more than a list's upkeep.
  static constexpr std::int32_t small_pool = 64;
  [[nodiscard]] static bool suits(const pool_layout& layout) noexcept {
    for (std::size_t p = 0; p < layout.pools(); ++p)
      if (layout.at(static_cast<pool_id>(p)).slots > small_pool) return false;
    return true;
  }

  recency_stamps() = default;
  /// Pre: suits(layout).
  explicit recency_stamps(const pool_layout& layout)
      : stamp_(layout.slots(), absent), sorted_(room * layout.slots()), pools_(layout.pools()) {
    for (const auto p : pools_.ids()) {
      const auto& pool = layout.at(p);
      pools_[p] = {.first = pool.first_slot, .slots = pool.slots};
    }
  }

  [[nodiscard]] bool covers(pool_id pool, slot_id slot) const noexcept {
    const auto& range = pools_[pool];
    return slot >= range.first && slot < range.first + range.slots;
  }
  /// Makes the slot the last of its pool. Pre: covers(pool, slot).
  void touch(pool_id pool, slot_id slot) noexcept { touch(pool, std::span(&slot, 1)); }
  /// The same for several distinct slots, in this order.
  void touch(pool_id pool, std::span<const slot_id> slots) noexcept {
    auto& range = pools_[pool];
    HOTSET_ASSERT(slots.size() <= static_cast<std::size_t>(range.slots));
    if (range.clock > last_clock) [[unlikely]]
      renumber(range);
    auto& sorted = range.sorted;
    if (sorted.is_whole & (sorted.given_up == slots.size())) return append(range, slots);
    write_stamps(range, slots, [](std::int32_t) {});
    sorted.is_whole = false;
    sorted.given_up = 0;
  }
  void erase(slot_id slot) noexcept { stamp_[slot] = absent; }
  /// Complexity: O(pools).
  [[nodiscard]] bool same_pool(slot_id one, slot_id other) const noexcept {
    for (const auto p : each<pool_id>(pools_.size()))
      if (covers(p, one)) return covers(p, other);
    return false;
  }
  /// Slot `to` has the time of `from`, which then has none. Pre: same_pool(from, to), `to` has none.
  void take_place(slot_id from, slot_id to) noexcept {
    auto& old = stamp_[from];
    stamp_[to] = old + (to - from);
    old = absent;
    for (auto& range : pools_) range.sorted = {};  // an old stamp of a new place
  }

  [[nodiscard]] std::size_t pools() const noexcept { return pools_.size(); }
  /// Calls visit(slot) for the slots of a pool, oldest first.
  template <class Visit>
  void walk(pool_id pool, Visit visit) const noexcept {
    const auto& range = pools_[pool];
    for (auto s = oldest_after(range, 0); s != absent; s = oldest_after(range, s))
      visit(range.first + place(s));
  }
  /// Writes the eligible slots of a pool, oldest first; returns how many.
  std::size_t select(pool_id pool, const slot_mask& eligible, std::span<slot_id> out) noexcept {
    auto& range = pools_[pool];
    range.sorted.chosen = 0;
    if (range.scans != 0) return select_eligible(range, eligible, out);
    const auto count = take_sorted(range, eligible, out);
    if (count == out.size()) return count;
    if (range.scans != 0) return select_eligible(range, eligible, out);
    sort(range);
    return take_sorted(range, eligible, out);
  }
  /// The slots that were selected last, `count` of them, are about to be touched. Only makes the next choice faster; ignored if the last
  /// one was of others.
  void give_up(pool_id pool, std::size_t count, slot_id last) noexcept {
    auto& range = pools_[pool];
    auto& sorted = range.sorted;
    if (count != sorted.chosen) return;
    if (range.first + place(sorted_of(range)[sorted.taken - 1]) != last) return;
    sorted.begin = sorted.taken;
    sorted.chosen = 0;
    sorted.given_up = count;
  }

 private:
  /// Of a pool's places in sorted_: what was sorted and not seen to be used since.
  struct sorted_part {
    std::size_t begin = 0, end = 0;
    std::size_t chosen = 0;  ///< by the last choice, all that was not used since up to `taken`
    std::size_t taken = 0;
    std::size_t given_up = 0;  ///< of the chosen, to be touched next
    bool is_whole = false;     ///< it names all slots of the order but those given up
  };
  struct pool_range {
    slot_id first{};
    std::int32_t slots = 0;
    std::int32_t clock = 0;  ///< multiple of `unit`
    sorted_part sorted{};
    /// So many choices to come look among all for what is eligible, and sort nothing: of late few were, as under a protection.
    std::uint32_t scans = 0;
  };
  /// g++ 12 does not vectorise the scan of plain integers.
  using four [[gnu::vector_size(16)]] = std::int32_t;
  static constexpr std::uint32_t many_scans = 16;
  static constexpr std::int32_t unit = small_pool;
  /// Times as many places as slots: what is appended seldom moves the rest to the front.
  static constexpr std::size_t room = 3;
  static constexpr std::int32_t absent = std::numeric_limits<std::int32_t>::max();
  static constexpr std::int32_t last_clock = absent - 2 * unit * small_pool;

  [[nodiscard]] static std::int32_t place(std::int32_t stamp) noexcept {
    return stamp & (unit - 1);
  }
  [[nodiscard]] std::int32_t* sorted_of(const pool_range& range) noexcept {
    return sorted_.data() + room * index_of(range.first);
  }
  /// Stamps slots as used, in this order; calls written(stamp) for each.
  template <class Written>
  void write_stamps(pool_range& range, std::span<const slot_id> slots, Written written) noexcept {
    std::int32_t* const stamps = stamp_.data();
    auto next =
        range.clock - number(range.first);  // a stamp is the time of use and the slot's place
    for (const auto slot : slots) {
      next += unit;
      stamps[static_cast<std::uint32_t>(slot)] = next + number(slot);
      written(next + number(slot));
    }
    range.clock = next + number(range.first);
  }
  [[nodiscard]] std::int32_t oldest_after(const pool_range& range,
                                          std::int32_t after) const noexcept {
    return lowest_above(
        after, {stamp_.data() + index_of(range.first), static_cast<std::size_t>(range.slots)});
  }
  /// The lowest of these stamps above `after`, or `absent`.
  static std::int32_t lowest_above(std::int32_t after,
                                   std::span<const std::int32_t> stamps) noexcept {
    const four afters = {after, after, after, after};
    four least = {absent, absent, absent, absent};
    std::size_t i = 0;
    for (; i + 4 <= stamps.size(); i += 4) {
      four s;
      std::memcpy(&s, stamps.data() + i, sizeof s);
      const four lower = (s > afters) & (s < least);
      least = (s & lower) | (least & ~lower);
    }
    auto lowest = std::min(std::min(least[0], least[1]), std::min(least[2], least[3]));
    for (; i < stamps.size(); ++i)
      lowest = stamps[i] > after ? std::min(lowest, stamps[i]) : lowest;
    return lowest;
  }
  /// From what was sorted, as far as it goes. Whether a slot was used since is anyone's guess: what is found is written over.
  std::size_t take_sorted(pool_range& range, const slot_mask& eligible,
                          std::span<slot_id> out) noexcept {
    const std::int32_t* const sorted = sorted_of(range);
    const std::int32_t* const stamps = stamp_.data() + index_of(range.first);
    auto& [begin, end, chosen, taken, given_up, is_whole] = range.sorted;
    // Who gives up what it chose has left nothing to pass over.
    if (taken != begin)
      while (begin != end && stamps[place(sorted[begin])] != sorted[begin]) ++begin;
    const auto fitting = eligible.bits_from(range.first);
    std::size_t count = 0;
    std::size_t passed = 0;
    auto n = begin;
    for (; n != end && count < out.size(); ++n) {
      const auto stamp = sorted[n];
      const auto unused = stamps[place(stamp)] == stamp ? 1U : 0U;
      const auto fits = static_cast<std::uint32_t>(fitting >> place(stamp)) & 1U;
      out[count] = range.first + place(stamp);
      count += unused & fits;
      passed += unused & ~fits;
    }
    if (count < out.size()) out[count] = no_slot;  // what was tried there is no victim
    chosen = passed == 0 ? count : 0;
    taken = n;
    if (passed > static_cast<std::size_t>(range.slots) / 4) range.scans = many_scans;
    return count;
  }
  /// Where many are not eligible, as under a protection, they are sorted out first.
  [[gnu::noinline]] std::size_t select_eligible(pool_range& range, const slot_mask& eligible,
                                                std::span<slot_id> out) const noexcept {
    std::array<std::int32_t, small_pool> kept;
    std::size_t candidates = 0;
    for (slot_id slot = range.first; slot < range.first + range.slots; ++slot) {
      kept[candidates] = stamp_[slot];
      candidates += eligible.test(slot) ? 1U : 0U;
    }
    range.scans =
        candidates * 2 < static_cast<std::size_t>(range.slots) ? many_scans : range.scans - 1;
    std::size_t count = 0;
    for (std::int32_t last = 0; count < out.size(); ++count) {
      last = lowest_above(last, std::span(kept).first(candidates));
      if (last == absent) break;
      out[count] = range.first + place(last);
    }
    return count;
  }
  /// Puts each stamp behind those that are lower.
  [[gnu::noinline]] void sort(pool_range& range) noexcept {
    const auto slots = static_cast<std::size_t>(range.slots);
    std::array<std::uint32_t, small_pool> keys;
    std::array<std::uint32_t, small_pool> greater;
    for (std::size_t i = 0; i < slots; ++i)
      keys[i] = static_cast<std::uint32_t>(stamp_.data()[index_of(range.first) + i]);
    rank_kernels::rank(std::span(keys).first(slots), greater, level_);
    auto* const sorted = sorted_of(range);
    std::size_t present = 0;
    for (std::size_t i = 0; i < slots; ++i) {
      sorted[slots - 1 - greater[i]] = static_cast<std::int32_t>(keys[i]);
      present += keys[i] == absent ? 0U : 1U;
    }
    range.sorted = {0, present, 0, 0, 0, true};
  }
  /// What was given up alone is used: it comes last, and nothing need be sorted.
  [[gnu::noinline]] void append(pool_range& range, std::span<const slot_id> slots) noexcept {
    auto* const sorted = sorted_of(range);
    auto& [begin, end, chosen, taken, given_up, is_whole] = range.sorted;
    if (end + slots.size() > room * static_cast<std::size_t>(range.slots)) {
      std::copy(sorted + begin, sorted + end, sorted);
      end -= begin;
      begin = taken = 0;
    }
    write_stamps(range, slots, [to = sorted + end](std::int32_t stamp) mutable { *to++ = stamp; });
    end += slots.size();
    given_up = 0;
  }
  /// Brings the clock back to the number of slots. A new stamp is at most the old one, so that the walk goes on.
  [[gnu::noinline]] void renumber(pool_range& range) noexcept {
    range.clock = 0;
    range.sorted = {};
    for (auto s = oldest_after(range, 0); s != absent; s = oldest_after(range, s)) {
      range.clock += unit;
      const auto slot = range.first + place(s);
      stamp_[slot] = range.clock + place(s);
    }
  }

  per_slot<std::int32_t> stamp_;  ///< [slot] time of its last use * unit + its place in the pool
  std::vector<std::int32_t> sorted_;  ///< [slot, room] stamps of a pool as they were, ascending
  per_pool<pool_range> pools_;
  vector_level level_ = best_vector_level();
};

}  // namespace hotset::inline v0
