// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Orders a pool's slots by scores that change from step to step, and finds the lowest few.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/eviction/order/lowest_values.hpp"
#include "hotset/eviction/order/slot_rank.hpp"

namespace hotset {

/// Order: score, then least recent first. `Scores` has `score(slot, step)`, finite and at least 0. It also has
/// `nearly(slot, step)`, which is cheaper and has a relative error of at most 2^-50. Within a step only a use, a fill
/// or an eviction changes a score.
/// A small pool is scanned at every choice. For a large pool, a list of the coldest slots is sorted once a step,
/// about as many as the last step needed. A slot that is used or filled is inserted again if it still belongs in the
/// list. A small pool uses the list too once a quota change has lent a slot.
/// No allocation after construction. Threads: compatible. Complexity: O(slots) at a pool's first choice of a step;
/// then a choice costs O(out) plus skipped ineligible slots. In a small pool a choice costs O(slots * out),
/// vectorised.
/// Memory: 80 bytes per slot.
class coldest_slots {
 public:
  explicit coldest_slots(const pool_layout& layout)
      : scores_(layout.slots() + padding, all),
        used_at_(layout.slots(), vacant),
        place_(layout.slots(), 0),
        pool_of_(layout.slots(), pool_id{}),
        lists_(layout.pools()),
        scratch_(layout.slots()) {
    std::size_t places = 0;
    for (const auto p : lists_.ids()) {
      lists_[p].place = places;
      places += lists_[p].capacity = layout.most_slots(p);
      lists_[p].first_slot = layout.at(p).first_slot;
      lists_[p].slots = static_cast<std::size_t>(layout.at(p).slots);
    }
    slots_.assign(places, no_slot);
    entries_.resize(places);
  }

  /// Adds an empty slot to the pool.
  void settle(pool_id pool, slot_id slot) noexcept {
    auto& list = lists_[pool];
    HOTSET_ASSERT(list.size < list.capacity);
    put(pool, slot, list.place + list.size++);
  }
  /// The slot was used or filled: its score has changed.
  template <class Scores>
  void use(pool_id pool, slot_id slot, const Scores& scores) noexcept {
    auto& list = lists_[pool];
    used_at_[slot] = ++clock_;
    scores_[slot] = scores.score(slot, list.step);
    if (list.is_valid && scores_[slot] < list.limit) insert(list, ranked(slot, scores_[slot]));
  }
  void vacate(slot_id slot) noexcept {
    const auto pool = pool_of_[slot];
    auto& list = lists_[pool];
    used_at_[slot] = vacant;
    scores_[slot] = all;
    put(pool, slots_[list.place + --list.size], place_[slot]);
  }
  void move(slot_id from, slot_id to) noexcept {
    used_at_[to] = std::exchange(used_at_[from], vacant);
    scores_[to] = std::exchange(scores_[from], all);
    put(pool_of_[from], to, place_[from]);
    lists_[pool_of_[to]].is_valid = false;
  }

  /// Writes the eligible slots of a pool in order; returns how many.
  template <class Scores>
  std::size_t select(pool_id pool, step_id step, const slot_mask& eligible, std::span<slot_id> out,
                     const Scores& scores) noexcept {
    if (out.empty()) return 0;
    auto& list = lists_[pool];
    if (is_as_built_ && list.slots <= scanned_slots) return scan(list, step, eligible, out, scores);
    if (!list.is_valid || list.step != step) gather(list, step, scores);
    for (int doubled = 0;; ++doubled) {
      const auto count = take(list, eligible, out);
      if (count == out.size() || list.limit == all) return count;
      list.limit = doubled < 3 && out.size() <= list.size / 4 ? 2.0 * list.limit : all;
      collect(list, step, scores);
    }
  }

 private:
  static constexpr double all = std::numeric_limits<double>::infinity();
  static constexpr std::uint64_t vacant = 0;
  /// Pools of at most this many slots are scanned for each victim. A pool of one layer makes one choice per step:
  /// sorting a list for it costs more.
  static constexpr std::size_t scanned_slots = 256;
  static constexpr std::size_t padding = 63;  ///< slots; rows are read in whole words
  /// `limit` times this bounds `nearly` of every slot whose score is below `limit`.
  static constexpr double spare = 1.0 + 0x1p-48;

