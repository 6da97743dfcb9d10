// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/ids/per_id.hpp"

#include <type_traits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::per_id_test {
namespace {

using testing::ElementsAre;

template <class Array, class Subscript>
concept has_subscript = requires(Array& values, Subscript at) {
  values[at];
};
static_assert(has_subscript<per_slot<int>, slot_id>);
static_assert(!has_subscript<per_slot<int>, layer_id>);
static_assert(!has_subscript<per_slot<int>, int>);
static_assert(!has_subscript<per_slot<int>, std::size_t>);
static_assert(!std::is_convertible_v<std::vector<int>, per_slot<int>>, "only where it is said");

TEST(per_id, an_id_is_its_subscript) {
  per_layer<int> values(3, 7);
  values[1_layer] = 5;
  EXPECT_THAT(values, ElementsAre(7, 5, 7));
  EXPECT_EQ(std::as_const(values)[1_layer], 5);
}

TEST(per_id, has_one_id_per_value) {
  per_pool<int> values(4);
  for (const auto p : values.ids()) values[p] = 10 * number(p);
  EXPECT_THAT(values, ElementsAre(0, 10, 20, 30));
  EXPECT_TRUE(per_pool<int>().ids().begin() == per_pool<int>().ids().end());
}

TEST(per_id, bits_are_values_too) {
  per_expert<bool> seen(2);
  seen[1_expert] = true;
  EXPECT_FALSE(seen[0_expert]);
  EXPECT_TRUE(seen[1_expert]);
}

TEST(per_id, takes_a_vectors_values_and_gives_them_without_their_kind) {
  per_size_class<int> values(std::vector{1, 2});
  EXPECT_EQ(values.values(), (std::vector{1, 2}));
  values.push_back(3);
  EXPECT_EQ(values[2_size_class], 3);
  EXPECT_EQ(values, per_size_class<int>(std::vector{1, 2, 3}));
}

}  // namespace
}  // namespace hotset::per_id_test
