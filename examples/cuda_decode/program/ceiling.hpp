// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How fast a decode can be at most, given the bytes that each step must bring over the link (WiSP section 4).

#include <cstddef>
#include <cstdint>

#include "cuda_decode/model/routing.hpp"

namespace cuda_decode {

/// Units: bytes a step, averaged over steps first..last-1. What must be moved by a cache that holds exactly the experts of
/// the step before: those that a layer did not route then. A cache that holds more may move less. Pre: 1 <= first < last.
[[nodiscard]] inline double turnover_bytes_per_step(const decode_routing& routing,
                                                    std::size_t first, std::size_t last,
                                                    std::uint64_t expert_bytes) {
  return static_cast<double>(routing.turned_over(first, last)) * static_cast<double>(expert_bytes) /
         static_cast<double>(last - first);
}

/// Tokens per second that the link allows, if nothing but copies took time. 0 bytes a step: no ceiling, returns 0.
[[nodiscard]] inline double tokens_per_second_ceiling(double bytes_per_step,
                                                      double bytes_per_second) noexcept {
  return bytes_per_step > 0 ? bytes_per_second / bytes_per_step : 0;
}

}  // namespace cuda_decode
