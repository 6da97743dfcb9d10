// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/ids/per_key.hpp"

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::per_key_test {
namespace {

using testing::ElementsAre;

const geometry shape{.layers = 2, .experts = 3, .top_k = 1};

TEST(per_key, has_a_place_for_every_key_of_the_geometry) {
  const per_key<int> values(shape, 4);
  for (const auto l : each<layer_id>(shape.layers))
    for (const auto e : each<expert_id>(shape.experts)) {
      EXPECT_EQ(values.place_of({l, e}), shape.index({l, e}));
      EXPECT_EQ((values[{l, e}]), 4);
    }
  EXPECT_EQ(values.values().size(), shape.keys());
}

TEST(per_key, a_row_is_a_layers) {
  per_key<int> values(shape);
  values[{1_layer, 2_expert}] = 9;
  values.row(1_layer)[0] = 8;
  EXPECT_THAT(values.row(0_layer), ElementsAre(0, 0, 0));
  EXPECT_THAT(std::as_const(values).row(1_layer), ElementsAre(8, 0, 9));
}

TEST(per_key, takes_a_tables_values) {
  const per_key<int> values(shape, std::vector{1, 2, 3, 4, 5, 6});
  EXPECT_EQ((values[{1_layer, 0_expert}]), 4);
}

}  // namespace
}  // namespace hotset::per_key_test
