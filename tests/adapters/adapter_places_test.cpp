// SPDX-License-Identifier: Apache-2.0
#include "hotset/adapters/adapter_places.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "written_ids.hpp"

namespace hotset::adapter_places_test {
namespace {

using support::expert_lists;
using testing::ElementsAre;
using firsts = std::vector<expert_id>;

/// Of a base model of ten experts, in three layers.
adapter_places places(adapter_placement placement, std::int32_t stride, std::int32_t dense) {
  return adapter_places::create(3, {.experts = 10,
                                    .adapters = 3,
                                    .most_tuned = 4,
                                    .stride = stride,
                                    .placement = placement,
                                    .places = dense})
      .value();
}

TEST(adapter_places, strided_ones_follow_from_the_index) {
  auto tight = places(adapter_placement::strided, 0, 0);
  firsts first(3);
  const auto tuned = expert_lists({{0, 1}, {}, {9}});
  EXPECT_TRUE(tight.take(2, tuned, first));
  EXPECT_THAT(first, ElementsAre(18, 10, 18));
  auto wide = places(adapter_placement::strided, 6, 0);
  EXPECT_TRUE(wide.take(2, tuned, first));
  EXPECT_THAT(first, ElementsAre(22, 10, 22));
}

TEST(adapter_places, dense_ones_are_the_first_gap_of_each_layer) {
  auto dense = places(adapter_placement::dense, 0, 6);
  const auto a = expert_lists({{0, 1}, {4}, {}});
  const auto b = expert_lists({{5}, {1, 2, 3}, {7}});
  const auto c = expert_lists({{1, 2, 3}, {8}, {0, 1, 2, 3}});
  firsts of_a(3), of_b(3), of_c(3);
  EXPECT_TRUE(dense.take(0, a, of_a));
  EXPECT_TRUE(dense.take(1, b, of_b));
  EXPECT_TRUE(dense.take(2, c, of_c));
  EXPECT_THAT(of_a, ElementsAre(10, 10, 10));
  EXPECT_THAT(of_b, ElementsAre(12, 11, 10));
  EXPECT_THAT(of_c, ElementsAre(13, 14, 11));
  dense.give(a, of_a);
  EXPECT_TRUE(dense.take(0, expert_lists({{6}, {6}, {6}}), of_a));
  EXPECT_THAT(of_a, ElementsAre(10, 10, 15));
}

TEST(adapter_places, are_given_in_every_layer_or_in_none) {
  auto dense = places(adapter_placement::dense, 0, 4);
  firsts first(3);
  const auto large = expert_lists({{0, 1, 2}, {0}, {0}});
  ASSERT_TRUE(dense.take(0, large, first));
  firsts other(3);
  EXPECT_FALSE(dense.take(1, expert_lists({{5}, {0, 1}, {0, 1, 2, 3}}), other))
      << "the third has three";
  // Nothing of the first two layers was kept.
  EXPECT_TRUE(dense.take(1, expert_lists({{5}, {0, 1, 2}, {0, 1, 2}}), other));
  EXPECT_THAT(other, ElementsAre(13, 11, 11));
}

TEST(adapter_places, a_copy_is_tried_on_without_a_change) {
  auto dense = places(adapter_placement::dense, 0, 4);
  auto trial = dense;
  firsts first(3);
  const auto all = expert_lists({{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}});
  ASSERT_TRUE(trial.take(0, all, first));
  EXPECT_FALSE(trial.take(1, all, first));
  EXPECT_TRUE(dense.take(0, all, first));
  trial = dense;
  trial.give(all, first);
  EXPECT_TRUE(trial.take(1, all, first));
  EXPECT_FALSE(dense.take(1, all, first));
}

TEST(adapter_places, a_shape_that_cannot_be_has_a_reason) {
  const auto refused = adapter_places::create(3, {.experts = 0});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "experts = 0, accepted: 1 or more");
}

}  // namespace
}  // namespace hotset::adapter_places_test
