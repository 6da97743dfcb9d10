// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/runtime.hpp"

#include <gtest/gtest.h>

#include "fake_cuda_runtime.hpp"

namespace hotset::cuda::runtime_test {
namespace {

TEST(runtime, an_error_has_its_call_name_number_and_the_drivers_text) {
  support::fake_cuda_runtime api;
  EXPECT_EQ(describe(api, {error_code::insufficient_driver, "cudaGetDeviceCount"}).message,
            "cudaGetDeviceCount: fakeError (35): as told");
}

const std::int32_t* at(std::uintptr_t address) {
  return reinterpret_cast<const std::int32_t*>(address);
}

TEST(device_range, an_array_has_an_address_that_is_aligned_for_its_type) {
  EXPECT_TRUE(device_range(at(4096), 3).is_usable());
  EXPECT_FALSE(device_range(at(4098), 3).is_usable());
  EXPECT_FALSE(device_range(at(0), 3).is_usable());
  EXPECT_TRUE(device_range(reinterpret_cast<const char*>(4097), 3).is_usable());
}

TEST(device_range, an_array_of_nothing_may_be_anywhere_and_overlaps_nothing) {
  EXPECT_TRUE(device_range(at(0), 0).is_usable());
  EXPECT_TRUE(device_range(at(4097), 0).is_usable());
  EXPECT_TRUE(device_range().is_usable());
  EXPECT_FALSE(device_range(at(4100), 0).overlaps({at(4096), 3}));
  EXPECT_FALSE(device_range(at(4096), 3).overlaps({at(4100), 0}));
}

TEST(device_range, overlap_begins_with_one_byte) {
  const device_range middle(at(4096), 3);  // 4096..4107
  EXPECT_TRUE(middle.overlaps(middle));
  EXPECT_TRUE(middle.overlaps({reinterpret_cast<const char*>(4107), 1}));
  EXPECT_FALSE(middle.overlaps({reinterpret_cast<const char*>(4108), 1}));
  EXPECT_TRUE(middle.overlaps({reinterpret_cast<const char*>(4090), 7}));
  EXPECT_FALSE(middle.overlaps({reinterpret_cast<const char*>(4090), 6}));
  EXPECT_TRUE(middle.is({at(4096), 3}));
  EXPECT_FALSE(middle.is({at(4096), 2}));
  EXPECT_FALSE(middle.is({at(4100), 3}));
}

}  // namespace
}  // namespace hotset::cuda::runtime_test
