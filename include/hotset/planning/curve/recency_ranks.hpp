// SPDX-License-Identifier: Apache-2.0
#pragma once
/// LRU stack of at most 256 keys: the position of each is a byte, and a touch moves all bytes at once in vectors.
///
/// Cost: distance O(1); touch one pass over a byte a key, without a branch.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// Threads: compatible. Memory: taken once.
class recency_ranks {
 public:
  static constexpr std::size_t most_keys = 256;

  recency_ranks() = default;
  /// Pre: keys <= most_keys.
  explicit recency_ranks(std::size_t keys) : blocks_((keys + block - 1) / block) {
    HOTSET_ASSERT(keys <= most_keys);
    // Keys never seen lie below the others in any order; the padding below them is never passed.
    for (std::size_t i = 0; i < blocks_.size() * block; ++i)
      at(i) = static_cast<rank>(lowest + static_cast<std::ptrdiff_t>(i < keys ? i : most_keys - 1));
  }

  /// Distinct keys touched since this one, itself included; 0: never touched. Pre: key < keys.
  [[nodiscard]] std::uint32_t distance(std::size_t key) const noexcept {
    const auto position = position_of(key);
    return position < seen_ ? position + 1 : 0;
  }
  /// Moves the key to the front.
  void touch(std::size_t key) noexcept {
    const rank passed = at(key);
    seen_ += position_of(key) >= seen_ ? 1U : 0U;
    for (auto& ranks : blocks_)
      for (auto& r : ranks.at) r = static_cast<rank>(r + (r < passed ? 1 : 0));
    at(key) = lowest;
  }
  /// Distinct keys touched so far.
  [[nodiscard]] std::size_t seen() const noexcept { return seen_; }

 private:
  // Signed and offset: vectors compare signed bytes in one instruction.
  using rank = std::int8_t;
  static constexpr rank lowest = std::numeric_limits<rank>::min();
  static constexpr std::size_t block = 64;
  struct alignas(64) line {
    rank at[block];
  };

  [[nodiscard]] rank& at(std::size_t i) noexcept { return blocks_[i / block].at[i % block]; }
  [[nodiscard]] std::uint32_t position_of(std::size_t key) const noexcept {
    return static_cast<std::uint32_t>(blocks_[key / block].at[key % block] - lowest);
  }

  std::vector<line> blocks_;
  std::uint32_t seen_ = 0;
};

}  // namespace hotset