  /// A pool's occupied slots, and its entries: the slots whose score in a step is below `limit`, in order.
  struct cold_list {
    std::size_t place = 0;  ///< position of its first slot and of its first entry
    std::size_t size = 0;   ///< slots
    std::size_t capacity = 0;
    slot_id first_slot{};   ///< first slot of the pool as built
    std::size_t slots = 0;  ///< number of slots as built
    bool is_valid = false;  ///< the entries belong to `step`
    step_id step = 0;
    double limit = 1.0;
    std::size_t first = 0;  ///< entries before it are gone
    std::size_t end = 0;    ///< end of the entries
    std::size_t given = 0;  ///< victims in this step; sets the next step's limit
  };

  [[nodiscard]] std::span<const slot_id> held(const cold_list& list) const noexcept {
    return std::span(slots_).subspan(list.place, list.size);
  }
  [[nodiscard]] ranked_slot ranked(slot_id slot, double score) const noexcept {
    return {{std::bit_cast<std::uint64_t>(score), used_at_[slot]},
            static_cast<std::uint32_t>(slot)};
  }
  static bool is_lower(const ranked_slot& a, const ranked_slot& b) noexcept {
    return a.rank < b.rank;
  }
  void put(pool_id pool, slot_id slot, std::size_t place) noexcept {
    const auto& list = lists_[pool];
    is_as_built_ = is_as_built_ && index_of(slot) - index_of(list.first_slot) < list.slots;
    pool_of_[slot] = pool;
    slots_[place] = slot;
    place_[slot] = static_cast<std::uint32_t>(place);
  }

  template <class Scores>
  [[gnu::noinline]] std::size_t scan(cold_list& list, step_id step, const slot_mask& eligible,
                                     std::span<slot_id> out, const Scores& scores) noexcept {
    if (list.step != step)
      for (const auto slot : held(list)) scores_[slot] = scores.score(slot, step);
    list.step = step;
    std::array<std::uint64_t, scanned_slots / 64> eligible_words;
    std::array<std::uint64_t, scanned_slots / 64> found;
    const auto among = std::span(eligible_words).first(words_for(list.slots));
    eligible.copy(list.first_slot, list.slots, among.data());
    const auto same = [](double least) { return least == all ? -all : least; };
    std::size_t count = 0;
    while (count < out.size()) {
      lowest_values(&scores_[list.first_slot], among, found.data(), same, level_);
      auto lowest = no_slot;
      each_member(std::span(found).first(among.size()), [&](std::size_t n) {
        const auto slot = list.first_slot + static_cast<std::int32_t>(n);
        if (lowest == no_slot || used_at_[slot] < used_at_[lowest]) lowest = slot;
      });
      if (lowest == no_slot) break;
      out[count++] = lowest;
      const auto n = index_of(lowest) - index_of(list.first_slot);
      among[n / 64] &= ~(std::uint64_t{1} << n % 64);
    }
    return count;
  }

