// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Upper bound of decode speed, given the bytes that each step must bring over the link (WiSP section 4).

#include <cstddef>
#include <cstdint>

#include "cuda_decode/model/routing.hpp"

namespace cuda_decode {

/// Bytes per step, averaged over steps first..last-1, that a cache with exactly the experts of the previous step must
/// move: experts that a layer did not route then. A larger cache may move less. Pre: 1 <= first < last.
[[nodiscard]] inline double turnover_bytes_per_step(const decode_routing& routing,
                                                    std::size_t first, std::size_t last,
                                                    std::uint64_t expert_bytes) {
  return static_cast<double>(routing.turned_over(first, last)) * static_cast<double>(expert_bytes) /
         static_cast<double>(last - first);
}

/// Tokens per second that the link allows if only copies took time. Returns 0 for 0 bytes per step: no bound.
[[nodiscard]] inline double tokens_per_second_ceiling(double bytes_per_step,
                                                      double bytes_per_second) noexcept {
  return bytes_per_step > 0 ? bytes_per_second / bytes_per_step : 0;
}

}  // namespace cuda_decode
