// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What was given to the CUDA runtime to copy, and by which path.

#include <cstdint>

#include "hotset/version.hpp"

namespace hotset::cuda {

/// Since construction. Units: bytes and calls.
struct transfer_counts {
  std::uint64_t bytes_direct = 0;  ///< from page-locked memory
  std::uint64_t bytes_staged = 0;  ///< from pageable memory, through the staging ring
  std::uint64_t copy_calls = 0;    ///< of the runtime; a batch is one
  std::uint64_t refused_in_capture = 0;
};

}  // namespace hotset::cuda
