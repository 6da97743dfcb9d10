// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on what experts are copied from: a source of host memory, or a reader of files or of a network.
///
/// | expression of a source | meaning |
/// |---|---|
/// | `tensors(key, precision)` | the expert's 1..8 tensors in layout order; empty if it is not there |
///
/// | expression of a reader | meaning |
/// |---|---|
/// | `sizes(key, precision)` | bytes of the expert's 1..8 tensors in layout order; empty if it is not there |
/// | `read(key, precision, tensor, at, to)` | fills `to` with the tensor's bytes from `at` on; false if not all of them could be read |
///
/// The bytes stay valid and unchanged until the key is invalidated in every cache that reads them. `read` may block,
/// and is called by the thread that copies. Pre of `read`: the tensor is there and has those bytes.
///
/// | expression of what keeps copies of bytes | meaning |
/// |---|---|
/// | `invalidate(key)`, `invalidate(layer)` | forgets its copies of the expert, or of the layer's experts, at every precision |
///
/// `invalidate` is optional: a source that keeps no copies has none. `slot_cache::invalidate` calls that of its
/// backend, a backend that of its source, a tier that of its disk. When it returns, reads that were under way have
/// ended and none of them is remembered: a read that begins later finds the bytes of that time.
/// It is `noexcept` and void, and `const` in a source, which a backend only reads. Any other shape does not compile.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

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

template <class R>
concept expert_reader = requires(const R& reader, expert_key key, precision_id precision,
                                 std::size_t tensor, std::uint64_t at, std::span<std::byte> to) {
  { reader.sizes(key, precision) } noexcept -> std::same_as<std::span<const std::uint64_t>>;
  { reader.read(key, precision, tensor, at, to) } noexcept -> std::same_as<bool>;
};

/// An origin of copies on the host.
template <class S>
concept expert_origin = expert_source<S> || expert_reader<S>;

template <class T>
concept forgets_experts = requires(T& from, expert_key key, layer_id layer) {
  { from.invalidate(key) } noexcept -> std::same_as<void>;
  { from.invalidate(layer) } noexcept -> std::same_as<void>;
};

namespace detail {

template <class T, class What>
concept has_invalidate = requires(std::remove_const_t<T>& from, What what) { from.invalidate(what); };

/// Does nothing if `from` keeps no copies.
template <class T, class KeyOrLayer>
void invalidate_in(T& from, KeyOrLayer what) noexcept {
  if constexpr (has_invalidate<T, expert_key> || has_invalidate<T, layer_id>) {
    static_assert(forgets_experts<T>,
                  "invalidate is void and noexcept, takes a key and a layer, is const in a source");
    from.invalidate(what);
  }
}

}  // namespace detail

}  // namespace hotset
