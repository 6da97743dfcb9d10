// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a policy whose scores move by themselves keeps of each slot: the key, the recency position, and the order that a
/// scan of the pool finds.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/eviction/order/pool_members.hpp"
#include "hotset/eviction/order/rank_scan.hpp"
#include "hotset/eviction/order/slot_rank.hpp"

namespace hotset {

/// No allocation after construction.
class scanned_slots {
 public:
  scanned_slots() = default;
  explicit scanned_slots(const pool_layout& layout)
      : keys_(layout.slots()),
        position_(layout.slots(), 0),
        members_(layout),
        ranks_(layout.slots(), vacant_rank),
        scratch_(layout.slots() + 1) {}

  void use(slot_id slot) noexcept { position_[slot] = ++clock_; }
  /// The same for several, in this order.
  void use(std::span<const slot_id> slots) noexcept {
    for (const auto slot : slots) use(slot);
  }
  /// Victims of fills leave, and what the fills bring comes.
  void bring(pool_id pool, std::span<const hotset::fill> fills) noexcept {
    for (const auto& f : fills) {
      if (f.victim != no_key) vacate(f.slot);
      fill(pool, f.slot, f.key);
    }
  }
  void fill(pool_id pool, slot_id slot, expert_key key) noexcept {
    hold(pool, slot, key);
    use(slot);
  }
  void vacate(slot_id slot) noexcept { keys_[slot] = no_key; }
  void move(slot_id from, slot_id to) noexcept {
    const auto key = keys_[from];
    vacate(from);  // it makes room where the pool is full
    hold(members_.home(from), to, key);
    position_[to] = position_[from];
  }

  /// The eligible slots of the pool by ascending score(slot, key), a double or a std::uint64_t, then recency position; returns how many.
  /// Complexity: O(pool's slots * (1 + out)).
  template <class Score>
  std::size_t select(pool_id pool, const slot_mask& eligible, std::span<slot_id> out,
                     Score score) noexcept {
    if (out.empty()) return 0;
    const auto slots = members_.of(pool);
    for (const auto slot : slots) {
      const auto key = keys_[slot];
      ranks_[index_of(slot)] =
          key == no_key ? vacant_rank : slot_rank{bits_of(score(slot, key)), position_[slot]};
    }
    return scan_ranks(slots, ranks_, eligible, scratch_, out);
  }

 private:
  static std::uint64_t bits_of(double score) noexcept { return detail::ordered_bits(score); }
  static std::uint64_t bits_of(std::uint64_t score) noexcept { return score; }
  void hold(pool_id pool, slot_id slot, expert_key key) noexcept {
    if (members_.home(slot) != pool)
      members_.settle(pool, slot, [this](slot_id s) { return keys_[s] == no_key; });
    keys_[slot] = key;
  }

  per_slot<expert_key> keys_;         // [slot]
  per_slot<std::uint64_t> position_;  // [slot]
  std::uint64_t clock_ = 0;
  pool_members members_;
  std::vector<slot_rank> ranks_;  // [slot] scratch
  std::vector<ranked_slot> scratch_;
};

}  // namespace hotset
