// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots of pools in the order of scores that move by themselves from step to step, of which a choice needs the
/// lowest few.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/platform/compiler.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/eviction/order/lowest_values.hpp"
#include "hotset/eviction/order/pool_members.hpp"
#include "hotset/eviction/order/slot_rank.hpp"

namespace hotset {

/// Order: score, then the least recent first. `Scores` has `score(slot, step)`, at least 0, infinite of a slot that
/// holds nothing; and `nearly(slot, step)`, which costs less and is off by a factor of at most 2^-50. Within a step
/// only a use, a fill or a departure changes a score.
/// A small pool is looked at whole, at every choice. Of a large one a list of the coldest slots is sorted once a
/// step; what is used or filled is put into the list again if it still belongs there.
/// No allocation after construction. Threads: compatible. Complexity: O(slots) at a pool's first choice of a step;
/// then a choice costs O(out) and the ineligible slots passed over, in a small pool O(slots * out), vectorised.
/// Memory: 76 bytes a slot.
class coldest_slots {
 public:
  explicit coldest_slots(const pool_layout& layout)
      : scores_(layout.slots() + padding, vacant),
        used_at_(layout.slots(), 0),
        members_(layout),
        lists_(layout.pools()),
        entries_(members_.places()),
        scratch_(layout.slots()) {}

  /// The slot, which holds nothing, is the pool's from now on, and no longer vacant: another one that settles in the
  /// same visit does not push it out.
  void settle(pool_id pool, slot_id slot) noexcept {
    if (members_.home(slot) != pool)
      members_.settle(pool, slot, [this](slot_id s) { return scores_[s] == vacant; });
    scores_[slot] = 0.0;
  }
  /// The slot was used or filled: its score has changed.
  template <class Scores>
  void use(pool_id pool, slot_id slot, const Scores& scores) noexcept {
    auto& list = lists_[pool];
    used_at_[slot] = ++clock_;
    scores_[slot] = scores.score(slot, list.step);
    if (list.is_sorted && scores_[slot] < list.limit)
      insert(pool, list, ranked(slot, scores_[slot]));
  }
  void vacate(slot_id slot) noexcept { scores_[slot] = vacant; }
  void move(slot_id from, slot_id to) noexcept {
    const auto pool = members_.home(from);
    const auto score = scores_[from];
    vacate(from);  // it makes room if the pool is full
    settle(pool, to);
    scores_[to] = score;
    used_at_[to] = used_at_[from];
    lists_[pool].is_sorted = false;
  }

  /// Writes the eligible slots of a pool in order; returns how many.
  template <class Scores>
  std::size_t select(pool_id pool, step_id step, const slot_mask& eligible, std::span<slot_id> out,
                     const Scores& scores) noexcept {
    if (out.empty()) return 0;
    auto& list = lists_[pool];
    const auto size = members_.size(pool);
    if (size <= scanned_slots && members_.as_built(pool))
      return scan(pool, list, step, eligible, out, scores);
    if (!list.is_sorted || list.step != step) gather(pool, list, step, scores);
    for (int doubled = 0;; ++doubled) {
      const auto count = take(pool, list, eligible, out);
      if (count == out.size() || list.limit == vacant) return count;
      list.limit = doubled < 3 && out.size() <= size / 4 ? 2.0 * list.limit : vacant;
      collect(pool, list, step, scores);
    }
  }

 private:
  /// Pools of at most so many slots are looked at whole, victim by victim. A pool of one layer has one choice a step: a
  /// list that only it would use costs more to sort.
  static constexpr std::size_t scanned_slots = 256;
  static constexpr std::size_t padding = 63;  ///< rows are looked at in whole words
  static constexpr double vacant = std::numeric_limits<double>::infinity();
  /// The limit times this bounds `nearly` of every slot whose score is below the limit.
  static constexpr double spare = 1.0 + 0x1p-48;

  /// The slots whose score in a step is below `limit`, in order.
  struct cold_list {
    bool is_sorted = false;
    step_id step = 0;  ///< that scores are of
    double limit = 1.0;
    std::size_t first = 0;  ///< those before have left
    std::size_t end = 0;
    std::size_t given = 0;  ///< in this step, to set the next one's limit
  };

  [[nodiscard]] ranked_slot ranked(slot_id slot, double score) const noexcept {
    return {{std::bit_cast<std::uint64_t>(score), used_at_[slot]},
            static_cast<std::uint32_t>(slot)};
  }
  static bool is_lower(const ranked_slot& a, const ranked_slot& b) noexcept {
    return a.rank < b.rank;
  }
  [[nodiscard]] ranked_slot* entries_of(pool_id pool) noexcept {
    return entries_.data() + members_.first(pool);
  }

