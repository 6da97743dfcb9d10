// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/residency/free_slots.hpp"

#include <array>

#include <gtest/gtest.h>

namespace hotset::free_slots_test {
namespace {

TEST(free_slots, each_pool_gives_its_own_slots_lowest_first) {
  const geometry shape{.layers = 2, .experts = 8, .top_k = 2};
  free_slots free(pool_layout::per_layer(shape, std::array<std::int64_t, 2>{3, 2}).value());
  EXPECT_EQ(free.count(0_pool), 3U);
  EXPECT_EQ(free.count(1_pool), 2U);
  EXPECT_EQ(free.take(1_pool), 3);
  EXPECT_EQ(free.take(0_pool), 0);
  EXPECT_EQ(free.take(0_pool), 1);
  EXPECT_EQ(free.count(0_pool), 1U);
  EXPECT_EQ(free.count(1_pool), 1U);
  free.give_back(0_pool, 1_slot);
  EXPECT_EQ(free.take(0_pool), 1) << "last in, first out";
}

TEST(free_slots, what_is_given_back_last_waits_for_all_others) {
  const geometry shape{.layers = 2, .experts = 8, .top_k = 2};
  free_slots free(pool_layout::per_layer(shape, std::array<std::int64_t, 2>{4, 2}).value());
  EXPECT_EQ(free.take(0_pool), 0);
  EXPECT_EQ(free.take(0_pool), 1);
  free.give_back_last(0_pool, 1_slot);
  free.give_back_last(0_pool, 0_slot);
  EXPECT_EQ(free.count(0_pool), 4U);
  for (const slot_id wanted : {2_slot, 3_slot, 1_slot, 0_slot})
    EXPECT_EQ(free.take(0_pool), wanted);
  free.give_back_last(0_pool, 3_slot);
  EXPECT_EQ(free.take(0_pool), 3);
}

TEST(free_slots, a_pool_can_take_in_slots_of_another_of_its_class) {
  const geometry shape{.layers = 2, .experts = 8, .top_k = 2};
  free_slots free(pool_layout::per_layer(shape, 2).value());
  free.give_back(0_pool, free.take(1_pool));
  free.give_back(0_pool, free.take(1_pool));
  EXPECT_EQ(free.count(0_pool), 4U);
  EXPECT_EQ(free.count(1_pool), 0U);
}

}  // namespace
}  // namespace hotset::free_slots_test
