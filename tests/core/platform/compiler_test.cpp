// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/platform/compiler.hpp"

#include <gtest/gtest.h>

namespace hotset::compiler_test {
namespace {

TEST(vector_level, the_best_is_one_that_the_processor_has) {
  const auto best = best_vector_level();
  EXPECT_EQ(best_vector_level(), best);
#if HOTSET_X86_VECTORS
  EXPECT_EQ(best == vector_level::avx2,
            __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0);
#else
  EXPECT_EQ(best, vector_level::scalar);
#endif
}

}  // namespace
}  // namespace hotset::compiler_test
