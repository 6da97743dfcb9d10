// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/maps/kernel_arguments.hpp"

#include <gtest/gtest.h>

namespace hotset::cuda::kernel_arguments_test {
namespace {

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
}  // namespace hotset::cuda::kernel_arguments_test
