// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a miss costs in seconds: of an expert, its way over the link; of a KV block, computing it again.

#include <cstdint>
#include <string>

#include "hotset/core/error.hpp"

namespace hotset {

/// Source: WiSP eq. 4. Hits cost nothing, and are no measure: a smaller cache with more misses can be the faster one.
struct cost_model {
  double seconds_per_byte = 0;             ///< of the link, as measured or as its bandwidth says
  double recompute_seconds_per_token = 0;  ///< of prefill

  [[nodiscard]] double expert_miss(std::uint64_t bytes) const noexcept {
    return static_cast<double>(bytes) * seconds_per_byte;
  }
  [[nodiscard]] double kv_miss(std::uint64_t block_tokens) const noexcept {
    return static_cast<double>(block_tokens) * recompute_seconds_per_token;
  }
  /// Steps a second that the link allows if each moves so many bytes, whatever else is done; infinite for none.
  [[nodiscard]] double ceiling(double bytes_per_step) const noexcept {
    return 1 / (bytes_per_step * seconds_per_byte);
  }

  [[nodiscard]] validation validate() const {
    if (!(seconds_per_byte >= 0 && seconds_per_byte < 1))
      return error{"cost_model seconds_per_byte = " + std::to_string(seconds_per_byte) +
                   ", accepted: 0 or more, less than 1"};
    if (!(recompute_seconds_per_token >= 0 && recompute_seconds_per_token < 1e6))
      return error{"cost_model recompute_seconds_per_token = " +
                   std::to_string(recompute_seconds_per_token) + ", accepted: 0 or more, finite"};
    return std::nullopt;
  }
};

}  // namespace hotset
