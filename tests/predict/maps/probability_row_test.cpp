// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/maps/probability_row.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::probability_row_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using floats = std::vector<float>;

constexpr auto nan = std::numeric_limits<float>::quiet_NaN();
constexpr auto infinity = std::numeric_limits<float>::infinity();

TEST(probability_row, sums_to_one_within_the_tolerance) {
  EXPECT_EQ(probability_row::sum_of(floats{0.25F, 0.75F}), 1.0);
  EXPECT_GT(probability_row::sum_of(floats{0.25F, 0.7575F}), 1.0);
  EXPECT_GT(probability_row::sum_of(floats{0.25F, 0.7425F}), 0.9);
  for (const auto& bad : {floats{0.25F, 0.77F}, floats{0.25F, 0.73F}, floats{}, floats{0, 0},
                          floats{-0.5F, 1.5F}, floats{nan, 1.0F}, floats{infinity, 0.0F}})
    EXPECT_EQ(probability_row::sum_of(bad), 0.0);
}

TEST(probability_row, is_divided_by_its_sum) {
  floats out(2);
  EXPECT_TRUE(probability_row::normalise(floats{0.5F, 0.5F}, out));
  EXPECT_THAT(out, ElementsAre(0.5F, 0.5F));
  EXPECT_TRUE(probability_row::normalise(floats{0.5F, 0.5078125F}, out));
  EXPECT_FLOAT_EQ(out[0], 0.5F / 1.0078125F);
  EXPECT_FLOAT_EQ(out[0] + out[1], 1.0F);
  EXPECT_TRUE(probability_row::normalise(out, out));
  EXPECT_FALSE(probability_row::normalise(floats{0.5F, 0.6F}, out));
  EXPECT_THAT(out, Each(0.0F));
}

TEST(probability_row, softmax_of_scores) {
  floats out(3);
  EXPECT_TRUE(probability_row::softmax(floats{1000.0F, 1000.0F, -infinity}, out));
  EXPECT_THAT(out, ElementsAre(0.5F, 0.5F, 0.0F));
  EXPECT_TRUE(probability_row::softmax(floats{0.0F, std::log(3.0F), -200.0F}, out));
  EXPECT_THAT(out, ElementsAre(testing::FloatEq(0.25F), testing::FloatEq(0.75F), 0.0F));
  for (const auto& bad :
       {floats{nan, 0, 0}, floats{infinity, 0, 0}, floats{-infinity, -infinity, -infinity}}) {
    EXPECT_FALSE(probability_row::softmax(bad, out));
    EXPECT_THAT(out, Each(0.0F));
  }
}

}  // namespace
}  // namespace hotset::probability_row_test
