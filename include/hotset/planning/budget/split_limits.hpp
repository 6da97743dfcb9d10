// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One budget for experts and KV cache: its units, and the floors and the cap that no split may pass.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "hotset/core/error.hpp"

namespace hotset {

/// Source: WiSP eq. 1 and 6.
struct split_limits {
  std::uint64_t budget_bytes = 0;  ///< M, for experts and KV together
  std::uint64_t slot_bytes = 0;    ///< m_E, an expert in every layer
  std::uint64_t block_bytes = 0;   ///< m_KV, of all layers; 0: the model has no KV cache
  std::uint64_t min_cap = 1;       ///< top-k, or the widest union of a decode step
  std::uint64_t max_cap = 0;       ///< experts of a layer
  std::uint64_t min_blocks = 0;    ///< admission_floor

  /// The least budget that works.
  [[nodiscard]] std::uint64_t smallest_budget() const noexcept {
    return min_cap * slot_bytes + min_blocks * block_bytes;
  }
  /// Why there is no split, with the smallest budget that works.
  [[nodiscard]] validation validate() const {
    if (slot_bytes == 0) return error{"slot_bytes = 0, accepted: 1 or more"};
    if (min_cap < 1 || min_cap > max_cap)
      return error{"min_cap = " + std::to_string(min_cap) + ", accepted: 1.." +
                   std::to_string(max_cap)};
    constexpr auto most = std::numeric_limits<std::uint64_t>::max();
    if (max_cap > most / 2 / slot_bytes ||
        (block_bytes != 0 && min_blocks > most / 2 / block_bytes))
      return error{"floors and caps of 2^63 bytes or more, accepted: fewer"};
    if (budget_bytes < smallest_budget())
      return error{"a budget of " + std::to_string(budget_bytes) +
                   " bytes, accepted: " + std::to_string(smallest_budget()) + " bytes or more (" +
                   std::to_string(min_cap) + " experts a layer and " + std::to_string(min_blocks) +
                   " KV blocks)"};
    return std::nullopt;
  }

  /// Blocks that a cap leaves. Pre: the cap's bytes fit.
  [[nodiscard]] std::uint64_t blocks_beside(std::uint64_t cap) const noexcept {
    return block_bytes == 0 ? 0 : (budget_bytes - cap * slot_bytes) / block_bytes;
  }
  /// The largest cap that leaves the floor, at most max_cap. Pre: validate() has nothing to say.
  [[nodiscard]] std::uint64_t largest_cap() const noexcept {
    return std::min(max_cap, (budget_bytes - min_blocks * block_bytes) / slot_bytes);
  }
};

}  // namespace hotset
