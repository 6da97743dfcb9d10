// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots in order of use, one log per pool: a use is appended, and the slot's earlier entry becomes stale.

#include <algorithm>
#include <array>
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

/// A use is two independent stores. A linked list would rewire neighbours that the use before has just rewired. The
/// oldest entries are read ahead, so that the end of a choice is predictable. Ineligible slots are set aside until
/// they are eligible or used: the next choice goes on behind them.
/// Complexity: O(1) amortised; a choice after slots were set aside also reads a bit per slot. A use that finds its log
/// full compacts it, O(length of the log).
/// Memory: 4 bytes and one bit per slot; 168 per pool, and 16 to 33 for each slot that the pool could ever hold.
class recency_log {
 public:
  explicit recency_log(const pool_layout& layout)
      : place_(layout.slots(), nowhere), aside_(layout.slots()), rings_(layout.pools()) {
    std::uint32_t places = 0;
    for (const auto p : rings_.ids()) {
      const auto length = static_cast<std::uint32_t>(std::bit_ceil(spread * layout.most_slots(p)));
      auto& ring = rings_[p];
      ring.first = places;
      ring.mask = length - 1;
      ring.start = ring.read = ring.end = first_position;
      ring.first_slot = layout.at(p).first_slot;
      ring.end_slot = ring.first_slot + layout.at(p).slots;
      places += length;
    }
    log_.resize(places, slot_id{});
    valid_.resize(words_for(places));
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
  /// Call it before these fills' slots are touched: their entries leave what was read ahead.
  void replace(pool_id pool, std::span<const fill> fills) noexcept {
    auto& ring = rings_[pool];
    auto f = fills.begin();
    for (; f != fills.end() && ring.ahead() != 0 && f->slot == slot_at(ring, 0); ++f)
      ++ring.ahead_begin;
    for (; f != fills.end(); ++f) take_in(ring, f->slot);
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
    for (auto& ring : rings_) {
      if (!ring.has(at)) continue;
      take_in(ring, to);
      restart(ring);
    }
  }
  [[nodiscard]] bool contains(slot_id slot) const noexcept { return place_[slot] != nowhere; }

  /// Writes the eligible slots of a pool, oldest first; returns how many. The rest of `out` is undefined.
  std::size_t select(pool_id pool, const slot_mask& eligible, std::span<slot_id> out) noexcept {
    if (out.empty()) return 0;
    auto& ring = rings_[pool];
    if (ring.has_aside && ring.is_small() && out.size() <= piece) return rank(ring, eligible, out);
    if (ring.has_aside && is_any_back(ring, eligible)) restart(ring);
    for (std::size_t count = 0;;) {
      const auto wanted = std::min<std::size_t>(piece, out.size() - count);
      while (ring.ahead() < wanted && ring.read != ring.end) read_ahead(ring);
      const auto most = std::min<std::size_t>(wanted, ring.ahead());
      std::uint32_t n = 0;
      for (; n < most && is_valid(ring.place_ahead(n)) && eligible.test(slot_at(ring, n)); ++n)
        out[count + n] = slot_at(ring, n);
      if (n != most) {
        sift(ring, eligible);
      } else if (count += n; n < wanted || count == out.size()) {
        return count;
      } else {
        // The choice goes on behind these. They are eligible, so the next one starts anew unless they are used.
        for (; n != 0; --n) aside_.set(slot_at(ring, n - 1));
        ring.ahead_begin += piece;
        ring.has_aside = true;
      }
    }
  }

 private:
  /// A log has at least this many entries for each slot that it could ever hold, so that it is rarely compacted.
  static constexpr std::size_t spread = 4;
  /// The numbers wrap after few uses, so that tests reach the wrap.
  static constexpr std::uint32_t first_position = 0U - 1024U;
  /// Entries that are read together, branch-free: whether a slot was used since is unpredictable.
  static constexpr std::uint32_t piece = 16;
  static constexpr std::uint32_t held = 2 * piece;  ///< entries that a ring holds ahead
  static constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();

  /// Positions count up and wrap; `place` maps a position to log_. No two positions of start..end share a place.
  struct ring_part {
    std::uint32_t first = 0;  ///< position in log_
    std::uint32_t mask = 0;
    std::uint32_t start = 0;  ///< all earlier entries are stale
    std::uint32_t read = 0;   ///< earlier entries are stale, read ahead or set aside
    std::uint32_t end = 0;
    std::uint32_t ahead_begin = 0;  ///< counts up and wraps, as ahead_end
    std::uint32_t ahead_end = 0;
    bool has_aside = false;  ///< entries before `read` may be set aside
    slot_id first_slot{};    ///< with end_slot: range of slots that it can hold
    slot_id end_slot{};
    std::array<std::uint32_t, held> places{};  ///< of entries read ahead, oldest first
    /// In a small pool, ranking all eligible slots is faster than a choice behind those set aside.
    [[nodiscard]] bool is_small() const noexcept { return end_slot - first_slot <= 64; }
    [[nodiscard]] bool has(std::uint32_t place) const noexcept { return place - first <= mask; }
    [[nodiscard]] std::uint32_t place(std::uint32_t n) const noexcept { return first + (n & mask); }
    [[nodiscard]] std::uint32_t ahead() const noexcept { return ahead_end - ahead_begin; }
    [[nodiscard]] std::uint32_t place_ahead(std::uint32_t n) const noexcept {
      return places[(ahead_begin + n) % held];
    }
  };

  /// An entry is stale if the slot's place is another one now.
  [[nodiscard]] bool is_valid(std::uint32_t place) const noexcept {
    return place_[log_[place]] == place;
  }
  [[nodiscard]] slot_id slot_at(const ring_part& ring, std::uint32_t n) const noexcept {
    return log_[ring.place_ahead(n)];
  }
  [[gnu::noinline]] void read_ahead(ring_part& ring) const noexcept {
    auto at = ring.read;
    auto end = ring.ahead_end;
    if (!ring.has_aside)
      ring.start = ring.ahead() == 0 ? at : ring.start + newness(ring, ring.place_ahead(0));
    for (auto left = std::min(piece, ring.end - at); left != 0; --left, ++at) {
      const auto place = ring.place(at);
      ring.places[end % held] = place;
      end += is_valid(place) ? 1U : 0U;
    }
    ring.read = at;
    ring.ahead_end = end;
  }
  /// Drops stale entries that were read ahead, and sets ineligible ones aside.
  [[gnu::noinline]] void sift(ring_part& ring, const slot_mask& eligible) noexcept {
    auto kept = ring.ahead_begin;
    for (auto n = kept; n != ring.ahead_end; ++n) {
      const auto place = ring.places[n % held];
      const auto slot = log_[place];
      const bool is_old = place_[slot] == place;
      const bool is_eligible = eligible.test(slot);
      if (is_old & !is_eligible) aside_.set(slot);
      ring.has_aside |= is_old & !is_eligible;
      ring.places[kept % held] = place;
      kept += (is_old & is_eligible) ? 1U : 0U;
    }
    ring.ahead_end = kept;
  }
  /// Forgets what was read ahead and set aside.
  static void restart(ring_part& ring) noexcept {
    ring.read = ring.start;
    ring.ahead_end = ring.ahead_begin;
    ring.has_aside = false;
  }
  /// Orders the ring's places by use.
  static std::uint32_t newness(const ring_part& ring, std::uint32_t place) noexcept {
    return (place - ring.first - ring.start) & ring.mask;
  }
  /// Calls use(slot) for each slot of the ring that is in both sets.
  template <class Use>
  void each_of(const ring_part& ring, const slot_mask& a, const slot_mask& b, Use use) noexcept {
    for (auto w = index_of(ring.first_slot) / 64; w * 64 < index_of(ring.end_slot); ++w)
      for (auto left = a.words()[w] & b.words()[w]; left != 0; left &= left - 1) {
        const auto n = w * 64 + static_cast<unsigned>(std::countr_zero(left));
        if (const auto slot = static_cast<slot_id>(n); ring.has(place_[slot])) use(slot);
      }
  }
  /// True if a slot that was set aside, and not used since, is eligible.
  [[nodiscard]] bool is_any_back(const ring_part& ring, const slot_mask& eligible) noexcept {
    bool is_back = false;
    each_of(ring, eligible, aside_, [&](slot_id slot) {
      aside_.assign(slot, newness(ring, place_[slot]) < ring.read - ring.start);
      is_back |= aside_.test(slot);
    });
    return is_back;
  }
  /// Finds the oldest slots by their places.
  [[gnu::noinline]] std::size_t rank(const ring_part& ring, const slot_mask& eligible,
                                     std::span<slot_id> out) noexcept {
    std::size_t count = 0;
    each_of(ring, eligible, eligible, [&](slot_id slot) {
      const auto own = newness(ring, place_[slot]);
      if (count == out.size() && own > newness(ring, place_[out[count - 1]])) return;
      auto n = count < out.size() ? count++ : count - 1;
      for (; n > 0 && own < newness(ring, place_[out[n - 1]]); --n) out[n] = out[n - 1];
      out[n] = slot;
    });
    return count;
  }
  /// A pool's slots are a range until a quota change brings in another pool's slot.
  void take_in(ring_part& ring, slot_id slot) const noexcept {
    if (slot >= ring.first_slot && slot < ring.end_slot) return;
    ring.first_slot = slot_id{};
    ring.end_slot = static_cast<slot_id>(place_.size());
  }
  /// Removes stale entries. Finds the valid ones through the slots, which are fewer than the entries.
  [[gnu::noinline]] void gather(ring_part& ring) noexcept {
    restart(ring);
    valid_.assign(words_for(std::size_t{ring.mask} + 1), 0);
    for (auto slot = ring.first_slot; slot != ring.end_slot; ++slot)
      if (const auto n = newness(ring, place_[slot]); ring.has(place_[slot]))
        valid_[n / 64] |= std::uint64_t{1} << n % 64;
    ring.end = ring.start;
    each_member(valid_, [&](std::size_t n) {
      const auto slot = log_[ring.place(ring.start + static_cast<std::uint32_t>(n))];
      const auto place = ring.place(ring.end++);
      log_[place] = slot;
      place_[slot] = place;
    });
  }

  per_slot<std::uint32_t> place_;     ///< [slot] place of its last entry in log_, or `nowhere`
  std::vector<slot_id> log_;          ///< one ring per pool, adjacent
  slot_mask aside_;                   ///< slots that were set aside, and perhaps others
  std::vector<std::uint64_t> valid_;  ///< scratch: one bit per entry of a ring
  per_pool<ring_part> rings_;
};

}  // namespace hotset
