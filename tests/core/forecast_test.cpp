// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/forecast.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::forecast_test {
namespace {

using testing::ElementsAre;

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

}  // namespace
}  // namespace hotset::forecast_test
