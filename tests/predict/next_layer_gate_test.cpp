// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/gate_predictors.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::next_layer_gate_test {
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
routing_view in_layer(layer_id layer) {
  routing_view view;
  view.layer = layer;
  return view;
}
floats random_floats(std::size_t n, support::random_source& random) {
  floats out(n);
  for (auto& v : out) v = static_cast<float>(random.below(2001)) / 500.0F - 2.0F;
  return out;
}
floats copy_of(const forecast& f) { return {f.probabilities.begin(), f.probabilities.end()}; }

TEST(next_layer_gate, applies_the_next_router_to_the_hidden_state) {
  // Two experts; the logits of token 0 are ln 3 and 0, of token 1 0 and ln 4.
  const floats router{1.0F, 0.0F, 0.0F, 2.0F};
  next_layer_gate gate(shape_of(2, 2, 2), {.source = gate_source::next_router,
                                           .d_model = 2,
                                           .routers = {std::span<const float>(), router}});
  const floats hidden{std::log(3.0F), 0.0F, 0.0F, std::log(2.0F)};
  auto view = in_layer(0_layer);
  view.hidden = hidden;
  const auto got = gate.expect(view);
  EXPECT_EQ(got.depth, 1);
  EXPECT_THAT(got.probabilities, ElementsAre(FloatNear(0.75F, 1e-6F), FloatNear(0.25F, 1e-6F),
                                             FloatNear(0.2F, 1e-6F), FloatNear(0.8F, 1e-6F)));
}

