// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on what knows where each expert's tensors lie in host memory.
///
/// | expression | meaning |
/// |---|---|
/// | `tensors(key, precision)` | the expert's 1..8 tensors in layout order; empty if it is not there |
///
/// A source that keeps copies of bytes also has `invalidate` (memory/forgets_experts.hpp).
///
/// The bytes stay valid and unchanged until the key is invalidated in every cache that reads the source.

#include <concepts>
#include <cstddef>
#include <span>

#include "hotset/core/ids.hpp"

// clang-format 14 tears compound requirements apart.
// clang-format off
namespace hotset {

/// The host bytes of one tensor.
using tensor_bytes = std::span<const std::byte>;

template <class S>
concept expert_source = requires(const S& source, expert_key key, precision_id precision) {
  { source.tensors(key, precision) } noexcept -> std::same_as<std::span<const tensor_bytes>>;
};

}  // namespace hotset
