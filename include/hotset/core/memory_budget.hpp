// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Counts bytes that several pools take from one budget, and refuses requests that would exceed it.

#include <algorithm>
#include <cstdint>

#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// Threads: compatible. Cost: O(1).
class memory_budget {
 public:
  memory_budget() = default;
  explicit memory_budget(std::uint64_t bytes) : limit_(bytes) {}

  /// Takes `bytes`. Returns false and changes nothing if the budget has less left.
  [[nodiscard]] bool take(std::uint64_t bytes) noexcept {
    if (in_use_ > limit_ || bytes > limit_ - in_use_) return false;
    in_use_ += bytes;
    peak_ = std::max(peak_, in_use_);
    return true;
  }
  /// Returns `bytes` to the budget. Pre: at least `bytes` are in use.
  void give_back(std::uint64_t bytes) noexcept {
    HOTSET_ASSERT(bytes <= in_use_);
    in_use_ -= bytes;
  }

  /// Changes the limit. Bytes in use stay in use; requests fail until the new limit allows them.
  void set_limit(std::uint64_t bytes) noexcept { limit_ = bytes; }

  [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }
  [[nodiscard]] std::uint64_t in_use() const noexcept { return in_use_; }
  /// The most bytes in use at any time.
  [[nodiscard]] std::uint64_t peak() const noexcept { return peak_; }

 private:
  std::uint64_t limit_ = 0;
  std::uint64_t in_use_ = 0;
  std::uint64_t peak_ = 0;
};

}  // namespace hotset
