// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/maps/token_index.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "predictor_samples.hpp"
#include "random_source.hpp"

namespace hotset::token_index_test {
namespace {

constexpr auto none = token_index::none;

token_index of_places(std::size_t places) { return token_index::create({}, 0, places).value(); }
token_index of_table(const std::vector<float>& table, std::int32_t width) {
  return token_index::create(table, width, 4).value();
}

TEST(token_index, the_oldest_place_of_a_token_stands_for_it) {
  auto index = of_places(4);
  EXPECT_EQ(index.match(7).place, none);
  index.add(2, 7);
  index.add(0, 9);
  index.add(1, 7);
  EXPECT_EQ(index.match(7).place, 2U);
  EXPECT_EQ(index.match(7).score, 1.0F);
  EXPECT_EQ(index.group_of(1), index.group_of(2));
  EXPECT_NE(index.group_of(0), index.group_of(2));
  EXPECT_EQ(index.count_of(index.group_of(1)), 2U);
  index.remove(2);
  EXPECT_EQ(index.match(7).place, 1U);
  index.remove(1);
  EXPECT_EQ(index.match(7).place, none);
  EXPECT_EQ(index.group_of(1), none);
  index.remove(1);  // it is no token's any more
  EXPECT_EQ(index.count_of(index.group_of(0)), 1U);
}

TEST(token_index, agrees_with_a_map_of_queues) {
  for (const std::uint32_t size : {1U, 3U, 16U, 50U}) {
    support::random_source random(size);
    auto index = of_places(size);
    std::map<std::int32_t, std::deque<std::uint32_t>> model;
    std::vector<std::int32_t> holds(size, -1);
    for (int n = 0; n < 20000; ++n) {
      const auto place = static_cast<std::uint32_t>(random.below(size));
      if (holds[place] >= 0) {
        std::erase(model[holds[place]], place);
        index.remove(place);
        holds[place] = -1;
      } else {
        // Multiples of a power of two, so that hashes meet.
        holds[place] = static_cast<std::int32_t>(random.below(12)) << (random.below(3) * 8);
        model[holds[place]].push_back(place);
        index.add(place, holds[place]);
      }
      for (const auto& [token, queue] : model) {
        ASSERT_EQ(index.match(token).place, queue.empty() ? none : queue.front());
        for (const auto in_queue : queue) {
          ASSERT_EQ(index.group_of(in_queue), index.group_of(queue.front()));
          ASSERT_EQ(index.count_of(index.group_of(in_queue)), queue.size());
        }
      }
    }
  }
}

TEST(token_index, the_nearest_embedding_stands_for_a_token_without_places) {
  const std::vector<float> table{1, 0, 0, 1, 0.8F, 0.6F, 0.8F, 0.6F, -1, 0};
  auto index = of_table(table, 2);
  EXPECT_EQ(index.match(0).place, none) << "nothing is stored";
  index.add(0, 1);
  index.add(2, 2);
  index.add(1, 3);
  index.add(3, 90);
  EXPECT_EQ(index.match(0).place, 1U) << "tokens 3 and 2 are as near: the lower place";
  EXPECT_FLOAT_EQ(index.match(0).score, 0.8F);
  EXPECT_EQ(index.match(4).place, 0U);
  EXPECT_LT(index.match(4).score, 0.001F);
  EXPECT_EQ(index.match(80).place, none) << "in no table";
  EXPECT_EQ(index.match(90).place, 3U);
  EXPECT_EQ(index.match(-1).place, none);
}

TEST(token_index, the_cosine_of_two_rows) {
  const std::vector<float> table{3, 0, 0, 4, 1, 1, 0, 0, -2, 0};
  const auto index = of_table(table, 2);
  EXPECT_EQ(index.cosine(0, 1), 0.0F);
  EXPECT_FLOAT_EQ(index.cosine(0, 2), std::sqrt(0.5F));
  EXPECT_FLOAT_EQ(index.cosine(4, 0), -1.0F);
  EXPECT_EQ(index.cosine(3, 0), 0.0F) << "a row of zeros is like nothing";
  EXPECT_EQ(index.cosine(1, 1), 1.0F);
  EXPECT_EQ(index.cosine(0, 9), 0.0F);
  EXPECT_EQ(index.cosine(9, 9), 1.0F) << "an unknown token is like itself alone";
  EXPECT_EQ(index.cosine(-1, -1), 0.0F) << "no token";
  EXPECT_EQ(of_places(1).cosine(5, 5), 1.0F);
  EXPECT_EQ(of_places(1).cosine(5, 6), 0.0F);
}

TEST(token_index, any_width_agrees_with_the_sum_written_out) {
  support::random_source random(3);
  for (std::size_t width = 1; width < 40; ++width) {
    std::vector<float> table(3 * width);
    for (auto& x : table) x = static_cast<float>(random.below(1000)) - 500.0F;
    double dot = 0, one = 0, two = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const double a{table[i]}, b{table[2 * width + i]};
      dot += a * b, one += a * a, two += b * b;
    }
    EXPECT_NEAR(of_table(table, static_cast<std::int32_t>(width)).cosine(0, 2),
                dot / std::sqrt(one * two), 1e-5);
  }
}

TEST(token_index, a_table_that_is_none_is_refused) {
  const auto why = [](const std::vector<float>& table, std::int32_t width) {
    return support::why(token_index::create(table, width, 1));
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
}  // namespace hotset::token_index_test
