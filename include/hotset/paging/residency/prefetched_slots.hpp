// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots whose experts a prefetcher requested, until the expected visit.

#include <cstddef>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"

namespace hotset {

/// Complexity: remember O(1); forget and settle O(outstanding). No allocation after construction.
class prefetched_slots {
 public:
  explicit prefetched_slots(std::size_t slots) : meant_for_(slots, 0) { slots_.reserve(slots); }

  /// Records that the slot's expert is requested for a step. A later request replaces an earlier one.
  void remember(slot_id slot, step_id step) noexcept {
    if (meant_for_[slot] == 0) slots_.push_back(slot);
    meant_for_[slot] = mark_of(step);
  }
  /// Moves a request to another slot.
  void move(slot_id from, slot_id to) noexcept {
    const auto mark = meant_for_[from];
    if (mark == 0) return;
    forget(from);
    if (meant_for_[to] == 0) slots_.push_back(to);
    meant_for_[to] = mark;
  }
  void forget(slot_id slot) noexcept {
    if (meant_for_[slot] == 0) return;
    meant_for_[slot] = 0;
    std::erase(slots_, slot);
  }
  /// Drops requests whose visit has come: `step` or earlier, in the layer for which `is_of_layer` is true.
  template <class IsOfLayer>
  void settle(step_id step, IsOfLayer is_of_layer) noexcept {
    std::erase_if(slots_, [&](slot_id slot) {
      const bool over = meant_for_[slot] <= mark_of(step) && is_of_layer(slot);
      if (over) meant_for_[slot] = 0;
      return over;
    });
  }
  [[nodiscard]] bool empty() const noexcept { return slots_.empty(); }
  [[nodiscard]] std::span<const slot_id> slots() const noexcept { return slots_; }
  /// Mark of the step for which the slot is requested; 0: not requested.
  [[nodiscard]] step_id meant_for(slot_id slot) const noexcept { return meant_for_[slot]; }

 private:
  per_slot<step_id> meant_for_;
  std::vector<slot_id> slots_;
};

}  // namespace hotset
