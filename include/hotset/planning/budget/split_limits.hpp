// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One budget for experts and KV cache: its units, the floors and the cap of every split, and the sizes of a split.
///
/// Source: WiSP eq. 1 and 6.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "hotset/core/error.hpp"

namespace hotset {

/// Sizes of the two pools that share the budget.
struct pool_sizes {
  std::uint64_t cap = 0;     ///< resident experts per layer
  std::uint64_t blocks = 0;  ///< KV blocks
  friend constexpr bool operator==(const pool_sizes&, const pool_sizes&) = default;
};

/// Fewest KV blocks with which a server can admit its sessions (eq. 6). Below this number it cannot: a cliff, not a
/// slope of a curve. Counts sessions served at one time, each with room for its whole context.
struct admission_floor {
  std::uint64_t concurrency = 1;
  std::uint64_t context = 0;  ///< most tokens of one session
  std::uint64_t block_tokens = 16;

  /// Blocks of one session.
  [[nodiscard]] std::uint64_t blocks_per_session() const noexcept {
    return context / block_tokens + (context % block_tokens == 0 ? 0 : 1);
  }
  /// Blocks that must exist: concurrency * ceil(context / block_tokens).
  [[nodiscard]] std::uint64_t blocks() const noexcept { return concurrency * blocks_per_session(); }

  [[nodiscard]] validation validate() const {
    if (concurrency == 0) return error{"concurrency = 0, accepted: 1 or more"};
    if (block_tokens == 0) return error{"block_tokens = 0, accepted: 1 or more"};
    if (const auto each = blocks_per_session();
        each != 0 && concurrency > std::numeric_limits<std::uint64_t>::max() / each)
      return refusal("concurrency = ", concurrency, " sessions of ", context,
                     " tokens, accepted: fewer than 2^64 blocks in all");
    return std::nullopt;
  }
};

/// The budget and its limits.
struct split_limits {
  std::uint64_t budget_bytes = 0;  ///< M, for experts and KV together
  std::uint64_t slot_bytes = 0;    ///< m_E, an expert in every layer
  std::uint64_t block_bytes = 0;   ///< m_KV, of all layers; 0: the model has no KV cache
  std::uint64_t min_cap = 1;       ///< top-k, or the widest union of a decode step
  std::uint64_t max_cap = 0;       ///< experts of a layer
  std::uint64_t min_blocks = 0;    ///< see admission_floor

  /// Smallest budget that works.
  [[nodiscard]] std::uint64_t smallest_budget() const noexcept {
    return min_cap * slot_bytes + min_blocks * block_bytes;
  }
  /// Returns why there is no split, with the smallest budget that works.
  [[nodiscard]] validation validate() const {
    if (slot_bytes == 0) return error{"slot_bytes = 0, accepted: 1 or more"};
    if (min_cap < 1 || min_cap > max_cap)
      return refusal("min_cap = ", min_cap, ", accepted: 1..", max_cap);
    constexpr auto most = std::numeric_limits<std::uint64_t>::max();
    if (max_cap > most / 2 / slot_bytes ||
        (block_bytes != 0 && min_blocks > most / 2 / block_bytes))
      return error{"floors and caps of 2^63 bytes or more, accepted: fewer"};
    if (budget_bytes < smallest_budget())
      return refusal("a budget of ", budget_bytes, " bytes, accepted: ", smallest_budget(),
                     " bytes or more (", min_cap, " experts a layer and ", min_blocks,
                     " KV blocks)");
    return std::nullopt;
  }

  /// Blocks that fit beside a cap. Pre: the cap's bytes fit.
  [[nodiscard]] std::uint64_t blocks_beside(std::uint64_t cap) const noexcept {
    return block_bytes == 0 ? 0 : (budget_bytes - cap * slot_bytes) / block_bytes;
  }
  /// Largest cap that leaves room for the floor, at most max_cap. Pre: validate() returns no error.
  [[nodiscard]] std::uint64_t largest_cap() const noexcept {
    return std::min(max_cap, (budget_bytes - min_blocks * block_bytes) / slot_bytes);
  }
};

}  // namespace hotset
