// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The order of lfu over the whole history: of each depth, the key used by the fewest visits goes deeper, of equals the one used
/// longest ago.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/eviction/order/sparse_bits.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/curves/size_ladder.hpp"

namespace hotset::lab {

/// A list per depth and count. At depth 0 a key that is used again stays where it is until it is met there: what is used often is
/// seldom met. Keys of one count leave a depth in the order of their last use, so those below are filled in that order.
/// What leaves one depth is most often the lowest of the next one, too, and passes through without a place in its lists.
/// Cost: O(1) for each use and each key that goes deeper, but for the keys of one count at depth 0 that one is put among, and
/// 1 / 4096 of the counts between the two lowest. Memory: 16 bytes per key, 8 per depth and count up to its highest.
class lfu_depths {
 public:
  lfu_depths(const visit_sequence&, const size_ladder& ladder)
      : sizes_(ladder.sizes()),
        counts_(ladder.shape().keys()),
        last_(counts_.size()),
        links_(counts_.size()),
        lists_(ladder.pools() * sizes_),
        fronts_(std::vector<std::vector<cold_key>>(ladder.pools())),
        arrived_(ladder.shape().distinct_per_visit()) {}

  void use(pool_id, std::uint32_t key, std::size_t depth) noexcept {
    if (depth != 0) {
      if (depth < sizes_) unlink(key);
      arrived_[arrivals_++] = key;
    }
    ++counts_[key];
    last_[key] = ++clock_;
  }
  void pass_on(pool_id pool, std::size_t depth, std::span<const std::uint32_t> coming,
               std::span<std::uint32_t> leaving) {
    auto& lists = lists_of(pool, depth);
    if (depth == 0) {
      for (auto& key : leaving) key = take_idle(lists, fronts_[pool]);
      return;
    }
    auto left = leaving.begin();
    while (left != leaving.end()) {
      const auto lowest = lowest_of(lists);
      for (; left != leaving.end() && !coming.empty() && counts_[coming.front()] < lowest; ++left) {
        *left = coming.front();
        coming = coming.subspan(1);
      }
      if (left == leaving.end()) break;
      *left = links_[lists.end_of(lowest)].next;
      unlink(*left++);
    }
    for (const auto key : coming) append(lists, key);
  }
  /// Only now may the visit's own keys be met at depth 0.
  void end_visit(pool_id pool, std::size_t) {
    visit_began_ = clock_;
    for (const auto key : std::span(arrived_).first(arrivals_)) take_in(pool, key);
    arrivals_ = 0;
  }

 private:
  static constexpr auto none = std::numeric_limits<std::uint32_t>::max();
  struct link {
    std::uint32_t previous = 0, next = 0;
  };
  /// As it came in.
  struct cold_key {
    std::uint32_t key = 0, count = 0;
  };
  static constexpr std::size_t most_in_front = 64;
  /// The lists of one depth: where in the links each count's begins and ends, which of them may have keys.
  struct lists_by_count {
    static constexpr std::size_t chunk = 256;
    std::vector<std::uint32_t> ends;  // [counts / chunk] of the first
    sparse_bits filled;
    std::size_t room = 0;    // of filled
    std::size_t lowest = 0;  // no list with keys is below

    [[nodiscard]] std::size_t counts() const noexcept { return ends.size() * chunk; }
    [[nodiscard]] std::uint32_t end_of(std::size_t count) const noexcept {
      return ends[count / chunk] + static_cast<std::uint32_t>(count % chunk);
    }
  };

