// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/forecast.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::forecast_test {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(forecast, has_rows_of_each_token_and_layer_ahead) {
  const std::vector<float> rows{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  forecast expected;
  expected.probabilities = rows;
  expected.depth = 2;
  EXPECT_EQ(expected.tokens(3), 2U);
  EXPECT_THAT(expected.row(0, 0, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(expected.row(0, 1, 3), ElementsAre(3, 4, 5));
  EXPECT_THAT(expected.row(1, 1, 3), ElementsAre(9, 10, 11));
}

TEST(forecast, of_no_whole_token_has_none) {
  const std::vector<float> rows(12);
  forecast expected;
  EXPECT_EQ(expected.tokens(3), 0U);
  expected.probabilities = rows;
  EXPECT_EQ(expected.tokens(3), 0U) << "no depth";
  expected.depth = 2;
  EXPECT_EQ(expected.tokens(5), 0U);
  EXPECT_EQ(expected.tokens(6), 1U);
}

TEST(forecast, names_the_layers_of_the_step_that_it_is_of) {
  const std::vector<float> rows(2 * 3 * 2, 0.5F);  // 2 tokens, 3 layers, 2 experts
  const forecast expected{.probabilities = rows, .depth = 3};
  const auto layers_after = [&](layer_id running, std::size_t experts) {
    std::vector<std::pair<layer_id, std::int32_t>> out;
    expected.each_layer(running, 4, experts, [&](layer_id layer, std::int32_t ahead) {
      out.emplace_back(layer, ahead);
    });
    return out;
  };
  EXPECT_THAT(layers_after(before_layers, 2), ElementsAre(Pair(0, 0), Pair(1, 1), Pair(2, 2)));
  EXPECT_THAT(layers_after(2_layer, 2), ElementsAre(Pair(3, 0))) << "none of the next step";
  EXPECT_TRUE(layers_after(3_layer, 2).empty());
  EXPECT_TRUE(layers_after(0_layer, 5).empty()) << "no whole tokens";
}

TEST(forecast, writes_the_most_that_a_token_gives_each_expert) {
  const std::vector<float> rows{.1F, .7F, .4F, .3F, .2F, .6F, .5F, .0F};  // 2 tokens, 2 layers
  const forecast expected{.probabilities = rows, .depth = 2};
  std::vector<float> most(2, 9.0F);
  expected.write_most(0, most);
  EXPECT_THAT(most, ElementsAre(.2F, .7F));
  expected.write_most(1, most);
  EXPECT_THAT(most, ElementsAre(.5F, .3F));
}

}  // namespace
}  // namespace hotset::forecast_test
