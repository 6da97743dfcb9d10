// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The sizes of the two pools that share a budget.

#include <cstdint>

#include "hotset/version.hpp"

namespace hotset {

struct pool_sizes {
  std::uint64_t cap = 0;     ///< resident experts of every layer
  std::uint64_t blocks = 0;  ///< KV blocks
  friend constexpr bool operator==(const pool_sizes&, const pool_sizes&) = default;
};

}  // namespace hotset
