// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/numbers/saturating.hpp"

#include <gtest/gtest.h>

namespace hotset::saturating_test {
namespace {

constexpr auto most = ~std::uint64_t{0};

TEST(saturating, what_is_too_large_is_the_largest_number) {
  EXPECT_EQ(detail::saturating_sum(most, 1), most);
  EXPECT_EQ(detail::saturating_product(std::uint64_t{1} << 32U, std::uint64_t{1} << 32U), most);
  EXPECT_EQ(detail::saturating_product(most, 2), most);
}

TEST(saturating, what_fits_is_exact) {
  EXPECT_EQ(detail::saturating_sum(most - 1, 1), most);
  EXPECT_EQ(detail::saturating_sum(2, 3), 5U);
  EXPECT_EQ(detail::saturating_product(0, most), 0U);
  EXPECT_EQ(detail::saturating_product(most, 0), 0U);
  EXPECT_EQ(detail::saturating_product(std::uint64_t{1} << 32U, std::uint64_t{1} << 31U),
            std::uint64_t{1} << 63U);
}

}  // namespace
}  // namespace hotset::saturating_test
