// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on what divides a budget among consumers.
///
/// | expression | meaning |
/// |---|---|
/// | `A::consumer_type` | who wants memory: its curve, unit, price, floor and cap |
/// | `A::allocation_type` | units of each, bytes and seconds |
/// | `allocator.allocate(consumers, total_bytes)` | a division that gives each at least its floor, at most its cap, and no more than the budget in all; or why there is none |
///
/// Called at set-up and at drained points: it may allocate memory.

#include <concepts>
#include <cstdint>
#include <span>

#include "hotset/core/error.hpp"

// clang-format 14 tears compound requirements apart.
// clang-format off
namespace hotset {

template <class A>
concept quota_allocator = requires(const A allocator,
                                   std::span<const typename A::consumer_type> consumers,
                                   std::uint64_t total_bytes) {
  {
    allocator.allocate(consumers, total_bytes)
  } -> std::same_as<result<typename A::allocation_type>>;
};

}  // namespace hotset
