// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The rank of a slot: a policy's key, then recency.

#include <bit>
#include <cstdint>
#include <limits>

#include "hotset/version.hpp"

namespace hotset {

/// A policy's key, then the recency position: positions are distinct, so the order is total.
struct slot_rank {
  std::uint64_t key = 0;
  std::uint64_t position = 0;
  friend constexpr bool operator==(const slot_rank&, const slot_rank&) = default;
  friend constexpr bool operator<(const slot_rank& a, const slot_rank& b) noexcept {
    // Branch-free: the outcome is unpredictable.
    return static_cast<bool>(
        static_cast<unsigned>(a.key < b.key) |
        (static_cast<unsigned>(a.key == b.key) & static_cast<unsigned>(a.position < b.position)));
  }
};

/// A slot and its rank, side by side.
struct ranked_slot {
  slot_rank rank;
  std::uint32_t slot = 0;
};

/// Rank of an empty slot: after all others, and never chosen.
inline constexpr slot_rank vacant_rank{std::numeric_limits<std::uint64_t>::max(),
                                       std::numeric_limits<std::uint64_t>::max()};

namespace detail {
inline constexpr std::uint64_t sign_bit = std::uint64_t{1} << 63;
/// Maps doubles to integers of the same order; zeros of both signs are equal.
constexpr std::uint64_t ordered_bits(double value) noexcept {
  const auto bits = std::bit_cast<std::uint64_t>(value + 0.0);
  return (bits & sign_bit) != 0 ? ~bits : bits | sign_bit;
}
constexpr double from_ordered_bits(std::uint64_t bits) noexcept {
  return std::bit_cast<double>((bits & sign_bit) != 0 ? bits ^ sign_bit : ~bits);
}
}  // namespace detail

}  // namespace hotset
