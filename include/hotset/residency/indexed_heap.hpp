// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots of each pool in order of a rank, smallest first, repaired only where a choice looks.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/assert.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"

namespace hotset::inline v0 {

/// A policy's key, then the recency position: positions are distinct, so the order is total.
struct slot_rank {
  std::uint64_t key = 0;
  std::uint64_t position = 0;
  friend constexpr bool operator==(const slot_rank&, const slot_rank&) = default;
  friend constexpr bool operator<(const slot_rank& a, const slot_rank& b) noexcept {
    // Without a branch: the outcome cannot be predicted.
    return static_cast<bool>(
        static_cast<unsigned>(a.key < b.key) |
        (static_cast<unsigned>(a.key == b.key) & static_cast<unsigned>(a.position < b.position)));
  }
};

/// The rank of a slot that holds nothing: behind all others and never chosen.
inline constexpr slot_rank vacant_rank{std::numeric_limits<std::uint64_t>::max(),
                                       std::numeric_limits<std::uint64_t>::max()};

namespace detail {
inline constexpr std::uint64_t sign_bit = std::uint64_t{1} << 63;
/// Maps doubles to integers of the same order; zeros of both signs are one.
constexpr std::uint64_t ordered_bits(double value) noexcept {
  const auto bits = std::bit_cast<std::uint64_t>(value + 0.0);
  return (bits & sign_bit) != 0 ? ~bits : bits | sign_bit;
}
constexpr double from_ordered_bits(std::uint64_t bits) noexcept {
  return std::bit_cast<double>((bits & sign_bit) != 0 ? bits ^ sign_bit : ~bits);
}
}  // namespace detail

/// Which slots each pool may hold, densely: every slot is at home in at most one pool.
/// A vacated slot stays at home until another pool fills it, so that refilling it moves nothing.
class pool_members {
 public:
  pool_members() = default;
  explicit pool_members(const pool_layout& layout)
      : slots_(layout.slots()), place_(layout.slots()), home_(layout.slots()) {
    ranges_.reserve(layout.pools());
    std::size_t total = 0;
    for (pool_id p = 0; p < static_cast<pool_id>(layout.pools()); ++p) {
      ranges_.push_back({total, 0, layout.most_slots(p)});
      total += ranges_.back().capacity;
    }
    slots_.assign(total, no_slot);
    for (slot_id s = 0; s < static_cast<slot_id>(layout.slots()); ++s)
      append(layout.pool_of_slot(s), s);
  }

  [[nodiscard]] std::size_t slots() const noexcept { return place_.size(); }
  [[nodiscard]] std::size_t pools() const noexcept { return ranges_.size(); }
  [[nodiscard]] std::size_t size(pool_id pool) const noexcept { return range_of(pool).size; }
  [[nodiscard]] std::size_t capacity(pool_id pool) const noexcept {
    return range_of(pool).capacity;
  }
  [[nodiscard]] bool full(pool_id pool) const noexcept {
    return range_of(pool).size == range_of(pool).capacity;
  }
  /// Index of a pool's first place among all places.
  [[nodiscard]] std::size_t first(pool_id pool) const noexcept { return range_of(pool).first; }
  [[nodiscard]] std::size_t places() const noexcept { return slots_.size(); }
  [[nodiscard]] std::span<const slot_id> of(pool_id pool) const noexcept {
    return {slots_.data() + first(pool), size(pool)};
  }
  /// Pool that the slot is at home in, or -1.
  [[nodiscard]] pool_id home(slot_id slot) const noexcept { return home_[index(slot)]; }
  /// Where a slot stands in its pool. Pre: it has a home.
  [[nodiscard]] std::size_t place(slot_id slot) const noexcept { return place_[index(slot)]; }

