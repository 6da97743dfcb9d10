// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a hand-written order is told of a visit.

#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/routing_view.hpp"

namespace benchmarks {

/// Slots are filled in ascending order; none becomes free again.
struct flat_visit {
  const hotset::routing_view& view;
  std::uint32_t layer = 0;
  std::uint32_t first_key = 0;            ///< of the layer's expert 0
  std::span<const std::uint32_t> ids;     ///< distinct, in routed order
  std::span<const std::int32_t> slots;    ///< of each; -1 before it has one
  std::span<const std::uint32_t> missed;  ///< which of them miss
  std::uint32_t held = 0;                 ///< slots from 0 on that held something before the visit
  std::uint32_t fresh = 0;  ///< so many misses come first, and get slots that held nothing
  const std::int32_t* key_of = nullptr;    ///< [slot] -1: none
  const std::uint32_t* seen_in = nullptr;  ///< [expert] the last visit that named it
  std::uint32_t experts = 0;
  std::uint32_t number = 0;  ///< of this visit

  /// Pre: it holds something.
  [[nodiscard]] std::uint32_t held_key(std::uint32_t slot) const noexcept {
    return static_cast<std::uint32_t>(key_of[slot]);
  }
  /// That the visit uses what the slot holds.
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
