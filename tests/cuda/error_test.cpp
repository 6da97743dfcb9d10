// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/error.hpp"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace hotset::cuda::error_test {
namespace {

TEST(sticky_failure, keeps_the_first_failure_and_no_success) {
  sticky_failure kept;
  EXPECT_TRUE(kept.note(error_code::success, "first"));
  EXPECT_FALSE(kept.happened());
  EXPECT_FALSE(kept.first().happened());
  EXPECT_FALSE(kept.note(error_code::memory_allocation, "second"));
  EXPECT_FALSE(kept.note(error_code::invalid_value, "third"));
  EXPECT_TRUE(kept.note(error_code::success, "fourth"));
  EXPECT_TRUE(kept.happened());
  EXPECT_EQ(kept.first().code, error_code::memory_allocation);
  EXPECT_EQ(kept.first().call, "second");
}

TEST(sticky_failure, one_of_many_threads_is_first) {
  sticky_failure kept;
  std::vector<std::thread> threads;
  for (int n = 1; n <= 4; ++n)
    threads.emplace_back([&kept, n] {
      (void)kept.note(static_cast<error_code>(n), n % 2 == 0 ? "even" : "odd");
      if (kept.happened()) {
        EXPECT_NE(kept.first().code, error_code::success);
      }
    });
  for (auto& t : threads) t.join();
  const auto first = kept.first();
  EXPECT_EQ(first.call, static_cast<int>(first.code) % 2 == 0 ? "even" : "odd");
}

}  // namespace
}  // namespace hotset::cuda::error_test
