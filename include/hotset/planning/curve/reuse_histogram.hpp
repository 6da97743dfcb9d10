// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How many accesses had each reuse distance, which is the miss curve of LRU at every capacity.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// Threads: compatible. Memory: 8 bytes a key, taken once.
class reuse_histogram {
 public:
  reuse_histogram() : reuse_histogram(0) {}
  explicit reuse_histogram(std::size_t keys) : counts_(keys + 1, 0) {}

  /// Distance 0: a first sight. Pre: distance <= keys.
  void add(std::uint32_t distance) noexcept {
    HOTSET_ASSERT(distance < counts_.size());
    ++counts_[distance];
  }
  /// A visit of so many distinct keys ended.
  void end_visit(std::uint32_t distinct) noexcept {
    accesses_ += distinct;
    widest_ = std::max(widest_, distinct);
  }

  [[nodiscard]] std::size_t keys() const noexcept { return counts_.size() - 1; }
  /// Distinct keys of all visits.
  [[nodiscard]] std::uint64_t accesses() const noexcept { return accesses_; }
  /// First sights, which miss at every capacity.
  [[nodiscard]] std::uint64_t compulsory() const noexcept { return counts_[0]; }
  /// Most distinct keys of one visit: below so many slots a visit does not fit, and the curve says nothing.
  [[nodiscard]] std::uint32_t widest() const noexcept { return widest_; }
  /// Accesses at this distance; 0: first sights. Pre: distance <= keys.
  [[nodiscard]] std::uint64_t count(std::size_t distance) const noexcept {
    HOTSET_ASSERT(distance < counts_.size());
    return counts_[distance];
  }
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
  std::vector<std::uint64_t> counts_;  ///< by distance
  std::uint64_t accesses_ = 0;
  std::uint32_t widest_ = 0;
};

}  // namespace hotset
