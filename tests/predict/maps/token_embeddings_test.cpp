// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/maps/token_embeddings.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::token_embeddings_test {
namespace {

using testing::HasSubstr;

TEST(token_embeddings, the_cosine_of_two_rows) {
  const std::vector<float> table{3, 0, 0, 4, 1, 1, 0, 0, -2, 0};
  const auto made = token_embeddings::create(table, 2);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->cosine(0, 1), 0.0F);
  EXPECT_FLOAT_EQ(made->cosine(0, 2), std::sqrt(0.5F));
  EXPECT_FLOAT_EQ(made->cosine(4, 0), -1.0F);
  EXPECT_EQ(made->cosine(3, 0), 0.0F) << "a row of zeros is like nothing";
  EXPECT_EQ(made->cosine(1, 1), 1.0F);
  EXPECT_EQ(made->table_bytes(), 40U);
  EXPECT_EQ(made->bytes(), 20U);
}

TEST(token_embeddings, unknown_tokens_are_like_themselves_alone_and_negative_ones_like_nothing) {
  const std::vector<float> table{1, 1};
  const auto made = token_embeddings::create(table, 2);
  ASSERT_TRUE(made);
  EXPECT_TRUE(made->knows(0));
  EXPECT_FALSE(made->knows(1));
  EXPECT_FALSE(made->knows(-1));
  EXPECT_EQ(made->cosine(1, 1), 1.0F);
  EXPECT_EQ(made->cosine(0, 1), 0.0F);
  EXPECT_EQ(made->cosine(-1, -1), 0.0F);
  const auto without = token_embeddings::create({}, 0);
  ASSERT_TRUE(without);
  EXPECT_FALSE(without->knows(0));
  EXPECT_EQ(without->cosine(5, 5), 1.0F);
  EXPECT_EQ(without->cosine(5, 6), 0.0F);
}

TEST(token_embeddings, any_width_agrees_with_the_sum_written_out) {
  support::random_source random(3);
  for (std::int32_t width = 1; width < 40; ++width) {
    std::vector<float> table(3 * static_cast<std::size_t>(width));
    for (auto& x : table) x = static_cast<float>(random.below(1000)) - 500.0F;
    const auto made = token_embeddings::create(table, width);
    ASSERT_TRUE(made);
    double dot = 0;
    double one = 0;
    double two = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) {
      const double a = table[i];
      const double b = table[2 * static_cast<std::size_t>(width) + i];
      dot += a * b;
      one += a * a;
      two += b * b;
    }
    EXPECT_NEAR(made->cosine(0, 2), dot / std::sqrt(one * two), 1e-5);
  }
}

TEST(token_embeddings, a_table_that_is_none_is_refused) {
  const std::vector<float> table{1, 2, 3, 4, 5, 6};
  EXPECT_THAT(token_embeddings::create(table, 4).error().message,
              HasSubstr("6 values and width 4, accepted: vocabulary x width"));
  EXPECT_THAT(token_embeddings::create(table, 0).error().message, HasSubstr("width 0"));
  for (const auto bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30F}) {
    const std::vector<float> wrong{1, 2, 3, bad};
    EXPECT_EQ(token_embeddings::create(wrong, 2).error().message,
              "embeddings of token 1 are not finite, accepted: finite values");
  }
}

}  // namespace
}  // namespace hotset::token_embeddings_test
