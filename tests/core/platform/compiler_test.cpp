// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/platform/compiler.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace hotset::compiler_test {
namespace {

int twice(int n) noexcept { return 2 * n; }
struct doubler {
  [[gnu::noinline]] HOTSET_FLATTEN static int twice_and_one(int n) noexcept { return twice(n) + 1; }
};

TEST(flatten, an_ordinary_function_stays_one_beside_other_attributes) {
  int (*const address)(int) noexcept = doubler::twice_and_one;
  EXPECT_EQ(address(-3), -5);
}

HOTSET_HOST_DEVICE constexpr int doubled(int n) noexcept { return 2 * n; }

TEST(host_device, is_an_ordinary_function_to_a_host_compiler) {
  static_assert(doubled(21) == 42);
  int (*const address)(int) noexcept = doubled;
  EXPECT_EQ(address(-3), -6);
}

TEST(fetch_soon, changes_nothing_and_takes_any_address) {
  const std::vector<float> values(100, 1.5F);
  fetch_soon(values.data());
  fetch_soon(values.data(), values.size());
  fetch_soon(values.data(), 0);
  fetch_soon(nullptr);
  EXPECT_EQ(values, std::vector<float>(100, 1.5F));
}

TEST(vector_level, levels_grow_with_what_the_processor_has) {
  EXPECT_LT(vector_level::scalar, vector_level::avx2);
  EXPECT_LT(vector_level::avx2, vector_level::avx512);
}

TEST(vector_level, the_best_is_one_that_the_processor_has) {
  const auto best = best_vector_level();
  EXPECT_EQ(best_vector_level(), best);
#if HOTSET_X86_VECTORS
  EXPECT_EQ(best >= vector_level::avx2,
            __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0);
  if (best == vector_level::avx512) {
    EXPECT_NE(__builtin_cpu_supports("avx512f"), 0);
  }
#else
  EXPECT_EQ(best, vector_level::scalar);
#endif
}

}  // namespace
}  // namespace hotset::compiler_test
