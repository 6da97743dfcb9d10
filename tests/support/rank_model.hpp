// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots of pools by rank: one sorted map per pool. Orders under test must agree with it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/eviction/order/slot_rank.hpp"
#include "random_source.hpp"

namespace hotset::support {

class rank_model {
 public:
  explicit rank_model(const pool_layout& layout)
      : layout_(layout),
        pools_(layout.pools()),
        home_(layout.slots(), nowhere),
        ranks_(layout.slots(), vacant_rank) {}

  [[nodiscard]] std::size_t slots() const { return home_.size(); }
  /// Pool that holds the slot, or -1.
  [[nodiscard]] pool_id home(slot_id slot) const { return home_[slot]; }
  [[nodiscard]] bool full(pool_id pool) const {
    return pools_[pool].size() >= layout_.most_slots(pool);
  }
  void put(pool_id pool, slot_id slot, slot_rank rank) {
    drop(slot);
    home_[slot] = pool;
    ranks_[slot] = rank;
    pools_[pool][{rank.key, rank.position}] = slot;
  }
  void drop(slot_id slot) {
    if (home(slot) < 0) return;
    const auto rank = ranks_[slot];
    pools_[home(slot)].erase({rank.key, rank.position});
    home_[slot] = nowhere;
  }
  void halve_keys() {
    for (const auto s : home_.ids())
      if (const auto pool = home(s); pool >= 0)
        put(pool, s, {ranks_[s].key / 2, ranks_[s].position});
  }

  /// Requests some slots of every pool from `order`, with a random fifth of the slots ineligible.
  template <class Order>
  [[nodiscard]] bool agrees_with(Order& order, random_source& random) const {
    slot_mask eligible(home_.size());
    for (const auto s : home_.ids()) eligible.assign(s, !random.one_in(5));
    for (const auto p : pools_.ids()) {
      const auto wanted = random.one_in(4) ? home_.size() : 1 + random.below(9);
      std::vector<slot_id> expected;
      for (const auto& [rank, slot] : pools_[p])
        if (eligible.test(slot) && expected.size() < wanted) expected.push_back(slot);
      std::vector<slot_id> got(wanted, no_slot);
      got.resize(order.select(p, eligible, got));
      if (got != expected) return false;
    }
    return true;
  }

 private:
  static constexpr pool_id nowhere{-1};

  const pool_layout& layout_;
  per_pool<std::map<std::pair<std::uint64_t, std::uint64_t>, slot_id>> pools_;
  per_slot<pool_id> home_;
  per_slot<slot_rank> ranks_;
};

}  // namespace hotset::support
