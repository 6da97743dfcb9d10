// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sets with one bit for each member: a set of slots, and any other set as words.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// Calls take(i) for each bit of a set, in ascending order.
template <class Take>
void each_member(std::span<const std::uint64_t> set, Take take) {
  for (std::size_t w = 0; w < set.size(); ++w)
    for (auto left = set[w]; left != 0; left &= left - 1)
      take(w * 64 + static_cast<std::size_t>(std::countr_zero(left)));
}

/// Words of a set with `size` bits.
[[nodiscard]] constexpr std::size_t words_for(std::size_t size) noexcept {
  return (size + 63) / 64;
}

/// Threads: compatible. Memory: slots / 8 bytes, allocated once.
class slot_mask {
 public:
  slot_mask() = default;
  explicit slot_mask(std::size_t slots) : slots_(slots), words_(words_for(slots), 0) {}

  [[nodiscard]] std::size_t slots() const noexcept { return slots_; }
  [[nodiscard]] bool test(slot_id slot) const noexcept {
    return ((words_[word(slot)] >> bit(slot)) & 1U) != 0;
  }
  void set(slot_id slot) noexcept { words_[word(slot)] |= std::uint64_t{1} << bit(slot); }
  void reset(slot_id slot) noexcept { words_[word(slot)] &= ~(std::uint64_t{1} << bit(slot)); }
  void assign(slot_id slot, bool on) noexcept { on ? set(slot) : reset(slot); }
  void clear() noexcept { words_.assign(words_.size(), 0); }

  /// Lowest member >= from, or no_slot. Complexity: O(slots / 64).
  [[nodiscard]] slot_id next(slot_id from = {}) const noexcept {
    auto w = index_of(from) / 64;
    if (w >= words_.size()) return no_slot;
    std::uint64_t rest = words_[w] & (~std::uint64_t{0} << (index_of(from) % 64));
    while (rest == 0) {
      if (++w == words_.size()) return no_slot;
      rest = words_[w];
    }
    return static_cast<slot_id>(w * 64 + static_cast<std::size_t>(std::countr_zero(rest)));
  }
  /// this = a & ~b. Pre: equal sizes. Complexity: O(slots / 64).
  void assign_difference(const slot_mask& a, const slot_mask& b) noexcept {
    HOTSET_ASSERT(a.words_.size() == words_.size() && b.words_.size() == words_.size());
    for (std::size_t w = 0; w < words_.size(); ++w) words_[w] = a.words_[w] & ~b.words_[w];
  }
  /// this = a & b. Pre: equal sizes. Complexity: O(slots / 64).
  void assign_intersection(const slot_mask& a, const slot_mask& b) noexcept {
    HOTSET_ASSERT(a.words_.size() == words_.size() && b.words_.size() == words_.size());
    for (std::size_t w = 0; w < words_.size(); ++w) words_[w] = a.words_[w] & b.words_[w];
  }
  [[nodiscard]] std::span<const std::uint64_t> words() const noexcept { return words_; }
  /// Writes `count` bits from slot `first` on and pads the last word with zeros. Pre: the slots exist, `to` has room
  /// for words_for(count). Complexity: O(count / 64).
  void copy(slot_id first, std::size_t count, std::uint64_t* to) const noexcept {
    HOTSET_ASSERT(index_of(first) + count <= slots_);
    for (auto at = index_of(first); count != 0; at += 64) {
      const auto taken = std::min<std::size_t>(count, 64);
      *to++ = bits_from(static_cast<slot_id>(at)) & (~std::uint64_t{0} >> (64 - taken));
      count -= taken;
    }
  }
  friend bool operator==(const slot_mask&, const slot_mask&) = default;

 private:
  /// Returns 64 bits from slot `first` on, padded with zeros. Pre: slot `first` exists.
  [[nodiscard]] std::uint64_t bits_from(slot_id first) const noexcept {
    const auto at = word(first);
    const std::uint64_t next = at + 1 < words_.size() ? words_[at + 1] : 0;
    // Two shifts because a shift by 64 bits is undefined.
    return words_[at] >> bit(first) | next << 1U << (63U - bit(first));
  }
  [[nodiscard]] std::size_t word(slot_id slot) const noexcept {
    HOTSET_ASSERT(slot >= 0 && index_of(slot) < slots_);
    return index_of(slot) / 64;
  }
  static unsigned bit(slot_id slot) noexcept { return static_cast<unsigned>(slot) % 64; }

  std::size_t slots_ = 0;
  std::vector<std::uint64_t> words_;
};

}  // namespace hotset
