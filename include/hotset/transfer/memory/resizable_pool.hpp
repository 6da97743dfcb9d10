// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on a pool of equal units that can give memory back and take more: expert slots, KV blocks, adapter pages.
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

}  // namespace hotset