  /// Puts a slot at a place; the caller keeps places and slots a permutation.
  void put(pool_id pool, std::size_t place, slot_id slot) noexcept {
    slots_[first(pool) + place] = slot;
    place_[index(slot)] = static_cast<std::uint32_t>(place);
  }
  /// Pre: the slot has no home, the pool is not full.
  void append(pool_id pool, slot_id slot) noexcept {
    HOTSET_ASSERT(!full(pool));
    home_[index(slot)] = pool;
    put(pool, range_of(pool).size++, slot);
  }
  /// Drops the last place of a pool, whose slot becomes homeless unless it was put elsewhere first.
  void drop_last(pool_id pool, slot_id gone) noexcept {
    --range_of(pool).size;
    home_[index(gone)] = -1;
  }
  /// Brings a vacant slot home to a pool whose order of places means nothing. Where the pool is full, a
  /// slot that has left by a quota change still stands there, vacant, and makes room.
  template <class Vacant>
  void settle(pool_id pool, slot_id slot, Vacant vacant) noexcept {
    if (home(slot) >= 0) swap_out(home(slot), slot);
    if (full(pool))
      for (const auto other : of(pool))
        if (vacant(other)) {
          swap_out(pool, other);
          break;
        }
    append(pool, slot);
  }

 private:
  void swap_out(pool_id pool, slot_id slot) noexcept {
    put(pool, place(slot), of(pool).back());
    drop_last(pool, slot);
  }
  struct range {
    std::size_t first = 0;
    std::size_t size = 0;
    std::size_t capacity = 0;
  };
  static std::size_t index(slot_id slot) noexcept { return static_cast<std::size_t>(slot); }
  [[nodiscard]] const range& range_of(pool_id pool) const noexcept {
    return ranges_[static_cast<std::size_t>(pool)];
  }
  range& range_of(pool_id pool) noexcept { return ranges_[static_cast<std::size_t>(pool)]; }

  std::vector<range> ranges_;
  std::vector<slot_id> slots_;
  std::vector<std::uint32_t> place_;
  std::vector<pool_id> home_;
};

/// A 4-ary heap per pool. A rank that grows is only stored; the heap keeps the older, smaller rank as a
/// lower bound until a choice meets it. Pools built with at most `flat_limit` slots that can
/// never exceed `flat_growth_limit` are not ordered but scanned.
/// Complexity: raise and vacate O(1); assign O(1), or O(log S) where the rank falls; select O(n log S)
/// for n slots looked at, ineligible ones included. Memory: about 44 bytes per slot and 20 per place.
class indexed_heap {
 public:
  static constexpr std::size_t flat_limit = 48;
  static constexpr std::size_t flat_growth_limit = 128;

  indexed_heap() = default;
  explicit indexed_heap(const pool_layout& layout)
      : members_(layout),
        ranks_(layout.slots(), vacant_rank),
        bounds_(members_.places(), vacant_rank),
        chosen_(std::max(layout.slots(), frontier_limit + arity) + 1),
        flat_(layout.pools()) {
    for (pool_id p = 0; p < static_cast<pool_id>(layout.pools()); ++p)
      flat_[static_cast<std::size_t>(p)] =
          static_cast<std::size_t>(layout.at(p).slots) <= flat_limit &&
          members_.capacity(p) <= flat_growth_limit;
  }

  [[nodiscard]] const slot_rank& rank(slot_id slot) const noexcept { return ranks_[index(slot)]; }
  [[nodiscard]] bool vacant(slot_id slot) const noexcept {
    return ranks_[index(slot)] == vacant_rank;
  }

  /// Pre: the slot is not vacant, `rank` is not smaller than its rank. Complexity: O(1), one store.
  void raise(slot_id slot, slot_rank rank) noexcept {
    HOTSET_ASSERT(!vacant(slot) && !(rank < ranks_[index(slot)]));
    ranks_[index(slot)] = rank;
  }
  /// Gives a slot a rank in a pool, whatever it had and wherever it was.
  void assign(pool_id pool, slot_id slot, slot_rank rank) noexcept {
    if (members_.home(slot) != pool) settle(pool, slot);
    ranks_[index(slot)] = rank;
    if (flat(pool)) return;
    const auto place = members_.place(slot);
    if (rank < bounds(pool)[place]) sift_up(pool, place, slot, rank);
  }
  /// The slot holds nothing any more. Complexity: O(1).
  void vacate(slot_id slot) noexcept { ranks_[index(slot)] = vacant_rank; }

