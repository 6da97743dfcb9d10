// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Orders each pool's slots by a rank: buckets of near ranks behind a sorted front, repaired only when a choice
/// reaches them.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/eviction/order/slot_rank.hpp"
#include "hotset/eviction/order/sparse_bits.hpp"

namespace hotset {

/// `BucketOf` maps a rank's key to one of `buckets()` buckets that ascend with the key. A rank that grows is only
/// stored: the slot stays in place until a choice meets it. An unsorted bucket is sorted when a choice reaches it.
/// Appending after its last slot keeps a bucket sorted.
/// A rank below all ranks in the buckets goes to the front, one small sorted array. A slot that comes in cold and is
/// soon evicted never enters a bucket.
/// Complexity: put and drop O(1) plus the lower entries of the front, at most 64. raise O(1). select O(1) per slot
/// examined, ineligible ones included, plus O(b log b) for each bucket of b slots that it sorts.
/// Memory: 60 bytes per slot, 17 per pool and bucket, 1.6 KB per pool.
template <class BucketOf>
class bucket_order {
 public:
  /// Entries of the front. A put moves the lower entries, 24 bytes each; a smaller front spills into the buckets more
  /// often.
  static constexpr std::size_t front_capacity = 64;

  bucket_order() = default;
  bucket_order(const pool_layout& layout, BucketOf bucket_of)
      : bucket_of_(bucket_of),
        slots_(static_cast<std::uint32_t>(layout.slots())),
        pool_of_(slots_, pool_id{}),
        ranks_(slots_, vacant_rank),
        links_(slots_ + layout.pools() * bucket_of.buckets()),
        in_order_(layout.pools() * bucket_of.buckets(), 1),
        occupied_(in_order_.size()),
        pools_(layout.pools()),
        entries_(layout.pools() * (front_capacity + 1), {vacant_rank, none}),
        sorted_(slots_) {
    for (std::size_t n = 0; n < links_.size(); ++n)
      links_[n].previous = links_[n].next = static_cast<std::uint32_t>(n);
    const auto buckets = bucket_of.buckets();
    for (const auto p : pools_.ids()) {
      pools_[p].first = index_of(p) * buckets;
      pools_[p].lowest = pools_[p].end = pools_[p].first + buckets;
    }
  }

  [[nodiscard]] const slot_rank& rank(slot_id slot) const noexcept { return ranks_[node(slot)]; }

  /// Pre: the slot has no rank; positions are distinct, never 0, and this one is the highest so far.
  void put(pool_id pool, slot_id slot, slot_rank rank) noexcept {
    const auto only = [=](slot_id) { return rank.key; };
    put_again(pool, std::span<const slot_id>(&slot, 1), std::identity{}, only, rank.position);
  }
  /// Puts several slots at the next positions, in this order. `raise` may report these later, up to `highest`. A slot
  /// stays where it is put until it is raised above `highest`.
  template <class Item, class SlotOf, class KeyOf>
  void put_again(pool_id pool, std::span<const Item> items, SlotOf slot_of, KeyOf key_of,
                 std::uint64_t highest) noexcept {
    auto& home = pools_[pool];
    auto front = home.front;
    for (const auto& item : items) {
      const auto n = node(slot_of(item));
      const slot_rank rank{key_of(item), highest};
      ranks_[n] = rank;
      pool_of_[n] = pool;
      if (rank.key < front.limit)
        front = insert(pool, front, {rank, n});
      else
        append(home, {rank, n});
    }
    home.front = front;
  }
  /// Pre: `rank` is not below the slot's rank, except for a position reported later. Complexity: O(1), one store.
  void raise(slot_id slot, slot_rank rank) noexcept {
    HOTSET_ASSERT(!(rank.key < ranks_[node(slot)].key));
    ranks_[node(slot)] = rank;
  }
  void drop(slot_id slot) noexcept {
    leave(pool_of_[node(slot)], std::span<const slot_id>(&slot, 1), std::identity{});
    ranks_[node(slot)] = vacant_rank;
  }
  /// Drops slots that will be put again at once. Pre: they are in `pool`, or have no rank.
  template <class Item, class SlotOf>
  void leave(pool_id pool, std::span<const Item> items, SlotOf slot_of) noexcept {
    auto& home = pools_[pool];
    auto front = home.front;
    const auto* const entries = entries_of(pool);
    const auto lead = sentinel(home.lowest);
    auto leader = none;
    for (const auto& item : items) {
      const auto n = node(slot_of(item));
      if (ranks_[n] == vacant_rank) continue;
      if (entries[front.first].slot == n) {
        ++front.first;  // victims are dropped in the order in which they were chosen
      } else if (!linked(n)) {
        remove(pool, front, place_of(pool, front, n));
      } else {
        if (links_[n].previous == lead) leader = n;
        unlink(n);
      }
    }
    // If the lowest slot of the buckets was dropped, its rank shows how far the front may reach.
    if (leader != none && in_order_[home.lowest] != 0 && !has_grown(leader, links_[leader].placed))
      front.limit = std::max(front.limit, ranks_[leader].key);
    home.front = front;
  }

