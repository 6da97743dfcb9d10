// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/visit/visit_plan.hpp"

#include <gtest/gtest.h>

namespace hotset::visit_plan_test {
namespace {

TEST(visit_plan, has_room_for_the_distinct_experts_of_the_largest_visit) {
  EXPECT_EQ(visit_plan(geometry{.layers = 2, .experts = 64, .top_k = 6}).capacity(), 6U);
  EXPECT_EQ(visit_plan(geometry{.layers = 2, .experts = 64, .top_k = 6, .max_tokens_per_visit = 8})
                .capacity(),
            48U);
  EXPECT_EQ(visit_plan(geometry{.layers = 2, .experts = 64, .top_k = 6, .max_tokens_per_visit = 99})
                .capacity(),
            64U);
}

TEST(visit_plan, is_empty_until_a_pager_writes_it) {
  const visit_plan plan(geometry{.layers = 2, .experts = 64, .top_k = 6});
  EXPECT_TRUE(plan.experts().empty());
  EXPECT_TRUE(plan.slots().empty());
  EXPECT_TRUE(plan.services().empty());
  EXPECT_TRUE(plan.fills().empty());
  EXPECT_TRUE(plan.late_slots().empty());
  EXPECT_TRUE(plan.tokens().empty());
  EXPECT_EQ(plan.groups(), 1U);
  EXPECT_FALSE(plan.more());
}

TEST(visit_plan, is_left_empty_and_without_room_when_it_is_moved) {
  visit_plan plan(geometry{.layers = 2, .experts = 64, .top_k = 6});
  visit_plan second(std::move(plan));
  EXPECT_EQ(plan.capacity(), 0U);
  EXPECT_EQ(second.capacity(), 6U);
  plan = std::move(second);
  EXPECT_EQ(plan.capacity(), 6U);
  EXPECT_EQ(second.capacity(), 0U);
  EXPECT_TRUE(second.services().empty());
}

}  // namespace
}  // namespace hotset::visit_plan_test