  [[nodiscard]] lists_by_count& lists_of(pool_id pool, std::size_t depth) noexcept {
    return lists_[index_of(pool) * sizes_ + depth];
  }
  /// The lowest count from this one on that has keys, or none.
  [[nodiscard]] std::size_t holding(lists_by_count& lists, std::size_t count) noexcept {
    for (;; ++count) {
      count = lists.filled.next(count, lists.counts());
      if (count == lists.counts()) return none;
      const auto end = lists.end_of(count);
      if (links_[end].next != end) return count;
      lists.filled.reset(count);
    }
  }
  [[nodiscard]] std::size_t lowest_of(lists_by_count& lists) noexcept {
    if (lists.lowest < lists.counts()) [[likely]]
      if (const auto end = lists.end_of(lists.lowest); links_[end].next != end) return lists.lowest;
    return lists.lowest = holding(lists, lists.lowest);
  }
  /// What comes in colder than the lists' keys leaves soon, and waits in front of them.
  void take_in(pool_id pool, std::uint32_t key) {
    auto& lists = lists_of(pool, 0);
    auto& front = fronts_[pool];
    const auto count = counts_[key];
    if (count >= lists.lowest || front.size() == most_in_front) return put_where_due(lists, key);
    const auto lower = std::find_if(front.rbegin(), front.rend(),
                                    [count](const cold_key& c) { return c.count > count; });
    front.insert(lower.base(), {key, count});
  }
  /// Gives up the lowest of depth 0 that the visit does not use. Pre: there is one.
  std::uint32_t take_idle(lists_by_count& lists, std::vector<cold_key>& front) {
    // What was used since it came in is moved to the lists: the visit uses none of the rest.
    while (!front.empty() && counts_[front.back().key] != front.back().count) {
      put_where_due(lists, front.back().key);
      front.pop_back();
    }
    const auto lowest = lowest_of(lists);
    if (front.empty() || front.back().count >= lowest) {
      const auto key = lowest_idle(lists, lowest);
      if (front.empty() || is_lower(key, front.back().key)) {
        unlink(key);
        return key;
      }
    }
    const auto key = front.back().key;
    front.pop_back();
    return key;
  }
  /// `key` may be none.
  [[nodiscard]] bool is_lower(std::uint32_t key, std::uint32_t than) const noexcept {
    if (key == none) return false;
    return counts_[key] != counts_[than] ? counts_[key] < counts_[than] : last_[key] < last_[than];
  }
  /// The lowest key of the lists that the visit does not use, or none. Pre: no list with keys is below `count`.
  std::uint32_t lowest_idle(lists_by_count& lists, std::size_t count) {
    for (; count != none; count = holding(lists, count + 1)) {
      const auto end = lists.end_of(count);
      for (auto key = links_[end].next; key != end;) {
        const auto next = links_[key].next;
        if (counts_[key] != count)
          move_where_due(lists, key);
        else if (last_[key] <= visit_began_)
          return key;
        key = next;
      }
    }
    return none;
  }

  void append(lists_by_count& lists, std::uint32_t key) {
    insert_before(list_for(lists, counts_[key]), key);
  }
  void move_where_due(lists_by_count& lists, std::uint32_t key) {
    unlink(key);
    put_where_due(lists, key);
  }
  /// What was moved before may have been used later.
  void put_where_due(lists_by_count& lists, std::uint32_t key) {
    const auto end = list_for(lists, counts_[key]);
    auto at = end;
    while (links_[at].previous != end && last_[links_[at].previous] > last_[key])
      at = links_[at].previous;
    insert_before(at, key);
  }
  void insert_before(std::uint32_t at, std::uint32_t key) noexcept {
    const auto previous = links_[at].previous;
    links_[key] = {previous, at};
    links_[previous].next = links_[at].previous = key;
  }
  /// Whether the list became empty is left to the next search.
  void unlink(std::uint32_t key) noexcept {
    const auto [previous, next] = links_[key];
    links_[previous].next = next;
    links_[next].previous = previous;
  }
  /// The end of a list that is about to get a key.
  std::uint32_t list_for(lists_by_count& lists, std::size_t count) {
    if (count >= lists.counts()) [[unlikely]]
      reach(lists, count);
    lists.filled.set(count);
    lists.lowest = std::min(lists.lowest, count);
    return lists.end_of(count);
  }
  void reach(lists_by_count& lists, std::size_t count) {
    const auto before = lists.counts();
    while (count >= lists.counts()) {
      auto end = static_cast<std::uint32_t>(links_.size());
      lists.ends.push_back(end);
      for (std::size_t i = 0; i < lists_by_count::chunk; ++i, ++end) links_.push_back({end, end});
    }
    if (lists.counts() <= lists.room) return;
    lists.room = 2 * lists.counts();
    sparse_bits filled(lists.room);
    for (std::size_t i = 0; i < before; ++i)
      if (lists.filled.test(i)) filled.set(i);
    lists.filled = std::move(filled);
  }

  std::size_t sizes_;
  std::vector<std::uint32_t> counts_;       // [keys] visits
  std::vector<std::uint32_t> last_;         // [keys] use
  std::vector<link> links_;                 // [keys], then an end for each list
  std::vector<lists_by_count> lists_;       // [pools][sizes]
  per_pool<std::vector<cold_key>> fronts_;  // of depth 0, the lowest last
  std::vector<std::uint32_t> arrived_;      // keys that depth 0 is to take in
  std::size_t arrivals_ = 0;
  std::uint32_t clock_ = 0;
  std::uint32_t visit_began_ = 0;  // the last use before it
};

}  // namespace hotset::lab
