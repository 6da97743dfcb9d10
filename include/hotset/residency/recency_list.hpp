// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Slots in order of arrival or use, one doubly linked list per head, by index and without allocation.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hotset/core/assert.hpp"
#include "hotset/core/ids.hpp"

namespace hotset::inline v0 {

/// Oldest at the front. Complexity: every operation is O(1). Memory: 8 bytes per slot and per head.
class recency_list {
 public:
  recency_list() = default;
  recency_list(std::size_t slots, std::size_t heads) : slots_(slots), links_(slots + heads) {
    for (std::size_t n = 0; n < links_.size(); ++n) links_[n] = {self(n), self(n)};
  }

  /// Appends a slot that is in no list.
  void push_back(std::size_t head, slot_id slot) noexcept {
    const auto end = sentinel(head);
    const auto node = static_cast<std::uint32_t>(slot);
    HOTSET_ASSERT(!contains(slot));
    const auto last = links_[end].previous;
    links_[node] = {last, end};
    links_[last].next = node;
    links_[end].previous = node;
  }
  /// Takes a slot out of whatever list it is in; a slot in none stays so.
  void erase(slot_id slot) noexcept {
    const auto node = static_cast<std::uint32_t>(slot);
    const auto [previous, next] = links_[node];
    links_[previous].next = next;
    links_[next].previous = previous;
    links_[node] = {node, node};
  }
  /// Pre: the slot is in list `head`.
  void move_to_back(std::size_t head, slot_id slot) noexcept {
    const auto end = sentinel(head);
    const auto node = static_cast<std::uint32_t>(slot);
    const auto [previous, next] = links_[node];
    if (next == end) return;
    links_[previous].next = next;
    links_[next].previous = previous;
    const auto last = links_[end].previous;
    links_[node] = {last, end};
    links_[last].next = node;
    links_[end].previous = node;
  }
  [[nodiscard]] bool contains(slot_id slot) const noexcept {
    const auto node = static_cast<std::uint32_t>(slot);
    return links_[node].next != node;
  }
  /// First slot of a list, or no_slot.
  [[nodiscard]] slot_id front(std::size_t head) const noexcept {
    return as_slot(links_[sentinel(head)].next);
  }
  /// The slot after this one, or no_slot at the end of its list.
  [[nodiscard]] slot_id after(slot_id slot) const noexcept {
    return as_slot(links_[static_cast<std::uint32_t>(slot)].next);
  }

 private:
  struct link {
    std::uint32_t previous;
    std::uint32_t next;
  };
  static std::uint32_t self(std::size_t n) noexcept { return static_cast<std::uint32_t>(n); }
  [[nodiscard]] std::uint32_t sentinel(std::size_t head) const noexcept {
    return static_cast<std::uint32_t>(slots_ + head);
  }
  [[nodiscard]] slot_id as_slot(std::uint32_t node) const noexcept {
    return node < slots_ ? static_cast<slot_id>(node) : no_slot;
  }

  std::size_t slots_ = 0;
  std::vector<link> links_;
};

}  // namespace hotset::inline v0
