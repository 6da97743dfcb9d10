// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on what brings an adapter's bytes to the memory that serves it, and on its host form.
///
/// | expression | meaning |
/// |---|---|
/// | `copy(to, from)` | begins a copy of spans of one size; both stay until the next `fence` |
/// | `fence()` | returns when every copy has arrived |
/// | `wait_for_readers()` | returns when all is done that was begun with expert maps of before the call |
///
/// All are `noexcept` and return whether it was done.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>

#include "hotset/version.hpp"

namespace hotset {

template <class U>
concept uploader = requires(U subject, std::span<std::byte> to, std::span<const std::byte> from) {
  { subject.copy(to, from) }
  noexcept->std::same_as<bool>;
  { subject.fence() }
  noexcept->std::same_as<bool>;
  { subject.wait_for_readers() }
  noexcept->std::same_as<bool>;
};

/// Where copying, loading and computing are one thread's, one after the other.
struct host_uploader {
  bool copy(std::span<std::byte> to, std::span<const std::byte> from) noexcept {
    std::ranges::copy(from, to.begin());
    return true;
  }
  bool fence() noexcept { return true; }
  bool wait_for_readers() noexcept { return true; }
};
static_assert(uploader<host_uploader>);

}  // namespace hotset
