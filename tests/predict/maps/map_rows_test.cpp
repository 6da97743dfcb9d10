// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/maps/map_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "map_samples.hpp"

namespace hotset::map_rows_test {
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

/// Digit i of a word.
int digit_of(std::int32_t word, std::size_t i) {
  return static_cast<int>((static_cast<std::uint32_t>(word) >> (8 * i)) & 0xffU);
}

TEST(map_rows, a_code_has_two_digits_below_64_and_is_never_below_its_value) {
  support::random_source random(1);
  for (const std::size_t experts : {1U, 3U, 4U, 8U, 61U}) {
    map_rows rows(2, experts, true);
    const auto maps = support::repeating_maps(random, 50, 1, experts, 50, 0.5);
    for (std::size_t m = 0; m < 50; ++m) {
      const auto t = m % 2;
      std::copy_n(&maps[m * experts], experts, rows.row(t).begin());
      rows.code(t);
      const auto view = rows.first(2);
      const auto words = (experts + 3) / 4;
      int highest = 0;
      for (std::size_t e = 0; e < experts; ++e) {
        const int high = digit_of(view.high[e / 4 * 8 + t], e % 4);
        const int low = digit_of(view.low[e / 4 * 8 + t], e % 4);
        ASSERT_LT(high, 64);
        ASSERT_LT(low, 64);
        highest = std::max(highest, 64 * high + low);
        const auto coded = static_cast<float>(64 * high + low) * view.steps[t];
        ASSERT_GE(coded, rows.row(t)[e]);
        ASSERT_LE(coded, rows.row(t)[e] + view.steps[t] * 1.001F);
      }
      EXPECT_EQ(highest, map_kernels::most_row_code);
      for (std::size_t e = experts; e < 4 * words; ++e) {
        EXPECT_EQ(digit_of(view.high[e / 4 * 8 + t], e % 4), 0);
        EXPECT_EQ(digit_of(view.low[e / 4 * 8 + t], e % 4), 0);
      }
    }
  }
}

TEST(map_rows, a_row_of_zeros_has_codes_of_zero) {
  map_rows rows(1, 4, true);
  std::ranges::fill(rows.row(0), 0.25F);
  rows.code(0);
  std::ranges::fill(rows.row(0), 0.0F);
  rows.code(0);
  EXPECT_EQ(rows.first(1).high[0], 0);
  EXPECT_EQ(rows.first(1).low[0], 0);
  EXPECT_EQ(rows.first(1).steps[0], 0.0F);
}

TEST(map_rows, without_codes_only_the_values_are_kept) {
  map_rows rows(2, 3, false);
  std::ranges::fill(rows.row(1), 0.5F);
  rows.code(1);
  EXPECT_EQ(rows.first(2).values[2 * 8 + 1], 0.5F);
  EXPECT_EQ(map_rows::bytes_for(3, false), 24U);
  EXPECT_EQ(map_rows::bytes_for(3, true), 12U + 4 + 8);
}

}  // namespace
}  // namespace hotset::map_rows_test
