// SPDX-License-Identifier: Apache-2.0
#pragma once
/// `invalidate` of a source, reader or backend that keeps copies of host bytes, or forwards to one that does.
///
/// | expression | meaning |
/// |---|---|
/// | `invalidate(key)`, `invalidate(layer)` | forgets its copies of the expert, or of the layer's experts, at every precision |
///
/// Optional: a source that caches nothing has none. `slot_cache::invalidate` calls that of its backend, a backend that
/// of its source, a tier that of its disk. When it returns, reads that were under way have ended and none of them is
/// remembered: a read that begins later finds the bytes of that time.
/// `noexcept` and void; `const` in a source, which a backend only reads. Any other shape does not compile.

#include <concepts>
#include <type_traits>

#include "hotset/core/ids.hpp"

namespace hotset {

template <class T>
concept forgets_experts = requires(T& from, expert_key key, layer_id layer) {
  { from.invalidate(key) }
  noexcept->std::same_as<void>;
  { from.invalidate(layer) }
  noexcept->std::same_as<void>;
};

namespace detail {

template <class T>
concept has_invalidate = requires(std::remove_const_t<T>& from, expert_key key) {
  from.invalidate(key);
}
|| requires(std::remove_const_t<T>& from, layer_id layer) { from.invalidate(layer); };

/// Does nothing if `from` keeps no copies.
template <class T, class KeyOrLayer>
void invalidate_in(T& from, KeyOrLayer what) noexcept {
  if constexpr (has_invalidate<T>) {
    static_assert(forgets_experts<T>,
                  "invalidate is void and noexcept, takes a key and a layer, is const in a source");
    from.invalidate(what);
  }
}

}  // namespace detail

}  // namespace hotset
