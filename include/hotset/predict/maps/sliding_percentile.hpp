// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The exact q-th percentile of the last N values.
///
/// Rule: with n values in ascending order, numbered from 0, the percentile is the value at floor(q (n - 1) / 100),
///       without interpolation. The values above it are those above the linearly interpolated percentile: 13 of 64
///       different values for q = 80.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/platform/assert.hpp"

namespace hotset {

/// Bit patterns of floats >= 0 have the order of their values. Values with equal top bits share a bin; each bin is a
/// queue through the ring, so the oldest value overall is the oldest of its bin.
/// Complexity: push O(1); percentile O(values in one bin + bins of one octave), at worst O(N) if all values are close
/// together. Memory: 8 bytes per value and 193 KiB.
class sliding_percentile {
 public:
  /// Pre: 1 <= capacity < 2^32.
  explicit sliding_percentile(std::size_t capacity)
      : patterns_(capacity, 0), next_(capacity, 0), counts_(bins, 0), ends_(bins) {
    HOTSET_ASSERT(capacity >= 1 && capacity <= std::numeric_limits<std::uint32_t>::max());
  }

  /// Adds a value; drops the oldest if there are more than N. Pre: the value is finite and not negative.
  void push(float value) noexcept {
    HOTSET_ASSERT(value >= 0.0F && value <= std::numeric_limits<float>::max());
    const auto pattern = std::bit_cast<std::uint32_t>(value) & ~sign;
    if (size_ == patterns_.size())
      drop_oldest();
    else
      ++size_;
    patterns_[at_] = pattern;
    append(pattern);
    at_ = at_ + 1 == patterns_.size() ? 0 : at_ + 1;
  }

  /// Returns 0 if there is no value. Pre: 0 <= q <= 100.
  [[nodiscard]] float percentile(double q) const noexcept {
    HOTSET_ASSERT(q >= 0.0 && q <= 100.0);
    if (size_ == 0) return 0.0F;
    auto rank = static_cast<std::size_t>(q * static_cast<double>(size_ - 1) / 100.0);
    const auto octave = find(octaves_, rank);
    const auto bin =
        octave * bins_per_octave +
        find(std::span(counts_).subspan(octave * bins_per_octave, bins_per_octave), rank);
    // Sorts by the bits below the bin's, in two digits.
    std::array<std::uint32_t, 512> high{};
    for_each(bin, [&](std::uint32_t pattern) { ++high[high_digit(pattern)]; });
    const auto first = find(high, rank);
    std::array<std::uint32_t, 256> low{};
    for_each(bin, [&](std::uint32_t pattern) {
      if (high_digit(pattern) == first) ++low[pattern & 255U];
    });
    const auto second = find(low, rank);
    return std::bit_cast<float>(
        static_cast<std::uint32_t>((bin << shift) | (first << 8U) | second));
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return patterns_.size(); }

 private:
  static constexpr std::uint32_t sign = 0x80000000U;
  static constexpr unsigned shift = 17;  // of a pattern's 31 bits: 8 of exponent, 6 of fraction
  static constexpr std::size_t bins = std::size_t{1} << (31U - shift);
  static constexpr std::size_t bins_per_octave = std::size_t{1} << (23U - shift);

  struct queue {
    std::uint32_t first = 0, last = 0;
  };

  static std::size_t high_digit(std::uint32_t pattern) noexcept { return (pattern >> 8U) & 511U; }

  /// Returns the bucket with the value of this rank; sets the rank to that within the bucket.
  static std::size_t find(std::span<const std::uint32_t> counts, std::size_t& rank) noexcept {
    std::size_t bucket = 0;
    while (rank >= counts[bucket]) rank -= counts[bucket++];
    return bucket;
  }
  template <class Take>
  void for_each(std::size_t bin, Take take) const noexcept {
    auto slot = ends_[bin].first;
    for (auto left = counts_[bin]; left > 0; --left, slot = next_[slot]) take(patterns_[slot]);
  }
  void append(std::uint32_t pattern) noexcept {
    const auto bin = pattern >> shift;
    const auto slot = static_cast<std::uint32_t>(at_);
    if (counts_[bin]++ == 0)
      ends_[bin].first = slot;
    else
      next_[ends_[bin].last] = slot;
    ends_[bin].last = slot;
    ++octaves_[pattern >> 23U];
  }
  /// Removes the value at `at_`, which the next one replaces.
  void drop_oldest() noexcept {
    const auto pattern = patterns_[at_];
    const auto bin = pattern >> shift;
    ends_[bin].first = next_[at_];
    --counts_[bin];
    --octaves_[pattern >> 23U];
  }

  std::vector<std::uint32_t> patterns_;  // ring
  std::vector<std::uint32_t> next_;      // next younger value of the same bin
  std::vector<std::uint32_t> counts_;    // [bin]
  std::vector<queue> ends_;              // [bin]
  std::array<std::uint32_t, 256> octaves_{};
  std::size_t at_ = 0;
  std::size_t size_ = 0;
};

}  // namespace hotset
