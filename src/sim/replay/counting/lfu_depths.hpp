// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The order of lfu over the whole history: of each depth, the key used by the fewest visits goes deeper, of equals the one used
/// longest ago.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/order/sparse_bits.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "sim/replay/counting/size_ladder.hpp"

namespace hotset::inline v0::sim {

/// A list per depth and count. At depth 0 a key that is used again stays where it is until it is met there: what is used often is
/// seldom met. Keys of one count leave a depth in the order of their last use, so those below are filled in that order.
/// What leaves one depth is most often the lowest of the next one, too, and passes through without a place in its lists.
/// Cost: O(1) for each use and each key that goes deeper, but for the keys of one count at depth 0 that one is put among, and
/// 1 / 4096 of the counts between the two lowest. Memory: 20 bytes per key, 8 per depth and count up to its highest.
class lfu_depths {
 public:
  lfu_depths(const visit_sequence&, const size_ladder& ladder)
      : sizes_(ladder.sizes()),
        counts_(ladder.shape().keys()),
        last_(counts_.size()),
        places_(counts_.size()),
        lists_(ladder.pools() * sizes_) {}

  void use(pool_id pool, std::uint32_t key, std::size_t depth) noexcept {
    if (depth != 0 && depth < sizes_) remove(lists_of(pool, depth), key);
    ++counts_[key];
    last_[key] = ++clock_;
    if (depth != 0) append(lists_of(pool, 0), key);
  }
  void pass_on(pool_id pool, std::size_t depth, std::span<const std::uint32_t> coming,
               std::span<std::uint32_t> leaving) noexcept {
    auto& lists = lists_of(pool, depth);
    for (auto& key : leaving) {
      const auto lowest = lists.lowest();
      if (!coming.empty() && counts_[coming.front()] < lowest) {
        key = coming.front();
        coming = coming.subspan(1);
      } else {
        key = depth == 0 ? lowest_idle(lists) : lists[lowest].first;
        remove(lists, key);
      }
    }
    for (const auto key : coming) append(lists, key);
  }
  void end_visit(pool_id, std::size_t) noexcept { visit_began_ = clock_; }

 private:
  static constexpr auto none = std::numeric_limits<std::uint32_t>::max();
  /// In order of last use.
  struct key_list {
    std::uint32_t first = none, last = none;
  };
  /// Where a key is linked: among those of `count`.
  struct place {
    std::uint32_t previous = none, next = none, count = 0;
  };
  /// Lists by count, of one depth.
  class lists_by_count {
   public:
    [[nodiscard]] key_list& operator[](std::size_t count) noexcept { return lists_[count]; }
    /// The lowest count that has keys, or one beyond all counts.
    [[nodiscard]] std::size_t lowest() noexcept { return lowest_ = next(lowest_); }
    [[nodiscard]] std::size_t next(std::size_t count) noexcept {
      const auto found = filled_.next(count, lists_.size());
      return found < lists_.size() ? found : none;
    }
    /// The count's list is about to get a key.
    key_list& fill(std::size_t count) {
      if (count >= lists_.size()) reach(count);
      filled_.set(count);
      lowest_ = std::min(lowest_, count);
      return lists_[count];
    }
    void clear(std::size_t count) noexcept { filled_.reset(count); }

   private:
    void reach(std::size_t count) {
      lists_.resize(std::max(count + 1, 2 * lists_.size()));
      filled_ = sparse_bits(lists_.size());
      for (std::size_t i = 0; i < lists_.size(); ++i)
        if (lists_[i].first != none) filled_.set(i);
    }

    std::vector<key_list> lists_;
    sparse_bits filled_;
    std::size_t lowest_ = 0;
  };

  [[nodiscard]] lists_by_count& lists_of(pool_id pool, std::size_t depth) noexcept {
    return lists_[index_of(pool) * sizes_ + depth];
  }
  void append(lists_by_count& lists, std::uint32_t key) {
    auto& list = lists.fill(counts_[key]);
    insert(list, key, list.last);
  }
  /// After `previous`, or in front of all.
  void insert(key_list& list, std::uint32_t key, std::uint32_t previous) noexcept {
    const auto next = previous == none ? list.first : places_[previous].next;
    places_[key] = {previous, next, counts_[key]};
    (previous == none ? list.first : places_[previous].next) = key;
    (next == none ? list.last : places_[next].previous) = key;
  }
  void remove(lists_by_count& lists, std::uint32_t key) noexcept {
    const auto [previous, next, count] = places_[key];
    auto& list = lists[count];
    (previous == none ? list.first : places_[previous].next) = next;
    (next == none ? list.last : places_[next].previous) = previous;
    if (list.first == none) lists.clear(count);
  }
  /// The lowest that the visit does not use. Pre: there is one.
  std::uint32_t lowest_idle(lists_by_count& lists) {
    for (auto count = lists.lowest();; count = lists.next(count + 1))
      for (auto key = lists[count].first; key != none;) {
        const auto next = places_[key].next;
        if (counts_[key] != count)
          put_where_due(lists, key);
        else if (last_[key] <= visit_began_)
          return key;
        key = next;
      }
  }
  void put_where_due(lists_by_count& lists, std::uint32_t key) {
    remove(lists, key);
    auto& list = lists.fill(counts_[key]);
    auto previous = list.last;
    while (previous != none && last_[previous] > last_[key]) previous = places_[previous].previous;
    insert(list, key, previous);
  }

  std::size_t sizes_;
  std::vector<std::uint32_t> counts_;  // [keys] visits
  std::vector<std::uint32_t> last_;    // [keys] use
  std::vector<place> places_;          // [keys]
  std::vector<lists_by_count> lists_;  // [pools][sizes]
  std::uint32_t clock_ = 0;
  std::uint32_t visit_began_ = 0;  // the last use before it
};

}  // namespace hotset::inline v0::sim
