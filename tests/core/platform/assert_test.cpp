// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/platform/assert.hpp"

#include <gtest/gtest.h>

namespace assert_test {
namespace {

TEST(assert_macro, accepts_true_conditions) {
  int looked = 0;
  HOTSET_ASSERT(++looked >= 0);
  EXPECT_LE(looked, 1);
}

#if defined(HOTSET_HARDENED) || !defined(NDEBUG)
TEST(assert_macro_death_test, names_the_place_and_the_condition) {
  EXPECT_DEATH(HOTSET_ASSERT(1 + 1 == 3),
               "assert_test.cpp:[0-9]+: precondition violated: 1 . 1 == 3");
}
#endif

}  // namespace
}  // namespace assert_test
