// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Event-atomic reuse distances: each expert's depth in the LRU stack when its visit begins. Counts of accesses by
/// distance give LRU's miss curve at every capacity.
///
/// Rule: every distinct key of a visit is measured against the stack before the visit; then all move to its front in
///   the order of their last appearance. A key hits in every LRU cache of at least `distance` slots that also holds
///   the whole visit. So one pass gives the misses at every capacity from the widest union on.
/// Source: algorithms of the event-atomic visit (docs/architecture.md); WiSP eq. 3 is the form for single accesses.
/// Deviations: none.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/planning/curve/recency_bitmap.hpp"

namespace hotset {

/// Threads: compatible. Memory: allocated once.
class reuse_distance {
 public:
  reuse_distance() = default;
  /// keys: in the stack; experts: in one layer, whose ids a visit holds; most_ids: in one visit.
  reuse_distance(std::size_t keys, std::size_t experts, std::size_t most_ids)
      : stack_(keys),
        distinct_(experts, most_ids),
        experts_(std::min(experts, most_ids)),
        order_(experts_.size()) {}

  /// Calls take(key, distance) for each distinct expert, with key = first_key + id; distance 0 is a first use. Skips
  /// ids outside 0..experts-1. Returns the number of distinct experts. Complexity: O(ids), plus a distance and a
  /// touch for each distinct expert.
  template <class Take>
  std::uint32_t visit(id_view<expert_id> ids, std::size_t first_key, Take take) noexcept {
    const auto count = distinct_.collect(ids, experts_.data());
    const id_view<expert_id> experts = std::span(experts_).first(count);
    for (const auto id : experts) {
      const auto key = first_key + index_of(id);
      take(key, stack_.distance(key));
    }
    if (!distinct_.repeated()) {
      for (const auto id : experts) stack_.touch(first_key + index_of(id));
      return count;
    }
    distinct_.last_appearance_order(ids, order_.data());
    for (std::uint32_t i = 0; i < count; ++i)
      stack_.touch(first_key + index_of(experts[order_[i]]));
    return count;
  }

 private:
  recency_bitmap stack_;
  unique_ids distinct_;
  std::vector<expert_id> experts_;
  std::vector<std::uint32_t> order_;
};

/// Accesses by reuse distance. Threads: compatible. Memory: 8 bytes per key, allocated once.
class reuse_histogram {
 public:
  reuse_histogram() : reuse_histogram(0) {}
  explicit reuse_histogram(std::size_t keys) : counts_(keys + 1, 0) {}

  /// Distance 0: a first use. Pre: distance <= keys.
  void add(std::uint32_t distance) noexcept {
    HOTSET_ASSERT(distance < counts_.size());
    ++counts_[distance];
  }
  /// Ends a visit with this many distinct keys.
  void end_visit(std::uint32_t distinct) noexcept {
    accesses_ += distinct;
    widest_ = std::max(widest_, distinct);
  }

  [[nodiscard]] std::size_t keys() const noexcept { return counts_.size() - 1; }
  /// Distinct keys, summed over all visits.
  [[nodiscard]] std::uint64_t accesses() const noexcept { return accesses_; }
  /// First uses, which miss at every capacity.
  [[nodiscard]] std::uint64_t compulsory() const noexcept { return counts_[0]; }
  /// Most distinct keys of one visit. With fewer slots a visit does not fit, and the curve is undefined.
  [[nodiscard]] std::uint32_t widest() const noexcept { return widest_; }
  /// Misses of an LRU cache, by slots from 0 to keys; exact from widest() slots on.
  [[nodiscard]] std::vector<std::uint64_t> misses() const {
    std::vector<std::uint64_t> by_slots(counts_.size());
    std::uint64_t missed = compulsory();
    for (std::size_t slots = keys() + 1; slots-- > 0;) {
      by_slots[slots] = missed;
      missed += slots == 0 ? 0 : counts_[slots];
    }
    return by_slots;
  }

 private:
  std::vector<std::uint64_t> counts_;  ///< [distance]
  std::uint64_t accesses_ = 0;
  std::uint32_t widest_ = 0;
};

}  // namespace hotset
