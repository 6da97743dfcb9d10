// SPDX-License-Identifier: Apache-2.0
// Starts without a driver and prints the driver's error.
#include <cstdio>

#include "hotset/cuda/maps/mirror_kernel.hpp"
#include "hotset/cuda/runtime.hpp"

int main() {
  auto& api = hotset::cuda::system_runtime();
  int count = 0;
  if (const auto code = api.device_count(count); code != hotset::cuda::error_code::success) {
    std::printf("no device: %s\n",
                hotset::cuda::describe(api, {code, "cudaGetDeviceCount"}).message.c_str());
  } else {
    std::printf("devices: %d\n", count);
  }
  // The library contains the kernels, and an invalid launch is refused.
  return hotset::cuda::launch_mirror({}, nullptr) == hotset::cuda::error_code::invalid_value ? 0
                                                                                             : 1;
}
