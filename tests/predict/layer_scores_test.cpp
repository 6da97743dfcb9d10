// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/layer_scores.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::layer_scores_test {
namespace {

forecast of(const std::vector<float>& rows, std::int32_t depth) {
  return {.probabilities = rows, .depth = depth};
}

TEST(layer_scores, the_best_k_come_in_order_for_every_k) {
  support::random_source random(3);
  for (const std::size_t experts : {1U, 7U, 40U, 128U})
    for (std::size_t count = 0; count <= experts; ++count) {
      std::vector<detail::scored_expert> scored;
      for (std::size_t e = 0; e < experts; ++e)  // many ties: the lower id wins
        scored.push_back(detail::make_scored(static_cast<float>(random.below(9)), e));
      auto sorted = scored;
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      detail::sort_best(scored, count);
      ASSERT_TRUE(std::equal(scored.begin(), scored.begin() + static_cast<std::ptrdiff_t>(count),
                             sorted.begin()))
          << count << " of " << experts;
    }
}

TEST(layer_scores, are_means_over_the_tokens_of_one_layer) {
  detail::layer_scores scores(2);
  // Two tokens, two layers ahead, two experts.
  const std::vector<float> rows{0.1F, 0.9F, 0.25F, 0.5F, 0.3F, 0.7F, 0.75F, 0.5F};
  const auto expected = of(rows, 2);
  EXPECT_EQ(scores.depth(expected), 2);
  const auto second = scores.take(expected, 1);
  EXPECT_FLOAT_EQ(detail::score_of(second[0]), 0.5F);
  EXPECT_FLOAT_EQ(detail::score_of(second[1]), 0.5F);
  EXPECT_GT(second[0], second[1]) << "the lower id is better among equals";
  EXPECT_EQ(detail::expert_of(second[1]), 1);
}

TEST(layer_scores, only_positive_numbers_count) {
  for (const auto bad :
       {-1.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    EXPECT_EQ(detail::score_of(detail::make_scored(bad, 3)), 0.0F);
  EXPECT_EQ(detail::score_of(detail::make_scored(0.5F, 3)), 0.5F);
}

TEST(layer_scores, a_forecast_of_another_size_covers_no_layer) {
  const detail::layer_scores scores(3);
  EXPECT_EQ(scores.depth(of({0.1F, 0.2F}, 1)), 0);
  EXPECT_EQ(scores.depth({}), 0);
  EXPECT_EQ(scores.depth(of({0.1F, 0.2F, 0.3F}, 1)), 1);
}

}  // namespace
}  // namespace hotset::layer_scores_test
