// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/gate_predictors.hpp"

#include <array>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/policy/any/any_predictor.hpp"

namespace hotset::gate_predictors_test {
namespace {

using testing::ElementsAreArray;
using testing::IsEmpty;

const geometry shape{.layers = 3, .experts = 4, .top_k = 2, .max_tokens_per_visit = 2};
const std::array<std::int32_t, 2> ids{0, 1};
const std::array<float, 4> scores{0.4F, 0.3F, 0.2F, 0.1F};
const std::array<float, 4> told{0.0F, 0.0F, 0.5F, 0.5F};

routing_view view() {
  routing_view out;
  out.experts = ids;
  out.probabilities = scores;
  return out;
}

TEST(gate_predictors, each_goes_by_its_own_source) {
  auto recorded = *recorded_scores::create(shape, {});
  auto current = *current_gate::create(shape, {});
  EXPECT_THAT(recorded.expect(view(), told, 1).probabilities, ElementsAreArray(told));
  EXPECT_THAT(recorded.expect(view(), {}, 0).probabilities, IsEmpty());
  EXPECT_THAT(current.expect(view(), told, 1).probabilities, ElementsAreArray(scores));
}

TEST(gate_predictors, routers_are_asked_of_the_hidden_state) {
  const std::vector<float> router{1, 0, 0, 1, 1, 1, 0, 0};
  auto made = next_router::create(shape, {.d_model = 2, .routers = {router, router, router}});
  ASSERT_TRUE(made);
  const std::array<float, 2> hidden{2, 1};
  auto seen = view();
  seen.hidden = hidden;
  const auto found = made->expect(seen, {}, 0).probabilities;
  ASSERT_EQ(found.size(), 4U);
  EXPECT_GT(found[2], found[0]);
  EXPECT_GT(found[0], found[1]);
  EXPECT_FALSE(next_router::create(shape, {}));
}

TEST(gate_predictors, scores_and_biases_reach_the_gate) {
  const std::vector<float> router{0, 0, 0, 0};  // d_model 1: all scores are a half
  const std::vector<float> bias{0, 0.25F, 0, 0.5F};
  auto config = any_predictor::holding<next_router>(
      {.scores = {.function = score_function::sigmoid, .groups = 2, .top_groups = 2}});
  config.d_model = 1;
  config.routers = {router, router, router};
  config.biases = {{}, bias, {}};
  auto any = any_predictor::create(shape, config);
  ASSERT_TRUE(any) << any.error().message;
  const std::array<float, 1> hidden{1};
  auto seen = view();
  seen.hidden = hidden;
  const auto found = any->expect(seen).probabilities;
  EXPECT_THAT(found, testing::ElementsAre(0.0F, testing::FloatNear(1.0F / 3, 1e-6F), 0.0F,
                                          testing::FloatNear(2.0F / 3, 1e-6F)));
  EXPECT_TRUE(current_gate::config{.scores = {.groups = 2}}.validate());
}

TEST(gate_predictors, say_what_they_need) {
  EXPECT_TRUE(recorded_scores::traits.needs_recorded && !recorded_scores::traits.needs_scores);
  EXPECT_TRUE(current_gate::traits.needs_scores && !current_gate::traits.needs_routers);
  EXPECT_TRUE(next_router::traits.needs_routers && !next_router::traits.needs_recorded);
}

TEST(gate_predictors, look_no_further_than_there_are_layers) {
  EXPECT_TRUE(current_gate::create(shape, {.depth = 2}));
  EXPECT_FALSE(current_gate::create(shape, {.depth = 3}));
  EXPECT_TRUE(current_gate::config{.depth = 0}.validate());
}

}  // namespace
}  // namespace hotset::gate_predictors_test
