// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots of each pool in order of a rank, smallest first, repaired only where a choice looks.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/order/pool_members.hpp"
#include "hotset/order/rank_scan.hpp"
#include "hotset/order/slot_rank.hpp"

namespace hotset::inline v0 {

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
    for (const auto p : each<pool_id>(layout.pools()))
      flat_[p] = static_cast<std::size_t>(layout.at(p).slots) <= flat_limit &&
                 members_.capacity(p) <= flat_growth_limit;
  }

  [[nodiscard]] const slot_rank& rank(slot_id slot) const noexcept {
    return ranks_[index_of(slot)];
  }
  [[nodiscard]] bool vacant(slot_id slot) const noexcept {
    return ranks_[index_of(slot)] == vacant_rank;
  }

  /// Pre: the slot is not vacant, `rank` is not smaller than its rank. Complexity: O(1), one store.
  void raise(slot_id slot, slot_rank rank) noexcept {
    HOTSET_ASSERT(!vacant(slot) && !(rank < ranks_[index_of(slot)]));
    ranks_[index_of(slot)] = rank;
  }
  /// Gives a slot a rank in a pool, whatever it had and wherever it was.
  void assign(pool_id pool, slot_id slot, slot_rank rank) noexcept {
    if (members_.home(slot) != pool) settle(pool, slot);
    ranks_[index_of(slot)] = rank;
    if (flat(pool)) return;
    const auto place = members_.place(slot);
    if (rank < bounds(pool)[place]) sift_up(pool, place, slot, rank);
  }
  /// The slot holds nothing any more. Complexity: O(1).
  void vacate(slot_id slot) noexcept { ranks_[index_of(slot)] = vacant_rank; }
  /// Slot `to`, which is vacant, has the rank of `from` in its pool, and `from` is vacant.
  void move(slot_id from, slot_id to) noexcept {
    const auto rank = ranks_[index_of(from)];
    vacate(from);
    assign(members_.home(from), to, rank);
  }

  /// Replaces every rank r of an occupied slot by f(r). Complexity: O(S).
  template <class F>
  void transform(F f) noexcept {
    for (auto& r : ranks_)
      if (r != vacant_rank) r = f(r);
    for (const auto p : each<pool_id>(members_.pools())) rebuild(p);
  }

  /// Writes the eligible slots of a pool in ascending rank; returns how many.
  [[nodiscard]] std::size_t select(pool_id pool, const slot_mask& eligible,
                                   std::span<slot_id> out) noexcept {
    if (out.empty() || members_.size(pool) == 0) return 0;
    if (out.size() > few) return select_sorted(pool, eligible, out);
    if (flat(pool)) return scan_ranks(members_.of(pool), ranks_, eligible, chosen_, out);
    return select_ordered(pool, eligible, out);
  }

 private:
  static constexpr std::size_t arity = 4;
  static constexpr std::size_t few = 32;
  static constexpr std::size_t frontier_limit = 96;
  [[nodiscard]] bool flat(pool_id pool) const noexcept { return flat_[pool] != 0; }
  slot_rank* bounds(pool_id pool) noexcept { return bounds_.data() + members_.first(pool); }

  /// Brings a slot home to a pool, vacant.
  void settle(pool_id pool, slot_id slot) noexcept {
    ranks_[index_of(slot)] = vacant_rank;
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
    for (std::size_t i = 0; i < slots.size(); ++i) bounds(pool)[i] = ranks_[index_of(slots[i])];
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
    ranked_slot* const frontier =
        chosen_.data();  // descending, places for slots: the next is the last
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
      const auto real = ranks_[index_of(slot)];
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
  /// Many: gather and sort.
  [[gnu::noinline]] std::size_t select_sorted(pool_id pool, const slot_mask& eligible,
                                              std::span<slot_id> out) noexcept {
    std::size_t found = 0;
    for (const auto slot : members_.of(pool)) {
      const auto rank = ranks_[index_of(slot)];
      if (rank != vacant_rank && eligible.test(slot))
        chosen_[found++] = {rank, static_cast<std::uint32_t>(slot)};
    }
    const auto count = std::min(found, out.size());
    const auto at = [&](std::size_t n) { return chosen_.begin() + static_cast<std::ptrdiff_t>(n); };
    std::partial_sort(at(0), at(count), at(found),
                      [](const ranked_slot& a, const ranked_slot& b) { return a.rank < b.rank; });
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<slot_id>(chosen_[i].slot);
    return count;
  }

  pool_members members_;
  std::vector<slot_rank> ranks_;   // [slot] as it is
  std::vector<slot_rank> bounds_;  // [place] as the heap has it, never larger
  std::vector<ranked_slot> chosen_;
  per_pool<std::uint8_t> flat_;  // [pool]
};

}  // namespace hotset::inline v0