  /// Replaces every rank r of an occupied slot by f(r). Complexity: O(S).
  template <class F>
  void transform(F f) noexcept {
    for (auto& r : ranks_)
      if (r != vacant_rank) r = f(r);
    for (pool_id p = 0; p < static_cast<pool_id>(members_.pools()); ++p) rebuild(p);
  }

  /// Writes the eligible slots of a pool in ascending rank; returns how many.
  [[nodiscard]] std::size_t select(pool_id pool, const slot_mask& eligible,
                                   std::span<slot_id> out) noexcept {
    if (out.empty() || members_.size(pool) == 0) return 0;
    if (out.size() > few) return select_sorted(pool, eligible, out);
    if (flat(pool)) return select_scanned(pool, eligible, out);
    return select_ordered(pool, eligible, out);
  }

 private:
  static constexpr std::size_t arity = 4;
  static constexpr std::size_t few = 32;
  static constexpr std::size_t frontier_limit = 96;

  struct candidate {
    slot_rank rank;
    std::uint32_t where = 0;  ///< a slot, or a place in the heap
  };

  static std::size_t index(slot_id slot) noexcept { return static_cast<std::size_t>(slot); }
  [[nodiscard]] bool flat(pool_id pool) const noexcept {
    return flat_[static_cast<std::size_t>(pool)] != 0;
  }
  slot_rank* bounds(pool_id pool) noexcept { return bounds_.data() + members_.first(pool); }

  /// Brings a slot home to a pool, vacant.
  void settle(pool_id pool, slot_id slot) noexcept {
    ranks_[index(slot)] = vacant_rank;
    if (members_.home(slot) >= 0) remove(members_.home(slot), slot);
    if (members_.full(pool)) {
      // Slots that have left by a quota change still stand here, vacant: one of them makes room.
      for (const auto other : members_.of(pool))
        if (vacant(other)) {
          remove(pool, other);
          break;
        }
    }
    members_.append(pool, slot);
    bounds(pool)[members_.place(slot)] = vacant_rank;
  }
  void remove(pool_id pool, slot_id slot) noexcept {
    const auto place = members_.place(slot);
    const auto last = members_.size(pool) - 1;
    const auto moved = members_.of(pool)[last];
    const auto bound = bounds(pool)[last];
    members_.drop_last(pool, slot);
    if (place == last) return;
    const auto old = bounds(pool)[place];
    members_.put(pool, place, moved);
    bounds(pool)[place] = bound;
    if (flat(pool)) return;
    if (bound < old)
      sift_up(pool, place, moved, bound);
    else
      sift_down(pool, place, moved, bound);
  }
  void rebuild(pool_id pool) noexcept {
    const auto slots = members_.of(pool);
    for (std::size_t i = 0; i < slots.size(); ++i) bounds(pool)[i] = ranks_[index(slots[i])];
    if (flat(pool) || slots.size() < 2) return;
    for (std::size_t i = (slots.size() - 2) / arity + 1; i-- > 0;)
      sift_down(pool, i, slots[i], bounds(pool)[i]);
  }
  void sift_up(pool_id pool, std::size_t place, slot_id slot, slot_rank rank) noexcept {
    auto* const bound = bounds(pool);
    const auto slots = members_.of(pool);
    while (place > 0) {
      const auto parent = (place - 1) / arity;
      if (!(rank < bound[parent])) break;
      bound[place] = bound[parent];
      members_.put(pool, place, slots[parent]);
      place = parent;
    }
    bound[place] = rank;
    members_.put(pool, place, slot);
  }
  void sift_down(pool_id pool, std::size_t place, slot_id slot, slot_rank rank) noexcept {
    auto* const bound = bounds(pool);
    const auto slots = members_.of(pool);
    const auto size = slots.size();
    for (;;) {
      const auto child = place * arity + 1;
      if (child >= size) break;
      auto best = child;
      if (child + arity <= size) {
        const auto left = bound[child + 1] < bound[child] ? child + 1 : child;
        const auto right = bound[child + 3] < bound[child + 2] ? child + 3 : child + 2;
        best = bound[right] < bound[left] ? right : left;
      } else {
        for (auto c = child + 1; c < size; ++c) best = bound[c] < bound[best] ? c : best;
      }
      if (!(bound[best] < rank)) break;
      bound[place] = bound[best];
      members_.put(pool, place, slots[best]);
      place = best;
    }
    bound[place] = rank;
    members_.put(pool, place, slot);
  }

