// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/studies/expert_selection.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace expert_selection_test {
namespace {

using hotset::expert_id;
using testing::ElementsAre;
using tiny_moe::select_experts;

std::vector<std::int32_t> selected(const std::vector<double>& scores, double p) {
  const auto layers = select_experts(scores, scores.size(), p);
  std::vector<std::int32_t> out;
  for (const auto e : layers.front()) out.push_back(static_cast<std::int32_t>(e));
  return out;
}

TEST(expert_selection, takes_the_best_while_those_before_sum_to_less_than_p) {
  const std::vector<double> four{.25, .125, .5, .125};
  const std::vector<std::pair<double, std::vector<std::int32_t>>> cases = {
      {.2, {2}},           // the one that crosses p is taken
      {.5, {2}},           // p itself is enough
      {.51, {2, 0}},       //
      {.75, {2, 0}},       //
      {.76, {2, 0, 1}},    // of equals the lower expert
      {1, {2, 0, 1, 3}},   //
      {7, {2, 0, 1, 3}}};  // there are no more
  for (const auto& [p, wanted] : cases) EXPECT_EQ(selected(four, p), wanted) << p;
}

TEST(expert_selection, scores_count_to_four_decimals) {
  EXPECT_THAT(selected({.30004, .3, .30006, .1}, .8), ElementsAre(2, 0, 1)) << "0 and 1 are alike";
  EXPECT_THAT(selected({.49996, .50004}, .5), ElementsAre(0)) << "and here, too";
}

TEST(expert_selection, each_layer_is_chosen_for_itself) {
  const std::vector<double> scores{.1, .9, 0, .9, .05, .05};
  EXPECT_THAT(select_experts(scores, 3, .95), ElementsAre(ElementsAre(expert_id{1}, expert_id{0}),
                                                          ElementsAre(expert_id{0}, expert_id{1})));
}

TEST(expert_selection, agrees_with_taking_the_best_that_is_left_again_and_again) {
  hotset::support::random_source random(0xe5f7);
  for (int round = 0; round < 500; ++round) {
    std::vector<double> scores(1 + random.below(20));
    for (auto& score : scores) score = static_cast<double>(random.below(8)) / 64;
    const auto p = static_cast<double>(1 + random.below(80)) / 64;
    // Of four decimals, which rounding leaves as they are.
    for (auto& score : scores) score = static_cast<double>(static_cast<int>(score * 1e4)) / 1e4;
    std::vector<std::int32_t> expected;
    std::vector<bool> is_taken(scores.size());
    for (double sum = 0; sum < p && expected.size() < scores.size();) {
      std::size_t best = scores.size();
      for (std::size_t e = 0; e < scores.size(); ++e)
        if (!is_taken[e] && (best == scores.size() || scores[e] > scores[best])) best = e;
      is_taken[best] = true;
      expected.push_back(static_cast<std::int32_t>(best));
      sum += scores[best];
    }
    ASSERT_EQ(selected(scores, p), expected) << "round " << round;
  }
}

}  // namespace
}  // namespace expert_selection_test
