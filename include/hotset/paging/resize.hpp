// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Moves memory from one pool to another within one budget, at a drained point.
///
/// Rule: the pool that shrinks gives its memory back before the other one takes any, so that both together never exceed
/// the larger of the two splits. If the growth is refused the first pool takes its memory again.
/// Source: wisp Appendix D, (D1) to (D3).
/// Deviations: none.

#include <cstdint>

#include "hotset/concepts/resizable_pool.hpp"
#include "hotset/core/status.hpp"

namespace hotset::inline v0 {

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
  if (first_units < before)
    (void)first.grow(before);
  else if (first_units > before)
    (void)first.shrink(before);
  return other;
}

}  // namespace hotset::inline v0