  /// Few out of a large pool: best first from the root. A place whose bound is out of date is repaired
  /// and looked at again; the repair stays below that place, where nothing has been looked at yet.
  std::size_t select_ordered(pool_id pool, const slot_mask& eligible,
                             std::span<slot_id> out) noexcept {
    const auto slots = members_.of(pool);
    const auto* const bound = bounds(pool);
    candidate* const frontier = chosen_.data();  // descending: the next one is the last
    std::size_t waiting = 0;
    std::size_t count = 0;
    const auto wait = [&](std::size_t place) {
      const auto rank = bound[place];
      auto at = waiting++;
      for (; at > 0 && frontier[at - 1].rank < rank; --at) frontier[at] = frontier[at - 1];
      frontier[at] = {rank, static_cast<std::uint32_t>(place)};
    };
    wait(0);
    while (waiting > 0) {
      const auto [rank, where] = frontier[--waiting];
      if (rank == vacant_rank) break;
      const std::size_t place = where;
      const auto slot = slots[place];
      const auto real = ranks_[index(slot)];
      if (real != rank) {
        sift_down(pool, place, slot, real);
        wait(place);
        continue;
      }
      if (eligible.test(slot)) {
        out[count++] = slot;
        if (count == out.size()) break;
      }
      if (waiting >= frontier_limit) return select_sorted(pool, eligible, out);
      const auto child = place * arity + 1;
      const auto end = std::min(child + arity, slots.size());
      for (auto c = child; c < end; ++c) wait(c);
    }
    return count;
  }
  /// Few out of a small pool: gather what is eligible, then take the smallest again and again. No branch
  /// depends on the data, which is worth more here than fewer comparisons.
  std::size_t select_scanned(pool_id pool, const slot_mask& eligible,
                             std::span<slot_id> out) noexcept {
    candidate* const found = chosen_.data();
    const auto words = eligible.words();
    std::size_t size = 0;
    for (const auto slot : members_.of(pool)) {
      found[size] = {ranks_[index(slot)], static_cast<std::uint32_t>(slot)};
      size += static_cast<std::size_t>((words[index(slot) / 64] >> (index(slot) % 64)) & 1U);
    }
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
      out[count++] = static_cast<slot_id>(found[best].where);
      found[best] = found[--size];
    }
    return count;
  }
  /// Many: gather and sort.
  std::size_t select_sorted(pool_id pool, const slot_mask& eligible,
                            std::span<slot_id> out) noexcept {
    std::size_t found = 0;
    for (const auto slot : members_.of(pool)) {
      const auto rank = ranks_[index(slot)];
      if (rank != vacant_rank && eligible.test(slot))
        chosen_[found++] = {rank, static_cast<std::uint32_t>(slot)};
    }
    const auto count = std::min(found, out.size());
    const auto at = [&](std::size_t n) { return chosen_.begin() + static_cast<std::ptrdiff_t>(n); };
    std::partial_sort(at(0), at(count), at(found),
                      [](const candidate& a, const candidate& b) { return a.rank < b.rank; });
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<slot_id>(chosen_[i].where);
    return count;
  }

  pool_members members_;
  std::vector<slot_rank> ranks_;   // [slot] as it is
  std::vector<slot_rank> bounds_;  // [place] as the heap has it, never larger
  std::vector<candidate> chosen_;
  std::vector<std::uint8_t> flat_;  // [pool]
};

}  // namespace hotset::inline v0
