// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/numbers/multiples_of.hpp"

#include <cstdint>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::multiples_of_test {
namespace {

constexpr std::uint64_t most = ~std::uint64_t{0};

TEST(multiples_of, agrees_with_the_remainder_of_small_numbers) {
  for (std::uint64_t d = 1; d <= 130; ++d) {
    const multiples_of multiples(d);
    for (std::uint64_t n = 0; n <= 1000; ++n)
      ASSERT_EQ(multiples.contains(n), n % d == 0) << n << " and " << d;
  }
}

TEST(multiples_of, agrees_with_the_remainder_of_large_ones) {
  support::random_source random(5);
  for (int i = 0; i < 20000; ++i) {
    const auto d = 1 + (random.below(most) >> random.below(64));
    const auto n = random.below(most) >> random.below(64);
    const multiples_of multiples(d);
    ASSERT_EQ(multiples.contains(n), n % d == 0) << n << " and " << d;
    const auto whole = n / d * d;
    ASSERT_TRUE(multiples.contains(whole)) << whole << " and " << d;
    ASSERT_EQ(multiples.contains(whole + 1), (whole + 1) % d == 0);
  }
  for (const auto d : {most, most - 1, most / 2 + 1}) {
    EXPECT_TRUE(multiples_of(d).contains(d));
    EXPECT_FALSE(multiples_of(d).contains(d - 1));
  }
}

static_assert(multiples_of(6).contains(18) && !multiples_of(6).contains(20));

}  // namespace
}  // namespace hotset::multiples_of_test
