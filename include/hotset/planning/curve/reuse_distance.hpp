// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Event-atomic reuse distances: how deep in the LRU stack each expert of a visit lay when the visit began.
///
/// Rule: every distinct key of a visit is measured against the stack as it was before the visit; then all move to its
/// front in the order of their last appearance. A key hits in every LRU cache of at least `distance` slots that
/// also holds the whole visit, so one pass gives the misses at every capacity from the widest union on.
/// Source: algorithms of the event-atomic visit (docs/architecture.md); WiSP eq. 3 is the same per access.
/// Deviations: none.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/numbers/unique_ids.hpp"

namespace hotset {

/// Stack: recency_ranks or recency_bitmap. Threads: compatible. Memory: taken once.
template <class Stack>
class reuse_distance {
 public:
  reuse_distance() = default;
  /// experts: of one layer, whose ids a visit holds; most_ids: of one visit.
  reuse_distance(Stack stack, std::size_t experts, std::size_t most_ids)
      : stack_(std::move(stack)),
        distinct_(experts, most_ids),
        experts_(std::min(experts, most_ids)),
        order_(experts_.size()) {}

  /// Calls take(key, distance) for each distinct expert, keys being first_key + id; distance 0 is a first sight.
  /// Ids outside 0..experts-1 are passed over. Returns the distinct experts. Complexity: O(ids) and a distance and a
  /// touch for each distinct one.
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
  [[nodiscard]] const Stack& stack() const noexcept { return stack_; }

 private:
  Stack stack_;
  unique_ids distinct_;
  std::vector<expert_id> experts_;
  std::vector<std::uint32_t> order_;
};

}  // namespace hotset
