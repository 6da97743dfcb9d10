// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A set of integers below a fixed size, searched in order.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// Threads: compatible. Complexity: set and reset O(1); next O(1 + members' distance / 4096), amortised.
/// Memory: size / 8 bytes, allocated once.
class sparse_bits {
 public:
  sparse_bits() = default;
  explicit sparse_bits(std::size_t size)
      : words_((size + 63) / 64, 0), occupied_((words_.size() + 63) / 64, 0) {}

  void set(std::size_t n) noexcept {
    HOTSET_ASSERT(n / 64 < words_.size());
    words_[n / 64] |= bit(n);
    occupied_[n / 4096] |= bit(n / 64);
  }
  /// Clears a bit. The next search finds out if the word became empty.
  void reset(std::size_t n) noexcept {
    HOTSET_ASSERT(n / 64 < words_.size());
    words_[n / 64] &= ~bit(n);
  }
  /// Lowest member of [from, end), or end. Pre: end <= size.
  [[nodiscard]] std::size_t next(std::size_t from, std::size_t end) noexcept {
    if (from >= end) return end;
    auto w = from / 64;
    if (const auto rest = words_[w] & (~std::uint64_t{0} << (from % 64)); rest != 0)
      return before(end, w * 64 + lowest(rest));
    ++w;
    for (auto o = w / 64; o * 4096 < end; ++o) {
      auto rest = o == w / 64 ? occupied_[o] & (~std::uint64_t{0} << (w % 64)) : occupied_[o];
      for (; rest != 0; rest &= rest - 1) {
        const auto found = o * 64 + lowest(rest);
        if (words_[found] != 0) return before(end, found * 64 + lowest(words_[found]));
        occupied_[o] &= ~bit(found);
      }
    }
    return end;
  }
  /// Highest member of [from, end), or end. Pre: end <= size. Complexity: O(words of the range).
  [[nodiscard]] std::size_t last(std::size_t from, std::size_t end) const noexcept {
    for (auto at = end; at > from; at = (at - 1) / 64 * 64) {
      const auto w = (at - 1) / 64;
      const auto rest = words_[w] & (~std::uint64_t{0} >> (63 - (at - 1) % 64));
      if (rest == 0) continue;
      const auto found = w * 64 + 63 - static_cast<std::size_t>(std::countl_zero(rest));
      return found >= from ? found : end;
    }
    return end;
  }
  /// Calls use(n) for each member of [from, end), ascending, until it returns false. use(n) may reset n.
  template <class Use>
  void each_up(std::size_t from, std::size_t end, Use use) noexcept {
    for (auto n = next(from, end); n != end && use(n);) n = next(n + 1, end);
  }
  /// Calls use(n) for each member of [from, end), descending, until it returns false. use(n) may reset n.
  template <class Use>
  void each_down(std::size_t from, std::size_t end, Use use) noexcept {
    for (auto n = last(from, end); n != end && use(n); n = last(from, end)) end = n;
  }

 private:
  static std::uint64_t bit(std::size_t n) noexcept { return std::uint64_t{1} << (n % 64); }
  static std::size_t lowest(std::uint64_t word) noexcept {
    return static_cast<std::size_t>(std::countr_zero(word));
  }
  static std::size_t before(std::size_t end, std::size_t n) noexcept { return n < end ? n : end; }

  std::vector<std::uint64_t> words_;
  std::vector<std::uint64_t> occupied_;  // bit w: words_[w] may have members
};

}  // namespace hotset
