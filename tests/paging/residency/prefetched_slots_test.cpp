// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/residency/prefetched_slots.hpp"

#include <gtest/gtest.h>

namespace prefetched_slots_test {
namespace {

using namespace hotset;

TEST(prefetched_slots, a_later_request_replaces_an_earlier_one) {
  prefetched_slots requests(4);
  EXPECT_TRUE(requests.empty());
  requests.remember(2_slot, 5);
  requests.remember(2_slot, 7);
  EXPECT_EQ(requests.slots().size(), 1U);
  EXPECT_EQ(requests.meant_for(2_slot), 8U);
  EXPECT_EQ(requests.meant_for(1_slot), 0U);
}

TEST(prefetched_slots, are_over_when_their_visit_has_come) {
  prefetched_slots requests(4);
  requests.remember(0_slot, 5);
  requests.remember(1_slot, 6);
  requests.remember(2_slot, 5);
  requests.settle(5, [](slot_id slot) { return slot != 2; });
  ASSERT_EQ(requests.slots().size(), 2U);
  EXPECT_EQ(requests.meant_for(0_slot), 0U);
  EXPECT_EQ(requests.meant_for(1_slot), 7U) << "meant for a later step";
  EXPECT_EQ(requests.meant_for(2_slot), 6U) << "of another layer";
}

TEST(prefetched_slots, can_be_forgotten) {
  prefetched_slots requests(4);
  requests.remember(3_slot, 0);
  requests.forget(3_slot);
  requests.forget(1_slot);
  EXPECT_TRUE(requests.empty());
  EXPECT_EQ(requests.meant_for(3_slot), 0U);
}

TEST(prefetched_slots, move_with_what_was_asked_for) {
  prefetched_slots requests(4);
  requests.remember(3_slot, 7);
  requests.move(3_slot, 0_slot);
  requests.move(2_slot, 1_slot);  // nobody asked
  EXPECT_EQ(requests.meant_for(3_slot), 0U);
  EXPECT_EQ(requests.meant_for(0_slot), 8U);
  EXPECT_EQ(requests.slots().size(), 1U);
}

// The step after it is 0: its mark would say that nobody asked.
TEST(prefetched_slots, the_last_step_of_all_can_be_asked_for) {
  constexpr step_id last = ~step_id{0};
  prefetched_slots requests(2);
  for (int i = 0; i < 3; ++i) requests.remember(1_slot, last);
  EXPECT_EQ(requests.slots().size(), 1U);
  EXPECT_NE(requests.meant_for(1_slot), 0U);
  requests.settle(last - 2, [](slot_id) { return true; });
  EXPECT_FALSE(requests.empty());
  requests.move(1_slot, 0_slot);
  requests.settle(last, [](slot_id) { return true; });
  EXPECT_TRUE(requests.empty());
}

}  // namespace
}  // namespace prefetched_slots_test
