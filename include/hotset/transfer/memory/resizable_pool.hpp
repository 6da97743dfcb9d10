// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A pool of equal units that can give memory back and take more (expert slots, KV blocks, adapter pages), and two
/// within one budget.
///
/// | expression | meaning |
/// |---|---|
/// | `unit_bytes()` | memory of one unit |
/// | `capacity()` | units that there is memory for |
/// | `in_use()` | units that hold something which somebody needs now |
/// | `peak()` | the most that were in use at one time since `reset_peak()` |
/// | `reset_peak()` | begins a new period |
/// | `drained()` | nothing is in flight that names a unit by its place: the pool may be resized |
/// | `shrink(units)` | gives memory back until `units` are left, contents moved together; `busy` if not drained, `invalid_argument` if more units are in use or `units` exceeds the capacity |
/// | `grow(units)` | takes memory until there are `units`; `busy` if not drained, `exceeds_memory` if memory was refused |
/// | `undo()` | optional: takes the last resize back; for a pool whose parts may be unequal, which a number of units cannot tell. Refused as `grow` |
///
/// A call that does not return `ok` has changed nothing. All are `noexcept`.

#include <concepts>
#include <cstdint>

#include "hotset/core/status.hpp"

// clang-format 14 tears compound requirements apart.
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
/// Rule: the pool that shrinks gives its memory back before the other one takes any, so that both together never exceed
/// the larger of the two splits. If the growth is refused the first pool takes its memory again, part by part as it
/// was.
/// Source: WiSP Appendix D, (D1) to (D3). Deviations: none.
/// Errors: busy (one of the pools is not drained), invalid_argument, exceeds_memory; then both pools are as they were,
/// unless what was given back is refused a moment later: then the pool that shrank stays smaller, and works.
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
  // A pool that can undo knows more of what it was than a number of units.
  if constexpr (requires { first.undo(); })
    (void)first.undo();
  else
    (void)detail::resize_to(first, before);
  return changed;
}

}  // namespace hotset
