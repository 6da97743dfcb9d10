// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Warns of a shared pool that is smaller than one token's cycle through its layers.

#include <optional>
#include <string>

#include "hotset/core/pool_layout.hpp"

namespace hotset {

/// At batch 1 a shared LRU hits exactly 0 % while S <= (L - 1) * K, if every layer is visited with K experts
/// in each step: the cycle of one token evicts each expert just before it is needed again. Slots of all precisions
/// count.
/// Returns the warning with the smallest number of slots that escapes, or nothing.
[[nodiscard]] inline std::optional<std::string> cliff_warning(const pool_layout& layout) {
  for (std::size_t p = 0; p < layout.pools(); ++p) {
    const auto& pool = layout.at(static_cast<pool_id>(p));
    if (pool.precision != 0) continue;  // counted beside the highest one
    std::int64_t slots = 0;
    for (std::size_t q = 0; q < layout.precisions(); ++q)
      slots += layout.at(layout.pool_of(pool.layers.front(), static_cast<precision_id>(q))).slots;
    const auto layers = static_cast<std::int64_t>(pool.layers.size());
    const auto cliff = (layers - 1) * layout.shape().top_k;
    if (layers < 2 || slots > cliff) continue;
    return "pool " + std::to_string(p) + " has " + std::to_string(slots) + " slots for " +
           std::to_string(layers) +
           " layers: decoding one sequence with a recency order hits 0 % up to " +
           std::to_string(cliff) + " slots; use at least " + std::to_string(cliff + 1);
  }
  return std::nullopt;
}

}  // namespace hotset