  std::size_t take(cold_list& list, const slot_mask& eligible, std::span<slot_id> out) noexcept {
    const auto* const entries = &entries_[list.place];
    // An entry is stale if its slot was used, filled or evicted since. If the slot still belongs here, it has another
    // entry.
    const auto has_left = [&](const ranked_slot& e) {
      return used_at_[static_cast<slot_id>(e.slot)] != e.rank.position;
    };
    while (list.first < list.end && has_left(entries[list.first])) ++list.first;
    std::size_t count = 0;
    for (auto n = list.first; n < list.end && count < out.size(); ++n) {
      const auto slot = static_cast<slot_id>(entries[n].slot);
      if (eligible.test(slot) && !has_left(entries[n])) out[count++] = slot;
    }
    list.given += count;
    return count;
  }
  /// Begins a step. The limit follows the last step's need.
  template <class Scores>
  void gather(cold_list& list, step_id step, const Scores& scores) noexcept {
    const auto wanted = list.first + list.given + 32;
    if (list.end > wanted + 64)
      list.limit = std::bit_cast<double>(entries_[list.place + wanted].rank.key);
    list.given = 0;
    collect(list, step, scores);
  }
  template <class Scores>
  void collect(cold_list& list, step_id step, const Scores& scores) noexcept {
    auto* const entries = &entries_[list.place];
    const double spared = list.limit * spare;
    // Branch-free: which slots are near the limit is unpredictable.
    std::size_t near = 0;
    for (const auto slot : held(list)) {
      entries[near].slot = static_cast<std::uint32_t>(slot);
      near += static_cast<std::size_t>(scores.nearly(slot, step) <= spared);
    }
    std::size_t size = 0;
    for (std::size_t n = 0; n < near; ++n) {
      const auto slot = static_cast<slot_id>(entries[n].slot);
      const auto exact = scores.score(slot, step);
      entries[size] = ranked(slot, exact);
      size += static_cast<std::size_t>(exact < list.limit);
    }
    sort(std::span(entries, size), list.limit);
    list.first = 0;
    list.end = size;
    list.step = step;
    list.is_valid = true;
  }
  /// Sorts into buckets of near scores, sorts crowded buckets on their own, then sorts all by insertion. Pre: scores
  /// are below `limit`.
  [[gnu::noinline]] void sort(std::span<ranked_slot> entries, double limit) noexcept {
    constexpr std::size_t buckets = 256;
    constexpr std::uint32_t many = 24;  // insertion sort is faster for fewer
    const double scale = static_cast<double>(buckets) / limit;
    const auto bucket_of = [scale](const ranked_slot& e) {
      const double place = std::bit_cast<double>(e.rank.key) * scale;
      return place < buckets - 1 ? static_cast<std::size_t>(place) : buckets - 1;
    };
    std::array<std::uint32_t, buckets + 1> ends{};
    for (const auto& e : entries) ++ends[bucket_of(e) + 1];
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    for (const auto& e : entries) scratch_[ends[bucket_of(e)]++] = e;
    std::uint32_t first = 0;
    for (const auto end : ends) {
      if (end - first > many) std::sort(scratch_.data() + first, scratch_.data() + end, is_lower);
      first = end;
    }
    for (std::size_t n = 0; n < entries.size(); ++n) {
      auto to = n;
      for (; to > 0 && is_lower(scratch_[n], entries[to - 1]); --to) entries[to] = entries[to - 1];
      entries[to] = scratch_[n];
    }
  }
  void insert(cold_list& list, const ranked_slot& entry) noexcept {
    auto* const first = &entries_[list.place] + list.first;
    auto* const end = &entries_[list.place] + list.end;
    auto* const place = std::lower_bound(first, end, entry, is_lower);
    const bool has_room = list.end < list.capacity;
    if (list.first > 0 && (place - first <= end - place || !has_room)) {
      std::copy(first, place, first - 1);
      --list.first;
      place[-1] = entry;
    } else if (has_room) {
      std::copy_backward(place, end, end + 1);
      ++list.end;
      *place = entry;
    } else {
      list.is_valid = false;
    }
  }

  vector_level level_ = best_vector_level();
  bool is_as_built_ = true;  ///< no pool has another pool's slot
  per_slot<double> scores_;  ///< [slot] score in the pool's step; infinite: empty slot
  /// [slot] clock_ at the last use or fill; `vacant`: empty slot.
  per_slot<std::uint64_t> used_at_;
  per_slot<std::uint32_t> place_;  ///< [slot] position in slots_
  per_slot<pool_id> pool_of_;
  std::uint64_t clock_ = 0;
  per_pool<cold_list> lists_;
  std::vector<slot_id> slots_;        ///< [pool, place] in any order
  std::vector<ranked_slot> entries_;  ///< [pool, place]
  std::vector<ranked_slot> scratch_;
};

}  // namespace hotset
