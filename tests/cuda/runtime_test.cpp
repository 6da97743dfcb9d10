// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/runtime.hpp"

#include <gtest/gtest.h>

#include "fake_cuda_runtime.hpp"

namespace hotset::cuda::runtime_test {
namespace {

TEST(runtime, a_failure_is_told_with_its_call_its_name_its_number_and_the_drivers_text) {
  support::fake_cuda_runtime api;
  EXPECT_EQ(describe(api, {error_code::insufficient_driver, "cudaGetDeviceCount"}).message,
            "cudaGetDeviceCount: fakeError (35): as told");
}

}  // namespace
}  // namespace hotset::cuda::runtime_test
