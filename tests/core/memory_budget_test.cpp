// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/memory_budget.hpp"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace hotset {
namespace {

TEST(memory_budget, refuses_what_exceeds_it) {
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

TEST(memory_budget, of_nothing_gives_nothing) {
  memory_budget none;
  EXPECT_TRUE(none.take(0));
  EXPECT_FALSE(none.take(1));
}

}  // namespace
}  // namespace hotset
