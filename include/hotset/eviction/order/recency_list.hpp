// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ids in order of arrival or use: one doubly linked list per head, by index, without allocation.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// Links ids of one kind, from 0 up to a count; -1 means none. The oldest id is at the front.
/// Complexity: every operation is O(1). Memory: 8 bytes per id and per head.
///
/// The two directions are separate arrays: a load of both halves would stall on store forwarding if a neighbour has
/// just written one half.
template <class Id>
class basic_recency_list {
 public:
  static constexpr Id none = static_cast<Id>(-1);

  basic_recency_list() = default;
  basic_recency_list(std::size_t ids, std::size_t heads)
      : ids_(ids), previous_(ids + heads), next_(ids + heads) {
    for (std::size_t n = 0; n < next_.size(); ++n)
      previous_[n] = next_[n] = static_cast<std::uint32_t>(n);
  }

  /// Appends an id that is in no list.
  void push_back(std::size_t head, Id id) noexcept {
    HOTSET_ASSERT(!contains(id));
    link_last(sentinel(head), static_cast<std::uint32_t>(id));
  }
  /// Removes an id from its list, if it is in one.
  void erase(Id id) noexcept {
    const auto node = static_cast<std::uint32_t>(id);
    unlink(node);
    previous_[node] = next_[node] = node;
  }
  /// Pre: the id is in list `head` or in none.
  void move_to_back(std::size_t head, Id id) noexcept {
    const auto node = static_cast<std::uint32_t>(id);
    unlink(node);
    link_last(sentinel(head), node);
  }
  /// Moves several distinct ids, in this order. Unlinks all before it links any, so that no link waits for the one
  /// before it.
  void move_to_back(std::size_t head, std::span<const Id> ids) noexcept {
    move_to_back(head, ids, [](Id id) { return id; });
  }
  /// Moves the distinct ids that the elements name. Shape: id_of(element) is an Id.
  template <class Element, class IdOf>
  void move_to_back(std::size_t head, std::span<const Element> elements, IdOf id_of) noexcept {
    for (const auto& one : elements) unlink(static_cast<std::uint32_t>(id_of(one)));
    const auto end = sentinel(head);
    auto last = previous_[end];
    for (const auto& one : elements) {
      const auto node = static_cast<std::uint32_t>(id_of(one));
      previous_[node] = last;
      next_[last] = node;
      last = node;
    }
    next_[last] = end;
    previous_[end] = last;
  }
  /// Puts `to` in the place of `from`, which is then in no list. Pre: `from` is in a list, `to` in none.
  void take_place(Id from, Id to) noexcept {
    HOTSET_ASSERT(contains(from) && !contains(to));
    const auto old = static_cast<std::uint32_t>(from);
    const auto now = static_cast<std::uint32_t>(to);
    previous_[now] = previous_[old];
    next_[now] = next_[old];
    next_[previous_[now]] = previous_[next_[now]] = now;
    previous_[old] = next_[old] = old;
  }
  [[nodiscard]] bool contains(Id id) const noexcept {
    const auto node = static_cast<std::uint32_t>(id);
    return next_[node] != node;
  }
  /// First id of a list, or none.
  [[nodiscard]] Id front(std::size_t head) const noexcept { return as_id(next_[sentinel(head)]); }
  /// The id after this one, or none at the end of its list.
  [[nodiscard]] Id after(Id id) const noexcept {
    return as_id(next_[static_cast<std::uint32_t>(id)]);
  }
  /// Writes the eligible ids of a list, oldest first; returns how many. Shape: eligible.test(id).
  template <class Mask>
  std::size_t select(std::size_t head, const Mask& eligible, std::span<Id> out) const noexcept {
    std::size_t count = 0;
    for (auto id = front(head); id != none && count < out.size(); id = after(id))
      if (eligible.test(id)) out[count++] = id;
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
    return static_cast<std::uint32_t>(ids_ + head);
  }
  [[nodiscard]] Id as_id(std::uint32_t node) const noexcept {
    return node < ids_ ? static_cast<Id>(node) : none;
  }

  std::size_t ids_ = 0;
  std::vector<std::uint32_t> previous_;
  std::vector<std::uint32_t> next_;
};

/// Slots in order of arrival or use.
using recency_list = basic_recency_list<slot_id>;

}  // namespace hotset
