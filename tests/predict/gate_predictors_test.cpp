// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/gate_predictors.hpp"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/policy/any/any_predictor.hpp"
#include "predictor_samples.hpp"
#include "random_source.hpp"

namespace hotset::gate_predictors_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::FloatNear;
using testing::IsEmpty;
using floats = std::vector<float>;

geometry shape_of(std::int32_t layers, std::int32_t experts, std::int32_t tokens = 1) {
  return {.layers = layers, .experts = experts, .top_k = 1, .max_tokens_per_visit = tokens};
}
routing_view in_layer(layer_id layer) { return {.layer = layer}; }
floats random_floats(std::size_t n, support::random_source& random) {
  floats out(n);
  for (auto& v : out) v = static_cast<float>(random.below(2001)) / 500.0F - 2.0F;
  return out;
}
template <class P>
P made(const geometry& shape, const typename P::config& options) {
  return P::create(shape, options).value();
}
floats copy_of(const forecast& f) { return {f.probabilities.begin(), f.probabilities.end()}; }

TEST(gate_predictors, looks_several_layers_ahead_for_every_token) {
  constexpr std::size_t experts = 5;
  constexpr std::size_t width = 19;  // whole groups of eight, and a rest
  constexpr std::int32_t layers = 4;
  constexpr std::size_t tokens = 3;
  support::random_source random(2);
  std::vector<floats> routers(layers);
  for (auto& router : routers) router = random_floats(experts * width, random);
  const auto hidden = random_floats(tokens * width, random);
  auto gate = made<next_router>(
      shape_of(layers, experts, tokens),
      {.depth = 3, .d_model = width, .routers = {routers.begin(), routers.end()}});
  for (const auto layer : each<layer_id>(layers - 1)) {
    const auto got = gate.expect({.layer = layer, .hidden = hidden});
    ASSERT_EQ(got.depth, 3);
    ASSERT_EQ(got.probabilities.size(), tokens * 3 * experts);
    for (std::size_t t = 0; t < tokens; ++t)
      for (std::size_t d = 0; d < 3; ++d) {
        const auto row = got.probabilities.subspan((t * 3 + d) * experts, experts);
        const auto of = static_cast<std::size_t>(layer) + 1 + d;
        if (of >= static_cast<std::size_t>(layers)) {
          EXPECT_THAT(row, Each(0.0F));
          continue;
        }
        double sum = 0.0;
        std::vector<double> wanted;
        for (std::size_t e = 0; e < experts; ++e) {
          double logit = 0.0;
          for (std::size_t i = 0; i < width; ++i)
            logit += double{routers[of][e * width + i]} * double{hidden[t * width + i]};
          wanted.push_back(std::exp(logit));
          sum += wanted.back();
        }
        for (std::size_t e = 0; e < experts; ++e)
          EXPECT_NEAR(row[e], wanted[e] / sum, 1e-5) << layer << " " << t << " " << d << " " << e;
      }
  }
}

TEST(gate_predictors, the_current_gate_predicts_every_layer_ahead) {
  auto gate = made<current_gate>(shape_of(4, 2, 2), {.depth = 2});
  const floats probabilities{0.75F, 0.25F, 0.5F, 0.5F};
  routing_view view{.layer = 0_layer, .probabilities = probabilities};
  const auto got = gate.expect(view);
  EXPECT_EQ(got.depth, 2);
  EXPECT_THAT(got.probabilities, ElementsAre(0.75F, 0.25F, 0.75F, 0.25F, 0.5F, 0.5F, 0.5F, 0.5F));
  view.layer = 2_layer;  // one layer is left
  EXPECT_THAT(gate.expect(view).probabilities,
              ElementsAre(0.75F, 0.25F, 0.0F, 0.0F, 0.5F, 0.5F, 0.0F, 0.0F));
}

TEST(gate_predictors, makes_probabilities_from_logits_only_if_missing) {
  auto gate = made<current_gate>(shape_of(3, 2, 2), {});
  const floats logits{std::log(4.0F), 0.0F, 90.0F, 200.0F};  // exp(200) would overflow
  routing_view view{.layer = 1_layer, .logits = logits};
  EXPECT_THAT(gate.expect(view).probabilities,
              ElementsAre(FloatNear(0.8F, 1e-6F), FloatNear(0.2F, 1e-6F), 0.0F, 1.0F));
  const floats probabilities{0.5F, 0.5F, 0.25F, 0.75F};
  view.probabilities = probabilities;
  EXPECT_THAT(gate.expect(view).probabilities, ElementsAreArray(probabilities));
}

TEST(gate_predictors, a_row_of_impossible_logits_is_a_row_of_zeros) {
  constexpr auto never = -std::numeric_limits<float>::infinity();
  auto gate = made<current_gate>(shape_of(2, 3), {});
  const floats masked{never, 0.0F, never};
  const floats all{never, never, never};
  EXPECT_THAT(gate.expect({.layer = 0_layer, .logits = masked}).probabilities,
              ElementsAre(0.0F, 1.0F, 0.0F));
  EXPECT_THAT(gate.expect({.layer = 0_layer, .logits = all}).probabilities,
              ElementsAre(0.0F, 0.0F, 0.0F));
}

