// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Arguments of a hand-written order for one visit.

#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/routing_view.hpp"

namespace benchmarks {

/// Slots are filled in ascending order; none becomes free again.
struct flat_visit {
  const hotset::routing_view& view;
  std::uint32_t layer = 0;
  std::uint32_t first_key = 0;            ///< key of the layer's expert 0
  std::span<const std::uint32_t> ids;     ///< distinct, in routed order
  std::span<const std::int32_t> slots;    ///< slot of each; -1 before it has one
  std::span<const std::uint32_t> missed;  ///< indices of the misses
  /// Number of slots in use before the visit; they are the first ones.
  std::uint32_t held = 0;
  std::uint32_t fresh = 0;                 ///< the first misses, which get free slots
  const std::int32_t* key_of = nullptr;    ///< [slot] -1: none
  const std::uint32_t* seen_in = nullptr;  ///< [expert] last visit that named it
  std::uint32_t experts = 0;
  std::uint32_t number = 0;  ///< number of this visit

  /// Key in a slot. Pre: the slot is in use.
  [[nodiscard]] std::uint32_t held_key(std::uint32_t slot) const noexcept {
    return static_cast<std::uint32_t>(key_of[slot]);
  }
  /// Whether the visit uses the slot's key.
  [[nodiscard]] bool uses(std::uint32_t slot) const noexcept {
    const auto id = held_key(slot) - first_key;
    return id < experts && seen_in[id] == number;
  }
  [[nodiscard]] std::uint32_t key(std::size_t i) const noexcept { return first_key + ids[i]; }
  [[nodiscard]] std::uint32_t slot(std::size_t i) const noexcept {
    return static_cast<std::uint32_t>(slots[i]);
  }
};

}  // namespace benchmarks
