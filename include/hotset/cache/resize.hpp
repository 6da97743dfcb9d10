// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Moves memory from one pool to another within one budget, at a drained point.
///
/// Rule: the pool that shrinks gives its memory back before the other one takes any, so that both together never exceed
/// the larger of the two splits. If the growth is refused the first pool takes its memory again, part by part as it was.
/// Source: WiSP Appendix D, (D1) to (D3).
/// Deviations: none.

#include <concepts>
#include <cstdint>

#include "hotset/core/status.hpp"
#include "hotset/transfer/memory/resizable_pool.hpp"

namespace hotset {

namespace detail {
/// A pool that can undo knows more of what it was than a number of units.
template <resizable_pool Pool>
void take_back(Pool& pool, std::uint64_t units) noexcept {
  if constexpr (requires {
                  { pool.undo() }
                  noexcept->std::same_as<status>;
                })
    (void)pool.undo();
  else
    (void)(units > pool.capacity() ? pool.grow(units) : pool.shrink(units));
}
}  // namespace detail

/// Errors: busy (one of the pools is not drained), invalid_argument, exceeds_memory; then both pools are as they were,
/// unless what was given back is refused a moment later: then the pool that shrank stays smaller, and works.
template <resizable_pool First, resizable_pool Second>
status resize_both(First& first, std::uint64_t first_units, Second& second,
                   std::uint64_t second_units) noexcept {
  if (!first.drained() || !second.drained()) return status::busy;
  if (first_units > first.capacity() && second_units < second.capacity())
    return resize_both(second, second_units, first, first_units);
  const auto before = first.capacity();
  const auto changed = first_units < before   ? first.shrink(first_units)
                       : first_units > before ? first.grow(first_units)
                                              : status::ok;
  if (changed != status::ok) return changed;
  const auto other = second_units < second.capacity()   ? second.shrink(second_units)
                     : second_units > second.capacity() ? second.grow(second_units)
                                                        : status::ok;
  if (other == status::ok) return status::ok;
  if (first_units != before) detail::take_back(first, before);
  return other;
}

}  // namespace hotset
