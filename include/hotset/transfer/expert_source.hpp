// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on the origin of expert copies: a source in host memory, or a reader of files or a network.
///
/// | expression of a source | meaning |
/// |---|---|
/// | `tensors(key, precision)` | the expert's 1..8 tensors in layout order; empty if it is absent |
///
/// | expression of a reader | meaning |
/// |---|---|
/// | `sizes(key, precision)` | bytes of the expert's 1..8 tensors in layout order; empty if it is absent |
/// | `read(key, precision, tensor, at, to)` | fills `to` with the bytes from `at` on; false if not all could be read |
///
/// | optional in a reader | meaning |
/// |---|---|
/// | `read_all(key, precision, parts)` | like `read` of 1..8 parts of one expert at once, each of its own tensor |
///
/// A backend copies an expert of a reader with `read_all` in one call, and never in chunks. After a failed read or
/// `read_all` the buffers hold unspecified bytes, and nothing writes to them any more.
///
/// The bytes stay valid and unchanged until the key is invalidated in every cache that reads them. `read` may block;
/// the copying thread calls it. Pre of `read`: the tensor exists and has those bytes.
///
/// | expression of a type that caches bytes | meaning |
/// |---|---|
/// | `invalidate(key)`, `invalidate(layer)` | drops its copies of the expert or layer, at every precision |
///
/// `invalidate` is optional: a source without copies has none. `slot_cache::invalidate` calls it on its backend, a
/// backend on its source, a tier on its disk. When it returns, earlier reads have ended and their bytes are dropped. A
/// read that begins later returns the current bytes.
/// It is `noexcept` and void, and `const` in a source, because a backend only reads a source. Other signatures do not
/// compile.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "hotset/core/ids.hpp"

// clang-format 14 splits compound requirements badly.
// clang-format off
namespace hotset {

/// The bytes of one tensor in host memory.
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

/// A part of one tensor, and the buffer that it is read into.
struct tensor_part {
  std::size_t tensor = 0;
  std::uint64_t at = 0;  ///< first byte within the tensor
  std::span<std::byte> to{};
};

/// A reader that reads several tensors of an expert at once.
template <class R>
concept batch_reader = expert_reader<R> && requires(const R& reader, expert_key key,
                                                    precision_id precision,
                                                    std::span<const tensor_part> parts) {
  { reader.read_all(key, precision, parts) } noexcept -> std::same_as<bool>;
};

/// An origin of expert copies on the host.
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

/// Calls `from.invalidate(what)`. Does nothing if `from` caches no bytes.
template <class T, class KeyOrLayer>
void invalidate_in(T& from, KeyOrLayer what) noexcept {
  if constexpr (has_invalidate<T, expert_key> || has_invalidate<T, layer_id>) {
    static_assert(forgets_experts<T>,
                  "invalidate is void and noexcept, takes a key and a layer, is const in a source");
    from.invalidate(what);
  }
}

template <class R>
concept has_read_all = requires(std::remove_const_t<R>& reader, expert_key key,
                                precision_id precision, std::span<const tensor_part> parts) {
  reader.read_all(key, precision, parts);
};

/// Reads the parts with one `read_all`, or one by one if the reader has none.
template <expert_reader R>
[[nodiscard]] bool read_parts(const R& reader, expert_key key, precision_id precision,
                              std::span<const tensor_part> parts) noexcept {
  if constexpr (has_read_all<R>) {
    static_assert(batch_reader<R>, "read_all is const and noexcept, and returns bool");
    return reader.read_all(key, precision, parts);
  } else {
    return std::ranges::all_of(parts, [&](const tensor_part& part) {
      return reader.read(key, precision, part.tensor, part.at, part.to);
    });
  }
}

}  // namespace detail

}  // namespace hotset
