// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on a pool of equal units that can shrink and grow (expert slots, KV blocks, adapter pages); and a
/// resize of two pools within one budget.
///
/// | expression | meaning |
/// |---|---|
/// | `unit_bytes()` | bytes of one unit |
/// | `capacity()` | number of units with memory |
/// | `in_use()` | number of units whose contents are needed now |
/// | `peak()` | the most units in use at one time since `reset_peak()` |
/// | `reset_peak()` | begins a new period |
/// | `drained()` | no outstanding work refers to a unit by its position, so the pool may be resized |
/// | `shrink(units)` | moves contents together and frees memory until `units` are left; see below |
/// | `grow(units)` | takes memory until there are `units`; see below |
/// | `undo()` | optional: undoes the last resize, for pools with unequal parts. Errors: as `grow` |
///
/// Errors of `shrink`: `busy` if not drained, `invalid_argument` if more units are in use or `units` exceeds the
/// capacity. Errors of `grow`: `busy` if not drained, `exceeds_memory` if memory was refused.
/// A call that does not return `ok` has changed nothing. All calls are `noexcept`.

#include <concepts>
#include <cstdint>

#include "hotset/core/status.hpp"

// clang-format 14 splits compound requirements badly.
// clang-format off
namespace hotset {

template <class P>
concept resizable_pool = requires(P& pool, const P& fixed, std::uint64_t units) {
  { fixed.unit_bytes() } noexcept -> std::same_as<std::uint64_t>;
  { fixed.capacity() } noexcept -> std::same_as<std::uint64_t>;
  { fixed.in_use() } noexcept -> std::same_as<std::uint64_t>;
  { fixed.peak() } noexcept -> std::same_as<std::uint64_t>;
  { fixed.drained() } noexcept -> std::same_as<bool>;
  { pool.reset_peak() } noexcept;
  { pool.shrink(units) } noexcept -> std::same_as<status>;
  { pool.grow(units) } noexcept -> std::same_as<status>;
};

// clang-format on
namespace detail {
template <resizable_pool Pool>
status resize_to(Pool& pool, std::uint64_t units) noexcept {
  if (units == pool.capacity()) return status::ok;
  return units > pool.capacity() ? pool.grow(units) : pool.shrink(units);
}
}  // namespace detail

/// Moves memory from one pool to another within one budget, at a drained point.
/// Rule: the shrinking pool frees its memory before the other one grows. Both together never exceed the larger of the
/// two splits. If the growth is refused, the first pool takes its memory back and restores its parts.
/// Source: WiSP Appendix D, (D1) to (D3). Deviations: none.
/// Errors: busy (a pool is not drained), invalid_argument, exceeds_memory. Both pools are then unchanged, unless the
/// freed memory is refused when it is taken back. In that case the first pool stays smaller and usable.
template <resizable_pool First, resizable_pool Second>
status resize_both(First& first, std::uint64_t first_units, Second& second,
                   std::uint64_t second_units) noexcept {
  if (!first.drained() || !second.drained()) return status::busy;
  if (first_units > first.capacity() && second_units < second.capacity())
    return resize_both(second, second_units, first, first_units);
  const auto before = first.capacity();
  if (const auto refused = detail::resize_to(first, first_units); refused != status::ok)
    return refused;
  const auto changed = detail::resize_to(second, second_units);
  if (changed == status::ok || first_units == before) return changed;
  // A pool with undo() restores unequal parts, which a number of units cannot describe.
  if constexpr (requires { first.undo(); })
    (void)first.undo();
  else
    (void)detail::resize_to(first, before);
  return changed;
}

}  // namespace hotset