TEST(gate_predictors, uses_the_first_recorded_rows) {
  auto gate = made<recorded_scores>(shape_of(6, 2, 2), {.depth = 2});
  const floats recorded{1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16};  // [2, 3, 2]
  const auto view = in_layer(0_layer);
  const auto got = gate.expect(view, recorded, 3);
  EXPECT_EQ(got.depth, 2);
  EXPECT_THAT(got.probabilities, ElementsAre(1, 2, 3, 4, 11, 12, 13, 14));
  // [3, 2, 2] has more tokens than places. [1, 6, 2] and [2, 2, 2] match the request.
  EXPECT_THAT(gate.expect(view, recorded, 2).probabilities, IsEmpty());
  EXPECT_THAT(gate.expect(view, recorded, 6).probabilities, ElementsAre(1, 2, 3, 4));
  const auto four_rows = std::span(recorded).first(8);
  EXPECT_THAT(gate.expect(view, four_rows, 2).probabilities, ElementsAreArray(four_rows));
}

TEST(gate_predictors, recorded_rows_must_cover_the_requested_layers) {
  auto gate = made<recorded_scores>(shape_of(6, 2, 2), {.depth = 2});
  const floats recorded{1, 2, 3, 4};
  EXPECT_THAT(gate.expect(in_layer(0_layer), recorded, 1).probabilities, IsEmpty());
  EXPECT_THAT(gate.expect(in_layer(0_layer), recorded, 0).probabilities, IsEmpty());
  EXPECT_THAT(gate.expect(in_layer(0_layer), std::span(recorded).first(3), 2).probabilities,
              IsEmpty());
  EXPECT_EQ(gate.expect(in_layer(0_layer), recorded, 2).probabilities.size(), 4U);
}

TEST(gate_predictors, is_empty_if_the_view_lacks_inputs) {
  const floats router{1.0F, 0.0F, 0.0F, 1.0F};
  const floats values{0.5F, 0.5F, 0.25F, 0.75F, 0.5F, 0.5F};
  const auto shape = shape_of(2, 2, 2);
  auto next = made<next_router>(shape, {.d_model = 2, .routers = {router, router}});
  auto current = made<current_gate>(shape, {});
  auto recorded = made<recorded_scores>(shape, {});
  const auto sizes = [&](layer_id layer, std::size_t n) {
    auto view = in_layer(layer);
    const auto given = std::span(values).first(n);
    view.hidden = given;
    const auto by_router = next.expect(view);
    view.hidden = {};
    view.probabilities = given;
    const auto by_gate = current.expect(view);
    view.probabilities = {};
    view.logits = given;
    const auto by_logits = current.expect(view);
    const auto by_record = recorded.expect(view, given, 1);
    EXPECT_EQ(by_router.probabilities.size(), by_gate.probabilities.size());
    EXPECT_EQ(by_router.probabilities.size(), by_logits.probabilities.size());
    EXPECT_EQ(by_router.probabilities.size(), by_record.probabilities.size());
    EXPECT_EQ(by_router.depth, by_router.probabilities.empty() ? 0 : 1);
    return by_router.probabilities.size();
  };
  EXPECT_EQ(sizes(0_layer, 2), 2U);
  EXPECT_EQ(sizes(0_layer, 4), 4U);
  EXPECT_EQ(sizes(0_layer, 0), 0U);
  EXPECT_EQ(sizes(0_layer, 3), 0U);  // not a whole number of tokens
  EXPECT_EQ(sizes(0_layer, 6), 0U);  // more tokens than announced
  EXPECT_EQ(sizes(1_layer, 2), 0U);  // there is no layer after the last
}

TEST(gate_predictors, a_shorter_visit_sees_nothing_of_a_longer_one) {
  auto gate = made<current_gate>(shape_of(4, 2, 2), {.depth = 2});
  const floats two{0.75F, 0.25F, 0.5F, 0.5F};
  routing_view view{.layer = 0_layer, .probabilities = two};
  const auto before = copy_of(gate.expect(view));
  const floats one{0.125F, 0.875F};
  view.probabilities = one;
  EXPECT_THAT(gate.expect(view).probabilities, ElementsAre(0.125F, 0.875F, 0.125F, 0.875F));
  view.probabilities = two;
  EXPECT_THAT(gate.expect(view).probabilities, ElementsAreArray(before));
}

