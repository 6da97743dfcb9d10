// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/platform/host_device.hpp"

#include <gtest/gtest.h>

namespace host_device_test {
namespace {

HOTSET_HOST_DEVICE constexpr int twice(int n) noexcept { return 2 * n; }

TEST(host_device, is_an_ordinary_function_to_a_host_compiler) {
  static_assert(twice(21) == 42);
  int (*const address)(int) noexcept = twice;
  EXPECT_EQ(address(-3), -6);
}

}  // namespace
}  // namespace host_device_test
