// SPDX-License-Identifier: Apache-2.0
#include "hotset/prefetch/score_threshold.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::score_threshold_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using floats = std::vector<float>;
using scored = std::vector<std::pair<expert_id, float>>;

const geometry eight{.layers = 4, .experts = 8, .top_k = 2, .max_tokens_per_visit = 3};

/// Runs visits through one policy; every request must be for the next layer of the step.
struct walk {
  explicit walk(const geometry& shape, const score_threshold::config& options = {})
      : policy(shape, options) {}
  scored visit(layer_id layer, const floats& probabilities, std::int32_t depth = 1) {
    routing_view view;
    view.layer = layer;
    view.step = 7;
    forecast expected;
    expected.probabilities = probabilities;
    expected.depth = depth;
    std::vector<prefetch_request> out(100);
    out.resize(policy.propose(view, expected, out));
    scored got;
    for (const auto& r : out) {
      EXPECT_EQ(r.key.layer, layer + 1);
      EXPECT_EQ(r.for_step, 7U);
      got.emplace_back(r.key.expert, r.probability);
    }
    return got;
  }
  score_threshold policy;
};

TEST(score_threshold, declares_its_inputs) {
  const score_threshold p(eight, {});
  EXPECT_EQ(p.depth(), 1);
  EXPECT_EQ(p.most_requests(), 8U);
}

TEST(score_threshold, scores_are_means_over_the_tokens) {
  const geometry shape{.layers = 3, .experts = 3, .top_k = 1, .max_tokens_per_visit = 2};
  walk w(shape, {.percentile = 50});
  // Means 0.4375, 0.1875, 0.375; place 1.
  EXPECT_THAT(w.visit(0_layer, {0.875F, 0.125F, 0.0F, 0.0F, 0.25F, 0.75F}),
              ElementsAre(std::pair(0_expert, 0.4375F)));
}

TEST(score_threshold, equal_scores_are_not_above_themselves) {
  walk w(eight);
  EXPECT_THAT(w.visit(0_layer, floats(8, 0.125F)), IsEmpty());
  EXPECT_THAT(w.visit(1_layer, floats(8, 0.0F)), IsEmpty());
}

TEST(score_threshold, the_last_layer_and_no_forecast_leave_the_window_alone) {
  walk w(eight, {.percentile = 50});
  const floats high(8, 0.5F);
  EXPECT_THAT(w.visit(3_layer, high), IsEmpty());
  EXPECT_THAT(w.visit(0_layer, {}), IsEmpty());
  EXPECT_THAT(w.visit(0_layer, high, 0), IsEmpty());
  EXPECT_THAT(w.visit(0_layer, {0.5F, 0.5F, 0.5F}), IsEmpty());
  EXPECT_EQ(w.visit(0_layer, {0.01F, 0.01F, 0.01F, 0.01F, 0.02F, 0.02F, 0.02F, 0.02F}).size(), 4U);
}

TEST(score_threshold, invalid_probabilities_count_0) {
  constexpr auto nan = std::numeric_limits<float>::quiet_NaN();
  constexpr auto infinity = std::numeric_limits<float>::infinity();
  walk w(eight, {.percentile = 50});
  EXPECT_THAT(w.visit(0_layer, {nan, -1.0F, infinity, -0.0F, nan, 0.25F, 0.0F, 0.5F}),
              ElementsAre(std::pair(7_expert, 0.5F), std::pair(5_expert, 0.25F)));
}

TEST(score_threshold, agrees_with_sorting_the_whole_past) {
  for (const std::uint32_t window : {1U, 5U, 20U, 100U, 700U}) {
    support::random_source random(window);
    walk w(eight, {.percentile = 70, .window = window});
    floats past;
    for (int n = 0; n < 300; ++n) {
      const auto layer = layer_id{random.id_below(4)};
      floats scores(8);
      for (auto& s : scores) s = static_cast<float>(random.below(20) * random.below(20)) / 1024.0F;
      const auto got = w.visit(layer, scores);
      scored expected;
      if (layer < 3) {
        past.insert(past.end(), scores.begin(), scores.end());
        floats last(
            past.end() - static_cast<std::ptrdiff_t>(std::min<std::size_t>(past.size(), window)),
            past.end());
        std::sort(last.begin(), last.end());
        const auto threshold = last[static_cast<std::size_t>(
            std::floor(70.0 * static_cast<double>(last.size() - 1) / 100.0))];
        for (const auto e : each<expert_id>(8))
          if (scores[static_cast<std::size_t>(e)] > threshold)
            expected.emplace_back(e, scores[static_cast<std::size_t>(e)]);
        std::stable_sort(expected.begin(), expected.end(),
                         [](const auto& a, const auto& b) { return a.second > b.second; });
      }
      ASSERT_EQ(got, expected) << "window " << window << ", visit " << n;
    }
  }
}

}  // namespace
}  // namespace hotset::score_threshold_test
