// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on what reads experts' tensors from somewhere that is not memory: files, a network.
///
/// | expression | meaning |
/// |---|---|
/// | `sizes(key, precision)` | bytes of the expert's 1..8 tensors in layout order; empty if it is not there |
/// | `read(key, precision, tensor, at, to)` | fills `to` with the tensor's bytes from `at` on; false if not all of them could be read |
///
/// A reader that keeps bytes, such as a host_tier, also has `invalidate` (memory/forgets_experts.hpp).
///
/// The bytes stay the same until the key is invalidated in every cache that reads them. `read` may block, and is called by the thread
/// that copies. Pre of `read`: the tensor is there and has those bytes.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hotset/core/ids.hpp"
#include "hotset/transfer/expert_source.hpp"

// clang-format 14 tears compound requirements apart.
// clang-format off
namespace hotset {

template <class R>
concept expert_reader = requires(const R& reader, expert_key key, precision_id precision,
                                 std::size_t tensor, std::uint64_t at, std::span<std::byte> to) {
  { reader.sizes(key, precision) } noexcept -> std::same_as<std::span<const std::uint64_t>>;
  { reader.read(key, precision, tensor, at, to) } noexcept -> std::same_as<bool>;
};

/// What a backend on the host copies from.
template <class S>
concept expert_origin = expert_source<S> || expert_reader<S>;

}  // namespace hotset
