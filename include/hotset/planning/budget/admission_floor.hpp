// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The KV blocks below which a server cannot admit its sessions: a cliff, and no slope of a curve.
///
/// Source: WiSP eq. 6.

#include <cstdint>
#include <limits>
#include <string>

#include "hotset/core/error.hpp"

namespace hotset {

/// Sessions that are served at one time, each with room for its whole context.
struct admission_floor {
  std::uint64_t concurrency = 1;
  std::uint64_t context = 0;  ///< tokens of one session, at most
  std::uint64_t block_tokens = 16;

  /// Blocks of one session.
  [[nodiscard]] std::uint64_t blocks_per_session() const noexcept {
    return context / block_tokens + (context % block_tokens == 0 ? 0 : 1);
  }
  /// Blocks that must be there: concurrency * ceil(context / block_tokens).
  [[nodiscard]] std::uint64_t blocks() const noexcept { return concurrency * blocks_per_session(); }

  [[nodiscard]] validation validate() const {
    if (concurrency == 0) return error{"concurrency = 0, accepted: 1 or more"};
    if (block_tokens == 0) return error{"block_tokens = 0, accepted: 1 or more"};
    if (const auto each = blocks_per_session();
        each != 0 && concurrency > std::numeric_limits<std::uint64_t>::max() / each)
      return error{"concurrency = " + std::to_string(concurrency) + " sessions of " +
                   std::to_string(context) + " tokens, accepted: fewer than 2^64 blocks in all"};
    return std::nullopt;
  }
};

}  // namespace hotset