  /// Moves the rank of `from` to slot `to` of the same pool; `from` then has no rank. Pre: `to` is in no bucket.
  void move(slot_id from, slot_id to) noexcept {
    const auto pool = pool_of_[node(to)] = pool_of_[node(from)];
    ranks_[node(to)] = std::exchange(ranks_[node(from)], vacant_rank);
    if (linked(node(from)))
      take_place(node(from), node(to));
    else
      entries_of(pool)[place_of(pool, pools_[pool].front, node(from))].slot = node(to);
  }

  /// Replaces every rank r by f(r). Complexity: O(S).
  template <class F>
  void transform(F f) noexcept {
    for (auto& home : pools_) home.front = {};
    for (std::uint32_t n = 0; n < slots_; ++n) {
      if (ranks_[n] == vacant_rank) continue;
      ranks_[n] = f(ranks_[n]);
      unlink(n);
      append(pools_[pool_of_[n]], as_it_is(n));
    }
  }

  /// Writes the eligible slots of a pool in ascending rank; returns how many.
  [[nodiscard]] std::size_t select(pool_id pool, const slot_mask& eligible,
                                   std::span<slot_id> out) noexcept {
    if (out.empty()) return 0;
    auto& home = pools_[pool];
    std::size_t count = take_front(pool, eligible, out);
    if (count == out.size()) return count;
    home.lowest = holding(home, home.lowest);
    for (auto list = home.lowest; list != home.end; list = holding(home, list + 1)) {
      count += take(home, list, eligible, out.subspan(count));
      if (count == out.size()) break;
    }
    return count;
  }

 private:
  /// A slot's place in a bucket. A slot in no bucket is linked to itself.
  struct link {
    std::uint64_t placed = 0;  // the slot's position is higher if its rank has grown since
    std::uint32_t previous = 0;
    std::uint32_t next = 0;
  };
  /// Slots of a pool with keys below `limit`, plus slots whose ranks have grown since. No key in the buckets is below
  /// `limit`. Entries [first, front_capacity) ascend as they were put; one sentinel entry follows.
  struct front_range {
    std::size_t first = front_capacity;
    std::uint64_t limit = 0;
  };
  struct pool_state {
    front_range front;
    std::size_t first = 0;  // first list of the pool
    std::size_t end = 0;
    std::size_t lowest = 0;  // no earlier list of the pool holds a slot
  };
  static constexpr auto none = std::numeric_limits<std::uint32_t>::max();

  static std::uint32_t node(slot_id slot) noexcept { return static_cast<std::uint32_t>(slot); }
  [[nodiscard]] std::uint32_t sentinel(std::size_t list) const noexcept {
    return static_cast<std::uint32_t>(slots_ + list);
  }
  [[nodiscard]] std::size_t list_of(const pool_state& home, std::uint64_t key) const noexcept {
    return home.first + bucket_of_(key);
  }

