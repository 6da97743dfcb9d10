// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which slots stand in which pool, when quota changes may move them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/pool_layout.hpp"

namespace hotset {

/// Which slots each pool may hold, densely: every slot is at home in at most one pool.
/// A vacated slot stays at home until another pool fills it, so that refilling it moves nothing.
class pool_members {
 public:
  pool_members() = default;
  explicit pool_members(const pool_layout& layout)
      : slots_(layout.slots()), place_(layout.slots()), home_(layout.slots()) {
    ranges_.reserve(layout.pools());
    std::size_t total = 0;
    for (const auto p : each<pool_id>(layout.pools())) {
      ranges_.push_back({total, 0, layout.most_slots(p), layout.at(p).first_slot});
      total += ranges_.back().capacity;
    }
    slots_.assign(total, no_slot);
    for (const auto s : each<slot_id>(layout.slots())) append(layout.pool_of_slot(s), s);
    for (auto& of : ranges_) of.as_built = true;
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
  /// It may hold the slots that it was built with, from first_slot() on side by side, and no others.
  [[nodiscard]] bool as_built(pool_id pool) const noexcept { return range_of(pool).as_built; }
  [[nodiscard]] slot_id first_slot(pool_id pool) const noexcept {
    return range_of(pool).first_slot;
  }
  /// Pool that the slot is at home in, or -1.
  [[nodiscard]] pool_id home(slot_id slot) const noexcept { return home_[slot]; }
  /// Where a slot stands in its pool. Pre: it has a home.
  [[nodiscard]] std::size_t place(slot_id slot) const noexcept { return place_[slot]; }

  /// Puts a slot at a place; the caller keeps places and slots a permutation.
  void put(pool_id pool, std::size_t place, slot_id slot) noexcept {
    slots_[first(pool) + place] = slot;
    place_[slot] = static_cast<std::uint32_t>(place);
  }
  /// Pre: the slot has no home, the pool is not full.
  void append(pool_id pool, slot_id slot) noexcept {
    HOTSET_ASSERT(!full(pool));
    home_[slot] = pool;
    range_of(pool).as_built = false;
    put(pool, range_of(pool).size++, slot);
  }
  /// Drops the last place of a pool, whose slot becomes homeless unless it was put elsewhere first.
  void drop_last(pool_id pool, slot_id gone) noexcept {
    --range_of(pool).size;
    range_of(pool).as_built = false;
    home_[gone] = pool_id{-1};
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
    slot_id first_slot{};
    bool as_built = false;
  };
  [[nodiscard]] const range& range_of(pool_id pool) const noexcept { return ranges_[pool]; }
  range& range_of(pool_id pool) noexcept { return ranges_[pool]; }

  per_pool<range> ranges_;
  std::vector<slot_id> slots_;
  per_slot<std::uint32_t> place_;
  per_slot<pool_id> home_;
};

}  // namespace hotset