TEST(gate_predictors, a_sigmoid_routers_rows_have_the_order_of_its_choice) {
  const auto logit = [](float p) { return std::log(p / (1 - p)); };
  const floats router{logit(0.9F), logit(0.1F), logit(0.6F), logit(0.5F)};
  const floats bias{0, 0, 0, 0.25F};
  const std::span<const float> none;
  const floats hidden{1.0F};
  const auto rows = [&](const router_scores::config& scores,
                        std::vector<std::span<const float>> biases) {
    auto gate = made<next_router>(
        shape_of(2, 4),
        {.d_model = 1, .routers = {none, router}, .scores = scores, .biases = std::move(biases)});
    return copy_of(gate.expect({.layer = 0_layer, .hidden = hidden}));
  };
  const auto near = [](float p) { return FloatNear(p, 1e-5F); };
  router_scores::config scores{.function = score_function::sigmoid};
  EXPECT_THAT(rows(scores, {}),
              ElementsAre(near(.9F / 2.1F), near(.1F / 2.1F), near(.6F / 2.1F), near(.5F / 2.1F)));
  scores.groups = 2;  // sums 1.0 and 1.1
  EXPECT_THAT(rows(scores, {none, none}), ElementsAre(0, 0, near(.6F / 1.1F), near(.5F / 1.1F)));
  scores.groups = 1;  // ranks .9, .1, .6, .75, above the lowest of them
  EXPECT_THAT(rows(scores, {none, bias}),
              ElementsAre(near(.8F / 1.95F), 0, near(.5F / 1.95F), near(.65F / 1.95F)));
}

TEST(gate_predictors, a_sigmoid_gates_logits_are_made_shares) {
  auto gate = made<current_gate>(shape_of(2, 2), {.scores = {.function = score_function::sigmoid}});
  const floats logits{std::log(3.0F), 0.0F};
  EXPECT_THAT(gate.expect({.layer = 0_layer, .logits = logits}).probabilities,
              ElementsAre(FloatNear(0.6F, 1e-6F), FloatNear(0.4F, 1e-6F)));
}

TEST(gate_predictors, names_the_accepted_values) {
  using config = next_router::config;
  const auto shape = shape_of(3, 4);
  const auto why = [&](const config& c) { return support::why(next_router::create(shape, c)); };
  const auto of_current = [&](std::int32_t depth) {
    return support::why(current_gate::create(shape, {.depth = depth}));
  };
  EXPECT_EQ(of_current(2), "accepted");
  EXPECT_EQ(of_current(0), "next_layer_gate depth = 0, accepted: 1 or more");
  EXPECT_EQ(of_current(3), "next_layer_gate depth = 3, accepted: 1..2 (layers - 1)");
  const floats router(8), wrong(9);
  EXPECT_EQ(why({}), "next_layer_gate d_model = 0, accepted: 1 or more");
  EXPECT_EQ(why({.d_model = 2, .routers = {router}}),
            "next_layer_gate has 1 routers, accepted: one per layer (3)");
  const std::span<const float> none;
  config options{.d_model = 2, .routers = {none, router, router}};
  EXPECT_EQ(why(options), "accepted");
  options.routers = {router, router, wrong};
  EXPECT_EQ(why(options),
            "next_layer_gate routers[2] has 9 values, accepted: experts x d_model (8)");
  options.routers = {wrong, router, router};
  EXPECT_EQ(why(options),
            "next_layer_gate routers[0] has 9 values, accepted: experts x d_model (8)");
  options.routers = {router, none, router};
  EXPECT_EQ(why(options),
            "next_layer_gate routers[1] has 0 values, accepted: experts x d_model (8)");

  options.routers = {router, router, router};
  options.biases = {none, none};
  EXPECT_EQ(why(options), "next_layer_gate has 2 biases, accepted: none, or one per layer (3)");
  options.biases = {none, none, wrong};
  EXPECT_EQ(why(options), "next_layer_gate biases[2] has 9 values, accepted: none, or experts (4)");
  EXPECT_EQ(why({.scores = {.function = score_function::sigmoid, .groups = 3}}),
            "router_scores groups = 3, accepted: divisors of 4 (experts)");
  EXPECT_EQ(why({.scores = {.groups = 2}}),
            "router_scores groups = 2, accepted: 1 for softmax, 1 or more for sigmoid");
}

TEST(gate_predictors, scores_and_biases_reach_the_gate) {
  const std::vector<float> router{0, 0, 0, 0};  // d_model 1: all scores are a half
  const std::vector<float> bias{0, 0.25F, 0, 0.5F};
  auto config = any_predictor::holding<next_router>(
      {.scores = {.function = score_function::sigmoid, .groups = 2, .top_groups = 2}});
  config.d_model = 1;
  config.routers = {router, router, router};
  config.biases = {{}, bias, {}};
  auto any = any_predictor::create(shape_of(3, 4), config);
  ASSERT_TRUE(any) << any.error().message;
  const floats hidden{1};
  const auto found = any->expect({.layer = 0_layer, .hidden = hidden}).probabilities;
  EXPECT_THAT(found, testing::ElementsAre(0.0F, testing::FloatNear(1.0F / 3, 1e-6F), 0.0F,
                                          testing::FloatNear(2.0F / 3, 1e-6F)));
  EXPECT_TRUE(current_gate::config{.scores = {.groups = 2}}.validate());
}

TEST(gate_predictors, declare_their_inputs) {
  EXPECT_TRUE(recorded_scores::traits.needs_recorded && !recorded_scores::traits.needs_scores);
  EXPECT_TRUE(current_gate::traits.needs_scores && !current_gate::traits.needs_routers);
  EXPECT_TRUE(next_router::traits.needs_routers && !next_router::traits.needs_recorded);
}

}  // namespace
}  // namespace hotset::gate_predictors_test
