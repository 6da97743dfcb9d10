// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/order/pool_members.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::pool_members_test {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

const geometry shape{.layers = 2, .experts = 4, .top_k = 2};

TEST(pool_members, begin_where_the_layout_put_them) {
  const pool_members members(pool_layout::per_layer(shape, 3).value());
  EXPECT_THAT(members.of(0_pool), ElementsAre(0, 1, 2));
  EXPECT_THAT(members.of(1_pool), ElementsAre(3, 4, 5));
  EXPECT_EQ(members.capacity(0_pool), 4U) << "no more than the layer has experts";
  EXPECT_EQ(members.home(4_slot), 1);
}

TEST(pool_members, a_slot_that_settles_leaves_its_old_pool) {
  pool_members members(pool_layout::per_layer(shape, 3).value());
  members.settle(0_pool, 4_slot, [](slot_id) { return false; });
  EXPECT_THAT(members.of(0_pool), UnorderedElementsAre(0, 1, 2, 4));
  EXPECT_THAT(members.of(1_pool), UnorderedElementsAre(3, 5));
  EXPECT_EQ(members.home(4_slot), 0);
}

TEST(pool_members, a_full_pool_lets_a_vacant_slot_go) {
  pool_members members(pool_layout::per_layer(shape, 3).value());
  members.settle(0_pool, 4_slot, [](slot_id) { return false; });
  ASSERT_EQ(members.size(0_pool), members.capacity(0_pool));
  members.settle(0_pool, 5_slot, [](slot_id slot) { return slot == 1; });
  EXPECT_THAT(members.of(0_pool), UnorderedElementsAre(0, 2, 4, 5));
  EXPECT_EQ(members.home(1_slot), -1);
  members.settle(1_pool, 1_slot, [](slot_id) { return false; });
  EXPECT_THAT(members.of(1_pool), UnorderedElementsAre(3, 1));
}

TEST(pool_members, say_whether_a_pool_still_has_the_slots_that_it_was_built_with) {
  pool_members members(pool_layout::per_layer(shape, 3).value());
  EXPECT_EQ(members.first_slot(0_pool), 0);
  EXPECT_EQ(members.first_slot(1_pool), 3);
  EXPECT_TRUE(members.as_built(0_pool));
  EXPECT_TRUE(members.as_built(1_pool));
  members.settle(0_pool, 4_slot, [](slot_id) { return false; });
  EXPECT_FALSE(members.as_built(0_pool)) << "it has one more";
  EXPECT_FALSE(members.as_built(1_pool)) << "it has one less";
}

}  // namespace
}  // namespace hotset::pool_members_test
