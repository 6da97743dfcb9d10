// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/platform/flatten.hpp"

#include <gtest/gtest.h>

namespace flatten_test {
namespace {

int twice(int n) noexcept { return 2 * n; }
struct doubler {
  [[gnu::noinline]] HOTSET_FLATTEN static int twice_and_one(int n) noexcept { return twice(n) + 1; }
};

TEST(flatten, an_ordinary_function_stays_one_beside_other_attributes) {
  int (*const address)(int) noexcept = doubler::twice_and_one;
  EXPECT_EQ(address(-3), -5);
}

}  // namespace
}  // namespace flatten_test
