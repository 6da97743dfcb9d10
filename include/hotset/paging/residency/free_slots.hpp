// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Free slots of each pool, lowest id first as far as the pool was never shuffled.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/pool_layout.hpp"

namespace hotset {

/// Stacks, one per pool. Complexity: O(1). No allocation after construction.
class free_slots {
 public:
  free_slots() = default;
  explicit free_slots(const pool_layout& layout) : stacks_(layout.pools()) {
    for (const auto p : stacks_.ids()) {
      const auto& pool = layout.at(p);
      stacks_[p].reserve(layout.most_slots(p));
      for (auto left = pool.slots; left-- > 0;) stacks_[p].push_back(pool.first_slot + left);
    }
  }
  [[nodiscard]] std::size_t count(pool_id pool) const noexcept { return stacks_[pool].size(); }
  /// Pre: count(pool) > 0.
  slot_id take(pool_id pool) noexcept {
    auto& slots = stacks_[pool];
    HOTSET_ASSERT(!slots.empty());
    const auto slot = slots.back();
    slots.pop_back();
    return slot;
  }
  void give_back(pool_id pool, slot_id slot) noexcept {
    auto& slots = stacks_[pool];
    HOTSET_ASSERT(slots.size() < slots.capacity());
    slots.push_back(slot);
  }
  /// As give_back, but the slot is taken after those that are there. Complexity: O(count(pool)).
  void give_back_last(pool_id pool, slot_id slot) noexcept {
    give_back(pool, slot);
    auto& slots = stacks_[pool];
    std::rotate(slots.begin(), slots.end() - 1, slots.end());
  }
  /// Every free slot s with target[s] != no_slot becomes target[s].
  void renumber(std::span<const slot_id> target) noexcept {
    for (auto& slots : stacks_)
      for (auto& slot : slots)
        if (const auto to = target[index_of(slot)]; to != no_slot) slot = to;
  }

 private:
  per_pool<std::vector<slot_id>> stacks_;
};

}  // namespace hotset
