// SPDX-License-Identifier: Apache-2.0
#include "hotset/placement/placement_shape.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace placement_shape_test {
namespace {

using namespace hotset;
using testing::HasSubstr;

expert_placement of(const std::vector<int>& ids) {
  expert_placement out;
  for (const auto id : ids) out.push_back(static_cast<expert_id>(id));
  return out;
}
std::string refused(const placement_shape& shape) {
  const auto bad = shape.validate();
  return bad ? bad->message : "";
}

TEST(placement_shape, counts_slots) {
  const auto shape = placement_shape::of(64, 16, 8).value();
  EXPECT_EQ(shape.slots_per_rank, 10);
  EXPECT_EQ(shape.slots(), 80);
  EXPECT_EQ(shape.rank_of(9), 0);
  EXPECT_EQ(shape.rank_of(10), 1);
}

TEST(placement_shape, refuses_slots_that_ranks_do_not_divide_and_says_what_would) {
  const auto bad = placement_shape::of(64, 10, 8);
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message, HasSubstr("such as redundant = 16"));
  EXPECT_TRUE(placement_shape::of(64, 16, 8));
  EXPECT_FALSE(placement_shape::of(64, -8, 8));
  EXPECT_FALSE(placement_shape::of(64, 0, 0));
}

TEST(placement_shape, refuses_what_no_placement_can_have) {
  EXPECT_EQ(refused({8, 2, 4, 1, 1}), "");
  EXPECT_THAT(refused({0, 2, 4, 1, 1}), HasSubstr("experts = 0"));
  EXPECT_THAT(refused({4097, 2, 4, 1, 1}), HasSubstr("experts = 4097, accepted: 1 to 4096"));
  EXPECT_THAT(refused({8, 2, 3, 1, 1}), HasSubstr("slots_per_rank = 3, accepted: 4 to 8"));
  EXPECT_THAT(refused({8, 2, 9, 1, 1}), HasSubstr("slots_per_rank = 9, accepted: 4 to 8"));
  EXPECT_THAT(refused({8, 4, 2, 3, 1}), HasSubstr("nodes = 3, accepted: a divisor of the 4 ranks"));
  EXPECT_THAT(refused({8, 4, 2, 2, 3}), HasSubstr("groups = 3"));
  EXPECT_THAT(refused({9, 4, 3, 2, 3}), HasSubstr("a multiple of the 2 nodes"));
  EXPECT_EQ(refused({8, 4, 2, 2, 4}), "");
  // Four experts of a node: a rank with five would hold one twice.
  EXPECT_THAT(refused({8, 4, 5, 2, 4}), HasSubstr("accepted: 2 to 4"));
}

TEST(placement_shape, checks_a_placement) {
  const placement_shape shape{4, 2, 3, 1, 1};
  EXPECT_FALSE(check_placement(shape, of({0, 1, 2, 3, 0, 1})));
  EXPECT_FALSE(check_placement(shape, of({0, 0, 1, 2, 3, 3}))) << "engines start so";
  EXPECT_THAT(check_placement(shape, of({0, 1, 2}))->message, HasSubstr("accepted: 6"));
  EXPECT_THAT(check_placement(shape, of({0, 1, 2, 0, 1, 2}))->message, HasSubstr("expert 3"));
  EXPECT_THAT(check_placement(shape, of({0, 1, 2, 3, -1, 1}))->message, HasSubstr("slot 4"));
  EXPECT_THAT(check_placement(shape, of({0, 1, 2, 3, 4, 1}))->message, HasSubstr("slot 4"));
}

TEST(placement_shape, counts_experts_that_move_between_ranks) {
  const placement_shape shape{4, 2, 3, 1, 1};
  const auto before = of({0, 1, 2, 3, 0, 1});
  EXPECT_EQ(moved_experts(shape, before, of({2, 1, 0, 1, 0, 3})), 0) << "within ranks";
  EXPECT_EQ(moved_experts(shape, before, of({0, 1, 3, 2, 0, 1})), 2);
  EXPECT_EQ(moved_experts(shape, before, of({0, 3, 3, 2, 0, 1})), 2) << "a rank gets it once";
}

TEST(placement_shape, keeps_slots_of_experts_that_stay) {
  const placement_shape shape{6, 2, 4, 1, 1};
  const auto before = of({0, 1, 2, 3, 4, 5, 0, 1});
  EXPECT_EQ(in_kept_slots(shape, before, of({3, 2, 1, 0, 1, 0, 5, 4})), before);
  EXPECT_EQ(in_kept_slots(shape, before, of({5, 3, 0, 1, 2, 4, 0, 1})),
            of({0, 1, 5, 3, 4, 2, 0, 1}));
  EXPECT_EQ(in_kept_slots(shape, before, of({0, 0, 1, 3, 4, 5, 0, 2})),
            of({0, 1, 0, 3, 4, 5, 0, 2}));
}

}  // namespace
}  // namespace placement_shape_test
