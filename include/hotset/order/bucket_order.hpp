// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots of each pool in order of a rank, by buckets of near ranks, repaired only where a choice looks.

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
#include "hotset/order/sparse_bits.hpp"

namespace hotset::inline v0 {

/// `BucketOf` maps a rank's key to one of `buckets()` buckets that ascend with the key. A rank that grows is
/// only stored: the slot stays where it stood until a choice meets it there. A bucket is sorted when a
/// choice comes to it out of order; what is put behind its last slot leaves it in order. Pools built with at
/// most `flat_limit` slots that can never exceed `flat_growth_limit` have no buckets and are scanned.
/// Complexity: put, raise and drop O(1); select O(1) per slot looked at, ineligible ones included, and
/// O(b log b) per bucket of b slots that it sorts. Memory: 72 bytes per slot, 9 per pool and bucket.
template <class BucketOf>
class bucket_order {
 public:
  static constexpr std::size_t flat_limit = 24;
  static constexpr std::size_t flat_growth_limit = 128;

  bucket_order() = default;
  bucket_order(const pool_layout& layout, BucketOf bucket_of)
      : bucket_of_(bucket_of),
        slots_(layout.slots()),
        members_(layout),
        flat_(layout.pools()),
        ranks_(slots_, vacant_rank),
        placed_(slots_),
        previous_(slots_ + layout.pools() * bucket_of.buckets()),
        next_(previous_.size()),
        in_order_(layout.pools() * bucket_of.buckets(), 1),
        occupied_(in_order_.size()),
        lowest_(layout.pools()),
        sorted_(slots_ + 1) {
    for (std::size_t n = 0; n < next_.size(); ++n)
      previous_[n] = next_[n] = static_cast<std::uint32_t>(n);
    for (const auto p : each<pool_id>(lowest_.size())) {
      lowest_[p] = end(p);
      flat_[p] = static_cast<std::size_t>(layout.at(p).slots) <= flat_limit &&
                 members_.capacity(p) <= flat_growth_limit;
    }
  }

  [[nodiscard]] const slot_rank& rank(slot_id slot) const noexcept { return ranks_[node(slot)]; }

  /// Pre: the slot is in no bucket. Positions are distinct and never 0.
  void put(pool_id pool, slot_id slot, slot_rank rank) noexcept {
    if (members_.home(slot) != pool)
      members_.settle(pool, slot, [this](slot_id s) { return ranks_[node(s)] == vacant_rank; });
    ranks_[node(slot)] = rank;
    if (flat(pool)) return;
    append(pool, first(pool) + bucket_of_(rank.key), node(slot));
  }
  /// Pre: `rank` is not smaller than the slot's rank. Complexity: O(1), one store.
  void raise(slot_id slot, slot_rank rank) noexcept {
    HOTSET_ASSERT(!(rank < ranks_[node(slot)]));
    ranks_[node(slot)] = rank;
  }
  /// The slot leaves its bucket; until it is put again its rank is `key`, at no position.
  void withdraw(slot_id slot, std::uint64_t key) noexcept {
    ranks_[node(slot)] = {key, 0};
    unlink(node(slot));
  }
  void drop(slot_id slot) noexcept {
    ranks_[node(slot)] = vacant_rank;
    unlink(node(slot));
  }

  /// Slot `to`, which is in no bucket, has the rank of `from` in its pool, and `from` has none.
  void move(slot_id from, slot_id to) noexcept {
    const auto rank = ranks_[node(from)];
    drop(from);
    put(members_.home(from), to, rank);
  }

  /// Replaces every rank r by f(r). Complexity: O(S).
  template <class F>
  void transform(F f) noexcept {
    for (const auto p : each<pool_id>(lowest_.size())) {
      for (const auto slot : members_.of(p)) {
        const auto old = ranks_[node(slot)];
        if (old == vacant_rank) continue;
        drop(slot);
        put(p, slot, f(old));
      }
    }
  }

  /// Writes the eligible slots of a pool in ascending rank; returns how many.
  [[nodiscard]] std::size_t select(pool_id pool, const slot_mask& eligible,
                                   std::span<slot_id> out) noexcept {
    if (out.empty()) return 0;
    if (flat(pool)) return scan_ranks(members_.of(pool), ranks_, eligible, sorted_, out);
    auto& lowest = lowest_[pool];
    lowest = holding(lowest, pool);
    std::size_t count = 0;
    for (auto list = lowest; list != end(pool); list = holding(list + 1, pool)) {
      count += take(pool, list, eligible, out.subspan(count));
      if (count == out.size()) break;
    }
    return count;
  }

