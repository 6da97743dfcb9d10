// SPDX-License-Identifier: Apache-2.0
#include "hotset/residency/free_slots.hpp"

#include <array>

#include <gtest/gtest.h>

namespace hotset {
namespace {

TEST(free_slots, each_pool_gives_its_own_slots_lowest_first) {
  const geometry shape{.layers = 2, .experts = 8, .top_k = 2};
  free_slots free(pool_layout::per_layer(shape, std::array<std::int64_t, 2>{3, 2}).value());
  EXPECT_EQ(free.count(0), 3U);
  EXPECT_EQ(free.count(1), 2U);
  EXPECT_EQ(free.take(1), 3);
  EXPECT_EQ(free.take(0), 0);
  EXPECT_EQ(free.take(0), 1);
  EXPECT_EQ(free.count(0), 1U);
  EXPECT_EQ(free.count(1), 1U);
  free.give_back(0, 1);
  EXPECT_EQ(free.take(0), 1) << "last in, first out";
}

TEST(free_slots, what_is_given_back_last_waits_for_all_others) {
  const geometry shape{.layers = 2, .experts = 8, .top_k = 2};
  free_slots free(pool_layout::per_layer(shape, std::array<std::int64_t, 2>{4, 2}).value());
  EXPECT_EQ(free.take(0), 0);
  EXPECT_EQ(free.take(0), 1);
  free.give_back_last(0, 1);
  free.give_back_last(0, 0);
  EXPECT_EQ(free.count(0), 4U);
  for (const slot_id wanted : {2, 3, 1, 0}) EXPECT_EQ(free.take(0), wanted);
  free.give_back_last(0, 3);
  EXPECT_EQ(free.take(0), 3);
}

TEST(free_slots, a_pool_can_take_in_slots_of_another_of_its_class) {
  const geometry shape{.layers = 2, .experts = 8, .top_k = 2};
  free_slots free(pool_layout::per_layer(shape, 2).value());
  free.give_back(0, free.take(1));
  free.give_back(0, free.take(1));
  EXPECT_EQ(free.count(0), 4U);
  EXPECT_EQ(free.count(1), 0U);
}

}  // namespace
}  // namespace hotset
