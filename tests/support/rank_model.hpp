// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots of pools by rank, naively: a sorted map a pool. The orders under test must agree with it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/order/slot_rank.hpp"
#include "random_source.hpp"

namespace hotset::support {

class rank_model {
 public:
  explicit rank_model(const pool_layout& layout)
      : layout_(layout),
        pools_(layout.pools()),
        home_(layout.slots(), -1),
        ranks_(layout.slots(), vacant_rank) {}

  /// Pool that holds the slot, or -1.
  [[nodiscard]] pool_id home(slot_id slot) const { return home_[index(slot)]; }
  [[nodiscard]] bool full(pool_id pool) const {
    return pools_[index(pool)].size() >= layout_.most_slots(pool);
  }
  void put(pool_id pool, slot_id slot, slot_rank rank) {
    drop(slot);
    home_[index(slot)] = pool;
    ranks_[index(slot)] = rank;
    pools_[index(pool)][{rank.key, rank.position}] = slot;
  }
  void drop(slot_id slot) {
    if (home(slot) < 0) return;
    const auto rank = ranks_[index(slot)];
    pools_[index(home(slot))].erase({rank.key, rank.position});
    home_[index(slot)] = -1;
  }
  void halve_keys() {
    for (slot_id s = 0; s < static_cast<slot_id>(home_.size()); ++s)
      if (const auto pool = home(s); pool >= 0)
        put(pool, s, {ranks_[index(s)].key / 2, ranks_[index(s)].position});
  }

  /// Asks `order` for some of every pool, with a random fifth of the slots not eligible.
  template <class Order>
  [[nodiscard]] bool agrees_with(Order& order, random_source& random) const {
    slot_mask eligible(home_.size());
    for (slot_id s = 0; s < static_cast<slot_id>(home_.size()); ++s)
      eligible.assign(s, !random.one_in(5));
    for (std::size_t p = 0; p < pools_.size(); ++p) {
      const auto wanted = random.one_in(4) ? home_.size() : 1 + random.below(9);
      std::vector<slot_id> expected;
      for (const auto& [rank, slot] : pools_[p])
        if (eligible.test(slot) && expected.size() < wanted) expected.push_back(slot);
      std::vector<slot_id> got(wanted, no_slot);
      got.resize(order.select(static_cast<pool_id>(p), eligible, got));
      if (got != expected) return false;
    }
    return true;
  }

 private:
  static std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }

  const pool_layout& layout_;
  std::vector<std::map<std::pair<std::uint64_t, std::uint64_t>, slot_id>> pools_;
  std::vector<pool_id> home_;
  std::vector<slot_rank> ranks_;
};

}  // namespace hotset::support