 private:
  static std::uint32_t node(slot_id slot) noexcept { return static_cast<std::uint32_t>(slot); }
  [[nodiscard]] bool flat(pool_id pool) const noexcept { return flat_[pool] != 0; }
  [[nodiscard]] std::size_t first(pool_id pool) const noexcept {
    return index_of(pool) * bucket_of_.buckets();
  }
  [[nodiscard]] std::size_t end(pool_id pool) const noexcept {
    return first(pool) + bucket_of_.buckets();
  }
  [[nodiscard]] std::uint32_t sentinel(std::size_t list) const noexcept {
    return static_cast<std::uint32_t>(slots_ + list);
  }

  void unlink(std::uint32_t n) noexcept {
    next_[previous_[n]] = next_[n];
    previous_[next_[n]] = previous_[n];
    previous_[n] = next_[n] = n;
  }
  void link_last(std::size_t list, std::uint32_t n) noexcept {
    const auto last = previous_[sentinel(list)];
    previous_[n] = last;
    next_[n] = sentinel(list);
    next_[last] = n;
    previous_[sentinel(list)] = n;
    placed_[n] = ranks_[n].position;
  }
  void append(pool_id pool, std::size_t list, std::uint32_t n) noexcept {
    const auto last = previous_[sentinel(list)];
    const bool behind = last >= slots_ || ranks_[last] < ranks_[n];
    in_order_[list] &= static_cast<std::uint8_t>(behind);
    link_last(list, n);
    occupied_.set(list);
    auto& lowest = lowest_[pool];
    lowest = std::min(lowest, list);
  }
  /// The first list from `list` on that holds a slot. Lists are marked when they get one, unmarked here.
  [[nodiscard]] std::size_t holding(std::size_t list, pool_id pool) noexcept {
    const auto stop = end(pool);
    for (list = occupied_.next(list, stop); list != stop; list = occupied_.next(list + 1, stop)) {
      if (next_[sentinel(list)] < slots_) break;
      occupied_.reset(list);
      in_order_[list] = 1;
    }
    return list;
  }

  /// Puts a slot whose rank has grown where it belongs. Returns false if that is the list it is in.
  bool moves_on(pool_id pool, std::size_t list, std::uint32_t n) noexcept {
    const auto to = first(pool) + bucket_of_(ranks_[n].key);
    if (to == list) return false;
    unlink(n);
    append(pool, to, n);
    return true;
  }
  std::size_t take(pool_id pool, std::size_t list, const slot_mask& eligible,
                   std::span<slot_id> out) noexcept {
    if (in_order_[list] == 0) sort(pool, list);
    std::size_t count = 0;
    for (auto n = next_[sentinel(list)]; n < slots_ && count < out.size();) {
      const auto after = next_[n];
      if (placed_[n] == ranks_[n].position) {
        if (eligible.test(static_cast<slot_id>(n))) out[count++] = static_cast<slot_id>(n);
      } else if (!moves_on(pool, list, n)) {
        // Grown within the bucket: begin again in the right order, in which nothing is out of date.
        sort(pool, list);
        count = 0;
        n = next_[sentinel(list)];
        continue;
      }
      n = after;
    }
    return count;
  }
  void sort(pool_id pool, std::size_t list) noexcept {
    std::size_t size = 0;
    for (auto n = next_[sentinel(list)]; n < slots_;) {
      const auto after = next_[n];
      if (placed_[n] == ranks_[n].position || !moves_on(pool, list, n))
        sorted_[size++] = {ranks_[n], n};
      n = after;
    }
    std::sort(sorted_.begin(), sorted_.begin() + static_cast<std::ptrdiff_t>(size),
              [](const ranked_slot& a, const ranked_slot& b) { return a.rank < b.rank; });
    previous_[sentinel(list)] = next_[sentinel(list)] = sentinel(list);
    for (std::size_t i = 0; i < size; ++i) link_last(list, sorted_[i].slot);
    in_order_[list] = 1;
  }

  BucketOf bucket_of_{};
  std::size_t slots_ = 0;
  pool_members members_;
  per_pool<std::uint8_t> flat_;          // [pool]
  std::vector<slot_rank> ranks_;         // [slot] as it is
  std::vector<std::uint64_t> placed_;    // [slot] position when it was put where it stands
  std::vector<std::uint32_t> previous_;  // [slot], then one sentinel per pool and bucket
  std::vector<std::uint32_t> next_;
  std::vector<std::uint8_t> in_order_;  // [list] ascending as placed
  sparse_bits occupied_;                // lists that may hold slots
  per_pool<std::size_t> lowest_;        // [pool] no list of its own before it holds a slot
  std::vector<ranked_slot> sorted_;
};

}  // namespace hotset::inline v0
