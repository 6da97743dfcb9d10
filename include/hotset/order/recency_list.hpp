// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots in order of arrival or use, one doubly linked list per head, by index and without allocation.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/slot_mask.hpp"

namespace hotset::inline v0 {

/// Oldest at the front. Complexity: every operation is O(1). Memory: 8 bytes per slot and per head.
///
/// The two directions lie in arrays of their own: a link that was written half a visit ago by its neighbour could
/// not be forwarded to one load of both halves.
class recency_list {
 public:
  recency_list() = default;
  recency_list(std::size_t slots, std::size_t heads)
      : slots_(slots), previous_(slots + heads), next_(slots + heads) {
    for (std::size_t n = 0; n < next_.size(); ++n)
      previous_[n] = next_[n] = static_cast<std::uint32_t>(n);
  }

  /// Appends a slot that is in no list.
  void push_back(std::size_t head, slot_id slot) noexcept {
    HOTSET_ASSERT(!contains(slot));
    link_last(sentinel(head), static_cast<std::uint32_t>(slot));
  }
  /// Takes a slot out of whatever list it is in; a slot in none stays so.
  void erase(slot_id slot) noexcept {
    const auto node = static_cast<std::uint32_t>(slot);
    unlink(node);
    previous_[node] = next_[node] = node;
  }
  /// Pre: the slot is in list `head` or in none.
  void move_to_back(std::size_t head, slot_id slot) noexcept {
    const auto node = static_cast<std::uint32_t>(slot);
    unlink(node);
    link_last(sentinel(head), node);
  }
  /// The same for several distinct slots, in this order. All are taken out before any is put back:
  /// then no link waits for the one before it.
  void move_to_back(std::size_t head, std::span<const slot_id> slots) noexcept {
    move_to_back(head, slots, [](slot_id slot) { return slot; });
  }
  /// As above, of what each element names. Shape: slot_of(element) is a slot_id.
  template <class Element, class SlotOf>
  void move_to_back(std::size_t head, std::span<const Element> elements, SlotOf slot_of) noexcept {
    for (const auto& one : elements) unlink(static_cast<std::uint32_t>(slot_of(one)));
    const auto end = sentinel(head);
    auto last = previous_[end];
    for (const auto& one : elements) {
      const auto node = static_cast<std::uint32_t>(slot_of(one));
      previous_[node] = last;
      next_[last] = node;
      last = node;
    }
    next_[last] = end;
    previous_[end] = last;
  }
  /// Slot `to`, which is in no list, stands where `from` stood, which then is in none. Pre: `from` is in a list.
  void take_place(slot_id from, slot_id to) noexcept {
    HOTSET_ASSERT(contains(from) && !contains(to));
    const auto old = static_cast<std::uint32_t>(from);
    const auto now = static_cast<std::uint32_t>(to);
    previous_[now] = previous_[old];
    next_[now] = next_[old];
    next_[previous_[now]] = previous_[next_[now]] = now;
    previous_[old] = next_[old] = old;
  }
  [[nodiscard]] bool contains(slot_id slot) const noexcept {
    const auto node = static_cast<std::uint32_t>(slot);
    return next_[node] != node;
  }
  /// First slot of a list, or no_slot.
  [[nodiscard]] slot_id front(std::size_t head) const noexcept {
    return as_slot(next_[sentinel(head)]);
  }
  /// The slot after this one, or no_slot at the end of its list.
  [[nodiscard]] slot_id after(slot_id slot) const noexcept {
    return as_slot(next_[static_cast<std::uint32_t>(slot)]);
  }
  /// Writes the eligible slots of a list, oldest first; returns how many.
  std::size_t select(std::size_t head, const slot_mask& eligible,
                     std::span<slot_id> out) const noexcept {
    std::size_t count = 0;
    for (auto s = front(head); s != no_slot && count < out.size(); s = after(s))
      if (eligible.test(s)) out[count++] = s;
    return count;
  }

 private:
  void unlink(std::uint32_t node) noexcept {
    const auto before = previous_[node];
    const auto behind = next_[node];
    next_[before] = behind;
    previous_[behind] = before;
  }
  void link_last(std::uint32_t end, std::uint32_t node) noexcept {
    const auto last = previous_[end];
    previous_[node] = last;
    next_[node] = end;
    next_[last] = node;
    previous_[end] = node;
  }
  [[nodiscard]] std::uint32_t sentinel(std::size_t head) const noexcept {
    return static_cast<std::uint32_t>(slots_ + head);
  }
  [[nodiscard]] slot_id as_slot(std::uint32_t node) const noexcept {
    return node < slots_ ? static_cast<slot_id>(node) : no_slot;
  }

  std::size_t slots_ = 0;
  std::vector<std::uint32_t> previous_;
  std::vector<std::uint32_t> next_;
};

}  // namespace hotset::inline v0