  [[nodiscard]] ranked_slot* entries_of(pool_id pool) noexcept {
    return entries_.data() + index_of(pool) * (front_capacity + 1);
  }
  [[nodiscard]] bool has_grown(std::uint32_t n, std::uint64_t placed) const noexcept {
    return ranks_[n].position > placed;
  }
  [[nodiscard]] ranked_slot as_it_is(std::uint32_t n) const noexcept { return {ranks_[n], n}; }
  /// Pre: the slot is in the front.
  [[nodiscard]] std::size_t place_of(pool_id pool, const front_range& front,
                                     std::uint32_t n) noexcept {
    const auto* const entries = entries_of(pool);
    auto place = front.first;
    while (entries[place].slot != n) ++place;
    HOTSET_ASSERT(place < front_capacity);
    return place;
  }
  void remove(pool_id pool, front_range& front, std::size_t place) noexcept {
    auto* const entries = entries_of(pool);
    std::copy_backward(entries + front.first, entries + place, entries + place + 1);
    ++front.first;
  }
  /// Pre: no rank of the pool has a later position.
  front_range insert(pool_id pool, front_range front, ranked_slot entry) noexcept {
    if (front.first == 0) {
      front = spill(pool);
      if (entry.rank.key >= front.limit) {
        append(pools_[pool], entry);
        return front;
      }
    }
    auto* to = entries_of(pool) + --front.first;
    for (; to[1].rank.key <= entry.rank.key; ++to) *to = to[1];
    *to = entry;
    return front;
  }
  /// Moves the upper half of a full front to the buckets, with all entries that share its lowest key.
  [[gnu::noinline]] front_range spill(pool_id pool) noexcept {
    auto* const entries = entries_of(pool);
    auto& home = pools_[pool];
    const auto limit = entries[front_capacity / 2].rank.key;
    auto kept = front_capacity;
    for (; kept != 0 && entries[kept - 1].rank.key >= limit; --kept) {
      const auto& entry = entries[kept - 1];
      if (has_grown(entry.slot, entry.rank.position))
        append(home, as_it_is(entry.slot));
      else
        prepend(home, as_it_is(entry.slot));
    }
    std::copy_backward(entries, entries + kept, entries + front_capacity);
    return home.front = {front_capacity - kept, limit};
  }
  /// Writes the eligible slots of the front in ascending rank; returns how many.
  std::size_t take_front(pool_id pool, const slot_mask& eligible, std::span<slot_id> out) noexcept {
    auto* const entries = entries_of(pool);
    std::size_t count = 0;
    for (auto place = pools_[pool].front.first; place < front_capacity && count < out.size();) {
      const auto& entry = entries[place];
      if (has_grown(entry.slot, entry.rank.position)) {
        place = put_where_due(pool, place);
        continue;
      }
      if (const auto slot = static_cast<slot_id>(entry.slot); eligible.test(slot))
        out[count++] = slot;
      ++place;
    }
    return count;
  }
  /// Moves an entry whose rank has grown behind the entries that are now lower, or to its bucket. Returns the place
  /// of the entry that followed it.
  [[gnu::noinline]] std::size_t put_where_due(pool_id pool, std::size_t place) noexcept {
    auto* const entries = entries_of(pool);
    auto& front = pools_[pool].front;
    const auto n = entries[place].slot;
    const auto rank = ranks_[n];
    if (rank.key >= front.limit) {
      remove(pool, front, place);
      append(pools_[pool], {rank, n});
      return place + 1;
    }
    const auto lower = [&](const ranked_slot& e) {
      return e.rank.key < rank.key ||
             (e.rank.key == rank.key && e.slot != none &&
              (has_grown(e.slot, e.rank.position) || ranks_[e.slot].position < rank.position));
    };
    auto to = place;
    for (; lower(entries[to + 1]); ++to) entries[to] = entries[to + 1];
    entries[to] = {rank, n};
    return place;
  }

  [[nodiscard]] bool linked(std::uint32_t n) const noexcept { return links_[n].next != n; }
  void unlink(std::uint32_t n) noexcept {
    auto& l = links_[n];
    links_[l.previous].next = l.next;
    links_[l.next].previous = l.previous;
    l.previous = l.next = n;
  }
  void link_between(std::uint32_t before, const ranked_slot& entry, std::uint32_t after) noexcept {
    links_[entry.slot] = {entry.rank.position, before, after};
    links_[before].next = entry.slot;
    links_[after].previous = entry.slot;
  }
  void take_place(std::uint32_t from, std::uint32_t to) noexcept {
    const auto l = links_[from];
    links_[to] = l;
    links_[l.previous].next = to;
    links_[l.next].previous = to;
    links_[from].previous = links_[from].next = from;
  }
  void mark(pool_state& home, std::size_t list) noexcept {
    occupied_.set(list);
    home.lowest = std::min(home.lowest, list);
  }
  void append(pool_state& home, const ranked_slot& entry) noexcept {
    const auto list = list_of(home, entry.rank.key);
    const auto end = sentinel(list);
    const auto last = links_[end].previous;
    if (last == end)
      mark(home, list);
    else if (entry.rank < ranks_[last])
      in_order_[list] = 0;
    link_between(last, entry, end);
  }
  /// Pre: the slot's rank is below all ranks in the buckets.
  void prepend(pool_state& home, const ranked_slot& entry) noexcept {
    const auto list = list_of(home, entry.rank.key);
    link_between(sentinel(list), entry, links_[sentinel(list)].next);
    mark(home, list);
  }
  /// Returns the first list from `list` on that holds a slot. A list is marked when it gets a slot, and unmarked
  /// here.
  [[nodiscard]] std::size_t holding(const pool_state& home, std::size_t list) noexcept {
    for (list = occupied_.next(list, home.end); list != home.end;
         list = occupied_.next(list + 1, home.end)) {
      if (links_[sentinel(list)].next < slots_) break;
      occupied_.reset(list);
      in_order_[list] = 1;
    }
    return list;
  }

