// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/order/slot_rank.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace hotset::slot_rank_test {
namespace {

TEST(slot_rank, orders_by_key_then_position) {
  EXPECT_LT((slot_rank{1, 9}), (slot_rank{2, 0}));
  EXPECT_LT((slot_rank{1, 8}), (slot_rank{1, 9}));
  EXPECT_FALSE((slot_rank{1, 9}) < (slot_rank{1, 9}));
  EXPECT_LT((slot_rank{~std::uint64_t{0}, 3}), vacant_rank);
}

TEST(slot_rank, doubles_keep_their_order_as_integers) {
  constexpr auto infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> ascending{-infinity, -1e300, -1.5, -1e-310, 0.0, 1e-310, 1.5, infinity};
  EXPECT_TRUE(std::ranges::is_sorted(ascending, std::less<>{}, detail::ordered_bits));
  for (const auto value : ascending)
    EXPECT_EQ(detail::from_ordered_bits(detail::ordered_bits(value)), value);
  EXPECT_EQ(detail::ordered_bits(-0.0), detail::ordered_bits(0.0));
}

}  // namespace
}  // namespace hotset::slot_rank_test