TEST(next_layer_gate, looks_several_layers_ahead_for_every_token) {
  constexpr std::size_t experts = 5;
  constexpr std::size_t width = 19;  // whole groups of eight, and a rest
  constexpr std::int32_t layers = 4;
  constexpr std::size_t tokens = 3;
  support::random_source random(2);
  std::vector<floats> routers(layers);
  for (auto& router : routers) router = random_floats(experts * width, random);
  const auto hidden = random_floats(tokens * width, random);
  next_layer_gate gate(shape_of(layers, experts, tokens),
                       {.source = gate_source::next_router,
                        .depth = 3,
                        .d_model = width,
                        .routers = {routers.begin(), routers.end()}});
  for (const auto layer : each<layer_id>(layers - 1)) {
    auto view = in_layer(layer);
    view.hidden = hidden;
    const auto got = gate.expect(view);
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

TEST(next_layer_gate, the_current_gate_stands_for_every_layer_ahead) {
  next_layer_gate gate(shape_of(4, 2, 2), {.source = gate_source::current_gate, .depth = 2});
  const floats probabilities{0.75F, 0.25F, 0.5F, 0.5F};
  auto view = in_layer(0_layer);
  view.probabilities = probabilities;
  const auto got = gate.expect(view);
  EXPECT_EQ(got.depth, 2);
  EXPECT_THAT(got.probabilities, ElementsAre(0.75F, 0.25F, 0.75F, 0.25F, 0.5F, 0.5F, 0.5F, 0.5F));
  view.layer = 2_layer;  // one layer is left
  EXPECT_THAT(gate.expect(view).probabilities,
              ElementsAre(0.75F, 0.25F, 0.0F, 0.0F, 0.5F, 0.5F, 0.0F, 0.0F));
}

TEST(next_layer_gate, one_layer_ahead_the_current_gate_is_not_copied) {
  next_layer_gate gate(shape_of(3, 2), {});
  const floats probabilities{0.75F, 0.25F};
  auto view = in_layer(1_layer);
  view.probabilities = probabilities;
  EXPECT_EQ(gate.expect(view).probabilities.data(), probabilities.data());
}

TEST(next_layer_gate, makes_probabilities_from_logits_only_where_there_are_none) {
  next_layer_gate gate(shape_of(3, 2, 2), {});
  const floats logits{std::log(4.0F), 0.0F, 90.0F, 200.0F};  // exp(200) would overflow
  auto view = in_layer(1_layer);
  view.logits = logits;
  EXPECT_THAT(gate.expect(view).probabilities,
              ElementsAre(FloatNear(0.8F, 1e-6F), FloatNear(0.2F, 1e-6F), 0.0F, 1.0F));
  const floats probabilities{0.5F, 0.5F, 0.25F, 0.75F};
  view.probabilities = probabilities;
  EXPECT_THAT(gate.expect(view).probabilities, ElementsAreArray(probabilities));
}

TEST(next_layer_gate, a_row_of_impossible_logits_is_a_row_of_zeros) {
  constexpr auto never = -std::numeric_limits<float>::infinity();
  next_layer_gate gate(shape_of(2, 3), {});
  auto view = in_layer(0_layer);
  const floats masked{never, 0.0F, never};
  view.logits = masked;
  EXPECT_THAT(gate.expect(view).probabilities, ElementsAre(0.0F, 1.0F, 0.0F));
  const floats all{never, never, never};
  view.logits = all;
  EXPECT_THAT(gate.expect(view).probabilities, ElementsAre(0.0F, 0.0F, 0.0F));
}

TEST(next_layer_gate, takes_the_first_rows_of_what_was_recorded) {
  next_layer_gate gate(shape_of(6, 2, 2), {.source = gate_source::recorded, .depth = 2});
  const floats recorded{1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16};  // [2, 3, 2]
  const auto view = in_layer(0_layer);
  const auto got = gate.expect(view, recorded, 3);
  EXPECT_EQ(got.depth, 2);
  EXPECT_THAT(got.probabilities, ElementsAre(1, 2, 3, 4, 11, 12, 13, 14));
  // As [3, 2, 2]: more tokens than there is room for. As [1, 6, 2] and [2, 2, 2]: nothing to move.
  EXPECT_THAT(gate.expect(view, recorded, 2).probabilities, IsEmpty());
  EXPECT_EQ(gate.expect(view, recorded, 6).probabilities.data(), recorded.data());
  EXPECT_THAT(gate.expect(view, recorded, 6).probabilities, ElementsAre(1, 2, 3, 4));
  const auto four_rows = std::span(recorded).first(8);
  EXPECT_EQ(gate.expect(view, four_rows, 2).probabilities.data(), recorded.data());
  EXPECT_THAT(gate.expect(view, four_rows, 2).probabilities, ElementsAreArray(four_rows));
}

TEST(next_layer_gate, what_was_recorded_must_reach_far_enough) {
  next_layer_gate gate(shape_of(6, 2, 2), {.source = gate_source::recorded, .depth = 2});
  const floats recorded{1, 2, 3, 4};
  EXPECT_THAT(gate.expect(in_layer(0_layer), recorded, 1).probabilities, IsEmpty());
  EXPECT_THAT(gate.expect(in_layer(0_layer), recorded, 0).probabilities, IsEmpty());
  EXPECT_THAT(gate.expect(in_layer(0_layer), std::span(recorded).first(3), 2).probabilities,
              IsEmpty());
  EXPECT_EQ(gate.expect(in_layer(0_layer), recorded, 2).probabilities.size(), 4U);
}

TEST(next_layer_gate, is_empty_where_the_view_lacks_what_is_needed) {
  const floats router{1.0F, 0.0F, 0.0F, 1.0F};
  const floats values{0.5F, 0.5F, 0.25F, 0.75F, 0.5F, 0.5F};
  const auto shape = shape_of(2, 2, 2);
  auto next = next_layer_gate(
      shape, {.source = gate_source::next_router, .d_model = 2, .routers = {router, router}});
  auto current = next_layer_gate(shape, {.source = gate_source::current_gate});
  auto recorded = next_layer_gate(shape, {.source = gate_source::recorded});
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
  EXPECT_EQ(sizes(0_layer, 3), 0U);  // no whole number of tokens
  EXPECT_EQ(sizes(0_layer, 6), 0U);  // more tokens than announced
  EXPECT_EQ(sizes(1_layer, 2), 0U);  // nothing comes after the last layer
}

TEST(next_layer_gate, answers_only_the_question_of_its_source) {
  const floats values{0.5F, 0.5F};
  auto view = in_layer(0_layer);
  view.hidden = view.logits = view.probabilities = values;
  next_layer_gate recorded(shape_of(2, 2), {.source = gate_source::recorded});
  EXPECT_THAT(recorded.expect(view).probabilities, IsEmpty());
  next_layer_gate current(shape_of(2, 2), {.source = gate_source::current_gate});
  EXPECT_THAT(current.expect(view, values, 1).probabilities, IsEmpty());
  EXPECT_EQ(current.source(), gate_source::current_gate);
  EXPECT_EQ(current.depth(), 1);
}

TEST(next_layer_gate, a_shorter_visit_sees_nothing_of_a_longer_one) {
  next_layer_gate gate(shape_of(4, 2, 2), {.source = gate_source::current_gate, .depth = 2});
  auto view = in_layer(0_layer);
  const floats two{0.75F, 0.25F, 0.5F, 0.5F};
  view.probabilities = two;
  const auto before = copy_of(gate.expect(view));
  const floats one{0.125F, 0.875F};
  view.probabilities = one;
  EXPECT_THAT(gate.expect(view).probabilities, ElementsAre(0.125F, 0.875F, 0.125F, 0.875F));
  view.probabilities = two;
  EXPECT_THAT(gate.expect(view).probabilities, ElementsAreArray(before));
}

TEST(next_layer_gate, a_sigmoid_routers_rows_stand_in_the_order_of_its_choice) {
  const auto logit = [](float p) { return std::log(p / (1 - p)); };
  const floats router{logit(0.9F), logit(0.1F), logit(0.6F), logit(0.5F)};
  const floats bias{0, 0, 0, 0.25F};
  const std::span<const float> none;
  const floats hidden{1.0F};
  auto view = in_layer(0_layer);
  view.hidden = hidden;
  const auto rows = [&](const router_scores::config& scores,
                        std::vector<std::span<const float>> biases) {
    next_layer_gate gate(shape_of(2, 4), {.source = gate_source::next_router,
                                          .d_model = 1,
                                          .routers = {none, router},
                                          .scores = scores,
                                          .biases = std::move(biases)});
    return copy_of(gate.expect(view));
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

TEST(next_layer_gate, a_sigmoid_gates_logits_are_made_shares) {
  next_layer_gate gate(shape_of(2, 2), {.scores = {.function = score_function::sigmoid}});
  const floats logits{std::log(3.0F), 0.0F};
  auto view = in_layer(0_layer);
  view.logits = logits;
  EXPECT_THAT(gate.expect(view).probabilities,
              ElementsAre(FloatNear(0.6F, 1e-6F), FloatNear(0.4F, 1e-6F)));
}

TEST(next_layer_gate, says_what_it_accepts) {
  using config = next_layer_gate::config;
  const auto why = [](const config& c, const geometry& shape) {
    const auto refused = c.validate(shape);
    return refused ? refused->message : std::string("fine");
  };
  const auto shape = shape_of(3, 4);
  EXPECT_EQ(why({}, shape), "fine");
  EXPECT_EQ(why({.depth = 2}, shape), "fine");
  EXPECT_EQ(why({.depth = 0}, shape), "next_layer_gate depth = 0, accepted: 1 or more");
  EXPECT_EQ(why({.depth = 3}, shape), "next_layer_gate depth = 3, accepted: 1..2 (layers - 1)");
  EXPECT_EQ(
      why({.source = static_cast<gate_source>(3)}, shape),
      "next_layer_gate source = 3, accepted: 0 (next_router), 1 (current_gate), 2 (recorded)");

  const floats router(8), wrong(9);
  EXPECT_EQ(why({.source = gate_source::next_router}, shape),
            "next_layer_gate d_model = 0, accepted: 1 or more");
  EXPECT_EQ(why({.source = gate_source::next_router, .d_model = 2, .routers = {router}}, shape),
            "next_layer_gate has 1 routers, accepted: one per layer (3)");
  const std::span<const float> none;
  config options{
      .source = gate_source::next_router, .d_model = 2, .routers = {none, router, router}};
  EXPECT_EQ(why(options, shape), "fine");
  options.routers = {router, router, wrong};
  EXPECT_EQ(why(options, shape),
            "next_layer_gate routers[2] has 9 values, accepted: experts x d_model (8)");
  options.routers = {wrong, router, router};
  EXPECT_EQ(why(options, shape),
            "next_layer_gate routers[0] has 9 values, accepted: experts x d_model (8)");
  options.routers = {router, none, router};
  EXPECT_EQ(why(options, shape),
            "next_layer_gate routers[1] has 0 values, accepted: experts x d_model (8)");

  options.routers = {router, router, router};
  options.biases = {none, none};
  EXPECT_EQ(why(options, shape),
            "next_layer_gate has 2 biases, accepted: none, or one per layer (3)");
  options.biases = {none, none, wrong};
  EXPECT_EQ(why(options, shape),
            "next_layer_gate biases[2] has 9 values, accepted: none, or experts (4)");
  EXPECT_EQ(why({.scores = {.function = score_function::sigmoid, .groups = 3}}, shape),
            "router_scores groups = 3, accepted: divisors of 4 (experts)");
  EXPECT_EQ(why({.scores = {.groups = 2}}, shape),
            "router_scores groups = 2, accepted: 1 for softmax, 1 or more for sigmoid");
}

}  // namespace
}  // namespace hotset::next_layer_gate_test
