// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/numbers/splitmix64.hpp"

#include <gtest/gtest.h>

namespace splitmix64_test {
namespace {
using namespace hotset;

TEST(splitmix64, is_the_published_generator) {
  splitmix64 random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317ULL);
  EXPECT_EQ(random.next(), 3203168211198807973ULL);
}

TEST(splitmix64, draws_below_a_bound_are_below_it_and_reach_all_of_it) {
  for (const std::uint64_t bound : {1U, 2U, 3U, 7U, 8U}) {
    splitmix64 random(bound);
    std::uint64_t seen = 0;
    for (int i = 0; i < 300; ++i) {
      const auto drawn = random.below(bound);
      ASSERT_LT(drawn, bound);
      seen |= std::uint64_t{1} << drawn;
    }
    EXPECT_EQ(seen, (std::uint64_t{1} << bound) - 1);
  }
}

}  // namespace
}  // namespace splitmix64_test
