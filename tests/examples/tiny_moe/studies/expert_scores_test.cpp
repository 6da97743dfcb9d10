// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/studies/expert_scores.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tiny_moe/model/model.hpp"

namespace expert_scores_test {
namespace {

using namespace tiny_moe;

TEST(expert_scores, are_shares_of_the_selections_and_mean_probabilities) {
  constexpr std::string_view snippet = "for (int i = 0; i < n; ++i) sum += a[i];\n";
  const std::vector<std::uint8_t> text(snippet.begin(), snippet.end());
  const model weights(HOTSET_TINY_MOE_DIR);
  const auto& shape = weights.config();
  const auto scores = score_experts(weights, text, 16);
  ASSERT_EQ(scores.token.size(), shape.layers * shape.experts);
  for (std::size_t l = 0; l < shape.layers; ++l) {
    const auto sum = [&](const std::vector<double>& of) {
      const auto row = std::span(of).subspan(l * shape.experts, shape.experts);
      return std::accumulate(row.begin(), row.end(), 0.0);
    };
    EXPECT_NEAR(sum(scores.token), 1.0, 1e-9);
    EXPECT_GT(sum(scores.gate), 0.0);
    EXPECT_LT(sum(scores.gate), 1.0) << "what was not selected counts for nothing";
  }
  // Each window is a sequence of its own.
  EXPECT_NE(scores.token, score_experts(weights, text, text.size()).token);
}

}  // namespace
}  // namespace expert_scores_test
