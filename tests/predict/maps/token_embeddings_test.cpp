// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/maps/token_embeddings.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "map_samples.hpp"
#include "predictor_samples.hpp"

namespace hotset::token_embeddings_test {
namespace {

token_embeddings of_table(const std::vector<float>& table, std::int32_t width) {
  return token_embeddings::create(table, width).value();
}

TEST(token_embeddings, the_cosine_of_two_rows) {
  const std::vector<float> table{3, 0, 0, 4, 1, 1, 0, 0, -2, 0};
  const auto of = of_table(table, 2);
  EXPECT_EQ(of.cosine(0, 1), 0.0F);
  EXPECT_FLOAT_EQ(of.cosine(0, 2), std::sqrt(0.5F));
  EXPECT_FLOAT_EQ(of.cosine(4, 0), -1.0F);
  EXPECT_EQ(of.cosine(3, 0), 0.0F) << "a row of zeros is like nothing";
  EXPECT_EQ(of.cosine(1, 1), 1.0F);
  EXPECT_EQ(of.cosine(0, 9), 0.0F);
  EXPECT_EQ(of.cosine(9, 9), 1.0F) << "an unknown token is like itself alone";
  EXPECT_EQ(of.cosine(-1, -1), 0.0F) << "no token";
  EXPECT_EQ(of_table({}, 0).cosine(5, 5), 1.0F);
  EXPECT_EQ(of_table({}, 0).cosine(5, 6), 0.0F);
}

TEST(token_embeddings, any_width_agrees_with_the_sum_written_out) {
  support::random_source random(3);
  for (std::size_t width = 1; width < 40; ++width) {
    std::vector<float> table(3 * width);
    for (auto& x : table) x = static_cast<float>(random.below(1000)) - 500.0F;
    const auto row = [&](std::size_t i) { return std::span(table).subspan(i * width, width); };
    EXPECT_NEAR(of_table(table, static_cast<std::int32_t>(width)).cosine(0, 2),
                support::cosine(row(0), row(2)), 1e-5);
  }
}

TEST(token_embeddings, a_table_that_is_none_is_refused) {
  const auto why = [](const std::vector<float>& table, std::int32_t width) {
    return support::why(token_embeddings::create(table, width));
  };
  EXPECT_EQ(why({1, 2, 3, 4, 5, 6}, 4),
            "embeddings of 6 values and width 4, accepted: vocabulary x width values");
  EXPECT_EQ(why({1, 2}, 0),
            "embeddings of 2 values and width 0, accepted: vocabulary x width values");
  for (const auto bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30F})
    EXPECT_EQ(why({1, 2, 3, bad}, 2),
              "embeddings of token 1 are not finite, accepted: finite values");
}

}  // namespace
}  // namespace hotset::token_embeddings_test
