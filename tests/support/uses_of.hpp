// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Uses of one key in a future.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hotset/trace/future_uses.hpp"

namespace hotset::support {

/// Ordinals that use the key, ascending.
inline std::vector<std::uint32_t> uses_of(const future_uses& future, std::size_t key) {
  std::vector<std::uint32_t> out;
  for (std::size_t n = 0; n < future.ordinals().size(); ++n)
    if (future.keys_in_order()[n] == key) out.push_back(future.ordinals()[n]);
  return out;
}

}  // namespace hotset::support
