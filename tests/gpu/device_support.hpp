// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shared by tests and benchmarks on a device: the reason for a missing device, and calls that must succeed.

#include <stdexcept>
#include <string>

#include <cuda_runtime_api.h>

#include "hotset/cuda/runtime.hpp"

namespace hotset::gpu {

/// The driver's message; empty if there is a device.
inline std::string why_no_device() {
  auto& api = cuda::system_runtime();
  int count = 0;
  if (const auto code = api.device_count(count); code != cuda::error_code::success)
    return cuda::describe(api, {code, "cudaGetDeviceCount"}).message;
  return count > 0 ? "" : "cudaGetDeviceCount: none";
}

/// Errors: throws the runtime's message.
inline void require(cuda::error_code code, const char* call) {
  if (code == cuda::error_code::success) return;
  throw std::runtime_error(cuda::describe(cuda::system_runtime(), {code, call}).message);
}
inline void require(cudaError_t code, const char* call) {
  require(static_cast<cuda::error_code>(code), call);
}
#define HOTSET_REQUIRE(call) ::hotset::gpu::require((call), #call)

}  // namespace hotset::gpu
