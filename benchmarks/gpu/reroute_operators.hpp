// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The peer of the fused reroute: broadcast, mask, offset, gather and select as separate kernels, as a framework
/// would launch them.

#include <cstddef>

#include "hotset/cuda/maps/reroute_kernel.hpp"

namespace hotset::benchmark_peers {

/// Scratch memory of the operators on the device. Units: bytes.
[[nodiscard]] constexpr std::size_t reroute_operators_workspace(
    const cuda::reroute_arguments& a) noexcept {
  return static_cast<std::size_t>(entries_of(a)) * 4 * sizeof(std::int32_t);
}

/// Errors: those of launch_reroute. Pre: the workspace is large enough and does not overlap the arrays.
cuda::error_code launch_reroute_operators(const cuda::reroute_arguments& a, void* workspace,
                                          cuda::stream_handle stream) noexcept;

}  // namespace hotset::benchmark_peers
