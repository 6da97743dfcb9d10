// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Seconds that a miss costs: an expert's copy over the link, a KV block's recomputation.
///
/// Source: WiSP eq. 4.

#include <cstdint>

#include "hotset/core/error.hpp"

namespace hotset {

/// Prices of misses. Hits cost nothing. The hit rate is no measure: a smaller cache with more misses can be faster.
struct cost_model {
  double seconds_per_byte = 0;             ///< of the link, measured or from its bandwidth
  double recompute_seconds_per_token = 0;  ///< of prefill

  [[nodiscard]] double expert_miss(std::uint64_t bytes) const noexcept {
    return static_cast<double>(bytes) * seconds_per_byte;
  }
  [[nodiscard]] double kv_miss(std::uint64_t block_tokens) const noexcept {
    return static_cast<double>(block_tokens) * recompute_seconds_per_token;
  }
  /// Steps per second that the link allows if each step copies this many bytes; infinite for 0 bytes.
  [[nodiscard]] double ceiling(double bytes_per_step) const noexcept {
    return 1 / (bytes_per_step * seconds_per_byte);
  }

  [[nodiscard]] validation validate() const {
    if (!(seconds_per_byte >= 0 && seconds_per_byte < 1))
      return refusal("cost_model seconds_per_byte = ", seconds_per_byte,
                     ", accepted: 0 or more, less than 1");
    if (!(recompute_seconds_per_token >= 0 && recompute_seconds_per_token < 1e6))
      return refusal("cost_model recompute_seconds_per_token = ", recompute_seconds_per_token,
                     ", accepted: 0 or more, finite");
    return std::nullopt;
  }
};

}  // namespace hotset