  template <class Scores>
  [[gnu::noinline]] std::size_t scan(pool_id pool, cold_list& list, step_id step,
                                     const slot_mask& eligible, std::span<slot_id> out,
                                     const Scores& scores) noexcept {
    if (list.step != step)
      for (const auto slot : members_.of(pool)) scores_[slot] = scores.score(slot, step);
    list.step = step;
    const auto first = members_.first_slot(pool);
    std::array<std::uint64_t, scanned_slots / 64> eligible_words;
    std::array<std::uint64_t, scanned_slots / 64> found;
    const auto among = std::span(eligible_words).first(words_for(members_.size(pool)));
    eligible.copy(first, members_.size(pool), among.data());
    const auto same = [](double least) { return least == vacant ? -vacant : least; };
    std::size_t count = 0;
    while (count < out.size()) {
      lowest_values(&scores_[first], among, found.data(), same, level_);
      auto lowest = no_slot;
      each_member(std::span(found).first(among.size()), [&](std::size_t n) {
        const auto slot = first + static_cast<std::int32_t>(n);
        if (lowest == no_slot || used_at_[slot] < used_at_[lowest]) lowest = slot;
      });
      if (lowest == no_slot) break;
      out[count++] = lowest;
      const auto n = index_of(lowest) - index_of(first);
      among[n / 64] &= ~(std::uint64_t{1} << n % 64);
    }
    return count;
  }

  std::size_t take(pool_id pool, cold_list& list, const slot_mask& eligible,
                   std::span<slot_id> out) noexcept {
    const auto* const entries = entries_of(pool);
    // If a slot was used or filled since and still belongs here, it stands elsewhere too.
    const auto has_left = [&](const ranked_slot& e) {
      const auto slot = static_cast<slot_id>(e.slot);
      return used_at_[slot] != e.rank.position || scores_[slot] == vacant;
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
  /// Begins a step. The limit follows what the last one needed.
  template <class Scores>
  void gather(pool_id pool, cold_list& list, step_id step, const Scores& scores) noexcept {
    const auto wanted = list.first + list.given + 32;
    if (list.is_sorted && list.end > wanted + 64)
      list.limit = std::bit_cast<double>(entries_of(pool)[wanted].rank.key);
    list.given = 0;
    collect(pool, list, step, scores);
  }
  template <class Scores>
  void collect(pool_id pool, cold_list& list, step_id step, const Scores& scores) noexcept {
    auto* const entries = entries_of(pool);
    const double spared = list.limit * spare;
    // Without a branch: which slots are near the limit is unpredictable.
    std::size_t near = 0;
    for (const auto slot : members_.of(pool)) {
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
    list.is_sorted = true;
  }
  /// Sorts into buckets of near scores, a bucket that many share on its own, then all by insertion. Pre: scores are
  /// below `limit`.
  [[gnu::noinline]] void sort(std::span<ranked_slot> entries, double limit) noexcept {
    constexpr std::size_t buckets = 256;
    constexpr std::uint32_t many = 24;  // insertion sorts fewer faster
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
  void insert(pool_id pool, cold_list& list, const ranked_slot& entry) noexcept {
    auto* const entries = entries_of(pool);
    auto* const place = std::lower_bound(entries + list.first, entries + list.end, entry, is_lower);
    const bool has_room = list.end < members_.capacity(pool);
    const bool is_near_first = place - (entries + list.first) <= entries + list.end - place;
    if (list.first > 0 && (is_near_first || !has_room)) {
      std::copy(entries + list.first, place, entries + list.first - 1);
      --list.first;
      place[-1] = entry;
    } else if (has_room) {
      std::copy_backward(place, entries + list.end, entries + list.end + 1);
      ++list.end;
      *place = entry;
    } else {
      list.is_sorted = false;
    }
  }

  vector_level level_ = best_vector_level();
  per_slot<double>
      scores_;  // of a small pool those of its step, infinite of a slot that holds nothing
  per_slot<std::uint64_t> used_at_;  // [slot] clock_ at its last use or fill
  std::uint64_t clock_ = 0;
  pool_members members_;
  per_pool<cold_list> lists_;
  std::vector<ranked_slot> entries_;  // [place] of the lists
  std::vector<ranked_slot> scratch_;
};

}  // namespace hotset
