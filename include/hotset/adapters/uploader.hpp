// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requirements on an uploader, which copies an adapter's bytes to the memory that serves it; and its host form.
///
/// | expression | meaning |
/// |---|---|
/// | `copy(to, from)` | begins a copy between spans of equal size; both must stay valid until the next `fence` |
/// | `fence()` | returns when every copy has arrived |
/// | `wait_for_readers()` | returns when all work that was begun with earlier expert maps is done |
///
/// All are `noexcept` and return whether they succeeded.

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

/// Uploader for programs in which one thread copies, loads and computes in turn.
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