  /// Moves a slot whose rank has grown to its list. Returns false if it is already there.
  bool moves_on(pool_state& home, std::size_t list, std::uint32_t n) noexcept {
    if (list_of(home, ranks_[n].key) == list) return false;
    unlink(n);
    append(home, as_it_is(n));
    return true;
  }
  std::size_t take(pool_state& home, std::size_t list, const slot_mask& eligible,
                   std::span<slot_id> out) noexcept {
    if (in_order_[list] == 0) sort(home, list);
    std::size_t count = 0;
    for (auto n = links_[sentinel(list)].next; n < slots_ && count < out.size();) {
      const auto after = links_[n].next;
      if (!has_grown(n, links_[n].placed)) {
        if (eligible.test(static_cast<slot_id>(n))) out[count++] = static_cast<slot_id>(n);
      } else if (!moves_on(home, list, n)) {
        // Grown within the bucket: sorts the bucket and starts again, with no stale entry left.
        sort(home, list);
        count = 0;
        n = links_[sentinel(list)].next;
        continue;
      }
      n = after;
    }
    return count;
  }
  [[gnu::noinline]] void sort(pool_state& home, std::size_t list) noexcept {
    std::size_t size = 0;
    for (auto n = links_[sentinel(list)].next; n < slots_;) {
      const auto after = links_[n].next;
      if (!has_grown(n, links_[n].placed) || !moves_on(home, list, n))
        sorted_[size++] = as_it_is(n);
      n = after;
    }
    std::sort(sorted_.begin(), sorted_.begin() + static_cast<std::ptrdiff_t>(size),
              [](const ranked_slot& a, const ranked_slot& b) { return a.rank < b.rank; });
    links_[sentinel(list)].previous = links_[sentinel(list)].next = sentinel(list);
    for (std::size_t i = 0; i < size; ++i)
      link_between(links_[sentinel(list)].previous, sorted_[i], sentinel(list));
    in_order_[list] = 1;
  }

  BucketOf bucket_of_{};
  std::uint32_t slots_ = 0;
  std::vector<pool_id> pool_of_;        // [slot] pool in which it has a rank
  std::vector<slot_rank> ranks_;        // [slot] current rank
  std::vector<link> links_;             // [slot], then one sentinel per pool and bucket
  std::vector<std::uint8_t> in_order_;  // [list] 1: ascending, by rank when placed
  sparse_bits occupied_;                // lists that may hold slots
  per_pool<pool_state> pools_;
  std::vector<ranked_slot> entries_;  // [pool][front_capacity + 1]
  std::vector<ranked_slot> sorted_;
};

/// Buckets of scores whose keys are ordered bits: by the leading bits of a score, enough of them that few slots of a
/// pool share a bucket. All scores below 2^-12 share a bucket, and so do all above 2^20.
class score_buckets {
 public:
  score_buckets() = default;
  explicit score_buckets(const pool_layout& layout) noexcept : mantissa_(mantissa_bits(layout)) {}
  [[nodiscard]] std::size_t operator()(std::uint64_t bits) const noexcept {
    return static_cast<std::size_t>((std::clamp(bits, smallest, largest) - smallest) >>
                                    (52U - mantissa_));
  }
  [[nodiscard]] std::size_t buckets() const noexcept { return (*this)(largest) + 1; }

  /// Mantissa bits that separate most slots of a pool.
  static unsigned mantissa_bits(const pool_layout& layout) noexcept {
    return std::clamp(static_cast<unsigned>(std::bit_width(layout.slots() / layout.pools() / 4)),
                      3U, 9U);
  }

 private:
  static constexpr std::uint64_t smallest = detail::ordered_bits(0x1p-12);
  static constexpr std::uint64_t largest = detail::ordered_bits(0x1p20);
  unsigned mantissa_ = 3;
};

}  // namespace hotset
