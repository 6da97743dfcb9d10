// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Asks the processor for memory that will be read or written soon. A hint: nothing depends on it but time.

#include <cstddef>

#include "hotset/version.hpp"

namespace hotset {

/// The cache line at `what`, which need not be valid.
inline void fetch_soon([[maybe_unused]] const void* what) noexcept {
#if defined(__GNUC__) && !defined(__CUDACC__)
  __builtin_prefetch(what);
#endif
}
/// The lines of `count` floats from `at` on.
inline void fetch_soon([[maybe_unused]] const float* at,
                       [[maybe_unused]] std::size_t count) noexcept {
  constexpr std::size_t a_line = 64 / sizeof(float);
  for (std::size_t i = 0; i < count; i += a_line) fetch_soon(at + i);
}

}  // namespace hotset
