// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots of small pools in order of use: a stamp per slot, and a scan when the oldest are wanted.

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
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"

namespace hotset::inline v0 {

/// A use is one store that waits for no other, where a list rewires neighbours that the use before it rewired.
/// A pool is its first range of slots: it cannot take in others.
/// Complexity: O(1), but `select` and `walk` O(pool) for each slot they give, four slots at a time.
/// Memory: 4 bytes per slot, 12 per pool.
class recency_stamps {
 public:
  /// Above so many slots a scan costs more than a list's upkeep.
  static constexpr std::int32_t small_pool = 64;
  [[nodiscard]] static bool suits(const pool_layout& layout) noexcept {
    for (std::size_t p = 0; p < layout.pools(); ++p)
      if (layout.at(static_cast<pool_id>(p)).slots > small_pool) return false;
    return true;
  }

  recency_stamps() = default;
  /// Pre: suits(layout).
  explicit recency_stamps(const pool_layout& layout)
      : stamp_(layout.slots(), absent), pools_(layout.pools()) {
    for (const auto p : pools_.ids()) {
      const auto& pool = layout.at(p);
      pools_[p] = {pool.first_slot, pool.slots, 0};
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
    std::int32_t* const stamp = stamp_.data();
    auto next =
        range.clock - number(range.first);  // a stamp is the time of use and the slot's place
    for (const auto slot : slots) {
      next += unit;
      stamp[static_cast<std::uint32_t>(slot)] = next + number(slot);
    }
    range.clock = next + number(range.first);
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
  std::size_t select(pool_id pool, const slot_mask& eligible,
                     std::span<slot_id> out) const noexcept {
    const auto& range = pools_[pool];
    std::size_t count = 0;
    std::int32_t last = 0;
    while (count < out.size()) {
      last = oldest_after(range, last);
      if (last == absent) return count;
      const auto slot = range.first + place(last);
      if (!eligible.test(slot))
        return count + select_rest(range, last, eligible, out.subspan(count));
      out[count++] = slot;
    }
    return count;
  }

 private:
  struct pool_range {
    slot_id first{};
    std::int32_t slots = 0;
    std::int32_t clock = 0;  ///< multiple of `unit`
  };
  /// g++ 12 does not vectorise the scan of plain integers.
  using four [[gnu::vector_size(16)]] = std::int32_t;
  static constexpr std::int32_t unit = small_pool;
  static constexpr std::int32_t absent = std::numeric_limits<std::int32_t>::max();
  static constexpr std::int32_t last_clock = absent - 2 * unit * small_pool;

  [[nodiscard]] static std::int32_t place(std::int32_t stamp) noexcept {
    return stamp & (unit - 1);
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
  /// Those after `last`; where many are not eligible, as under a protection, they are sorted out first.
  [[gnu::noinline]] std::size_t select_rest(const pool_range& range, std::int32_t last,
                                            const slot_mask& eligible,
                                            std::span<slot_id> out) const noexcept {
    std::array<std::int32_t, small_pool> kept;
    std::size_t candidates = 0;
    for (slot_id slot = range.first; slot < range.first + range.slots; ++slot) {
      kept[candidates] = stamp_[slot];
      candidates += eligible.test(slot) ? 1U : 0U;
    }
    std::size_t count = 0;
    while (count < out.size()) {
      last = lowest_above(last, std::span(kept).first(candidates));
      if (last == absent) break;
      out[count++] = range.first + place(last);
    }
    return count;
  }
  /// Brings the clock back to the number of slots. A new stamp is at most the old one, so that the walk goes on.
  [[gnu::noinline]] void renumber(pool_range& range) noexcept {
    range.clock = 0;
    for (auto s = oldest_after(range, 0); s != absent; s = oldest_after(range, s)) {
      range.clock += unit;
      const auto slot = range.first + place(s);
      stamp_[slot] = range.clock + place(s);
    }
  }

  per_slot<std::int32_t> stamp_;  ///< [slot] time of its last use * unit + its place in the pool
  per_pool<pool_range> pools_;
};

}  // namespace hotset::inline v0
