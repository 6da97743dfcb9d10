// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The slots that stand in each pool while quota changes may move them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/pool_layout.hpp"

namespace hotset {

/// The slots that each pool may hold, densely: every slot is at home in at most one pool.
/// A vacated slot stays at home until another pool fills it, so that refilling it moves nothing.
class pool_members {
 public:
  explicit pool_members(const pool_layout& layout)
      : place_(layout.slots()), home_(layout.slots(), pool_id{-1}) {
    std::size_t total = 0;
    for (const auto p : each<pool_id>(layout.pools())) {
      ranges_.push_back({total, 0, layout.most_slots(p), layout.at(p).first_slot});
      total += ranges_.back().capacity;
    }
    slots_.assign(total, no_slot);
    for (const auto s : each<slot_id>(layout.slots())) append(layout.pool_of_slot(s), s);
    for (auto& of : ranges_) of.as_built = true;
  }

  /// Places of all pools. A pool has the places [first, first + capacity).
  [[nodiscard]] std::size_t places() const noexcept { return slots_.size(); }
  [[nodiscard]] std::size_t first(pool_id pool) const noexcept { return ranges_[pool].first; }
  [[nodiscard]] std::size_t capacity(pool_id pool) const noexcept { return ranges_[pool].capacity; }
  [[nodiscard]] std::size_t size(pool_id pool) const noexcept { return ranges_[pool].size; }
  [[nodiscard]] std::span<const slot_id> of(pool_id pool) const noexcept {
    return std::span(slots_).subspan(first(pool), size(pool));
  }
  /// True if the pool may hold the slots that it was built with, from first_slot() on side by side, and no others.
  [[nodiscard]] bool as_built(pool_id pool) const noexcept { return ranges_[pool].as_built; }
  [[nodiscard]] slot_id first_slot(pool_id pool) const noexcept { return ranges_[pool].first_slot; }
  /// Pool that the slot is at home in, or -1.
  [[nodiscard]] pool_id home(slot_id slot) const noexcept { return home_[slot]; }

  /// Brings a vacant slot home to a pool. If the pool is full, a slot that has left by a quota change still stands
  /// there, vacant, and makes room.
  template <class Vacant>
  void settle(pool_id pool, slot_id slot, Vacant vacant) noexcept {
    if (home(slot) >= 0) remove(slot);
    if (size(pool) == capacity(pool))
      for (const auto other : of(pool))
        if (vacant(other)) {
          remove(other);
          break;
        }
    append(pool, slot);
  }

 private:
  struct range {
    std::size_t first = 0;
    std::size_t size = 0;
    std::size_t capacity = 0;
    slot_id first_slot{};
    bool as_built = false;
  };
  void put(pool_id pool, std::size_t place, slot_id slot) noexcept {
    slots_[first(pool) + place] = slot;
    place_[slot] = static_cast<std::uint32_t>(place);
  }
  void append(pool_id pool, slot_id slot) noexcept {
    HOTSET_ASSERT(home(slot) < 0 && size(pool) < capacity(pool));
    home_[slot] = pool;
    ranges_[pool].as_built = false;
    put(pool, ranges_[pool].size++, slot);
  }
  void remove(slot_id slot) noexcept {
    const auto pool = home_[slot];
    put(pool, place_[slot], of(pool).back());
    --ranges_[pool].size;
    ranges_[pool].as_built = false;
    home_[slot] = pool_id{-1};
  }

  per_pool<range> ranges_;
  std::vector<slot_id> slots_;  // [place]
  per_slot<std::uint32_t> place_;
  per_slot<pool_id> home_;
};

}  // namespace hotset
