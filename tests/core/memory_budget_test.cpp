// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/memory_budget.hpp"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace hotset::memory_budget_test {
namespace {

TEST(memory_budget, refuses_to_exceed_its_limit) {
  memory_budget budget(100);
  EXPECT_TRUE(budget.take(60));
  EXPECT_FALSE(budget.take(41));
  EXPECT_FALSE(budget.take(std::numeric_limits<std::uint64_t>::max()));
  EXPECT_EQ(budget.in_use(), 60U);
  EXPECT_TRUE(budget.take(40));
  budget.give_back(90);
  EXPECT_TRUE(budget.take(5));
  EXPECT_EQ(budget.in_use(), 15U);
  EXPECT_EQ(budget.peak(), 100U);
  EXPECT_EQ(budget.limit(), 100U);
}

TEST(memory_budget, a_lower_limit_keeps_taken_bytes) {
  memory_budget budget(100);
  ASSERT_TRUE(budget.take(60));
  budget.set_limit(50);
  EXPECT_EQ(budget.in_use(), 60U);
  EXPECT_FALSE(budget.take(0));
  EXPECT_FALSE(budget.take(std::numeric_limits<std::uint64_t>::max()));
  budget.give_back(20);
  EXPECT_TRUE(budget.take(10));
  EXPECT_FALSE(budget.take(1));
  budget.set_limit(200);
  EXPECT_TRUE(budget.take(150));
}

TEST(memory_budget, of_nothing_gives_nothing) {
  memory_budget none;
  EXPECT_TRUE(none.take(0));
  EXPECT_FALSE(none.take(1));
}

}  // namespace
}  // namespace hotset::memory_budget_test
