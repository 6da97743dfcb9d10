// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/studies/fine_tuning.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/error.hpp"
#include "tiny_moe/studies/quality.hpp"

namespace fine_tuning_test {
namespace {

using namespace hotset::literals;
using namespace tiny_moe;

const model& weights() {
  static const model loaded(HOTSET_TINY_MOE_DIR);
  return loaded;
}
std::vector<std::uint8_t> bytes_of(std::string_view words) { return {words.begin(), words.end()}; }

tuned_experts one_in_each_of(std::initializer_list<std::pair<std::size_t, std::int32_t>> places) {
  tuned_experts out(weights().config().layers);
  for (const auto& [layer, expert] : places) out[layer].push_back(hotset::expert_id{expert});
  return out;
}
/// The expert that a text uses most in each of some layers.
tuned_experts most_used(std::span<const std::uint8_t> text, std::vector<std::size_t> layers) {
  const auto experts = weights().config().experts;
  const auto scores = score_experts(weights(), text, text.size());
  tuned_experts out(weights().config().layers);
  for (const auto l : layers) {
    const auto of_layer = std::span(scores.token).subspan(l * experts, experts);
    const auto best = std::ranges::max_element(of_layer) - of_layer.begin();
    out[l].push_back(static_cast<hotset::expert_id>(best));
  }
  return out;
}
std::string refusal(tuned_experts tuned) {
  try {
    const fine_tuner<float> made(weights(), std::move(tuned));
  } catch (const hotset::invalid_config& bad) {
    return bad.what();
  }
  return "accepted";
}

const std::string_view snippet = "for (int i = 0; i < n; ++i) sum += a[i];\n";

TEST(fine_tuning, the_loss_is_what_the_engine_measures) {
  const auto text = bytes_of(snippet);
  resident_experts resident(weights());
  const auto measured = bits_per_byte(weights(), resident, text);
  fine_tuner<double> exact(weights(), one_in_each_of({{0, 0}}));
  fine_tuner<float> fast(weights(), one_in_each_of({{0, 0}}));
  EXPECT_NEAR(exact.loss(text), measured, 1e-4);
  EXPECT_NEAR(fast.loss(text), measured, 1e-4);
}

/// Central differences of one weight, beside the gradient.
void compare(fine_tuner<double>& tuner, std::span<const std::uint8_t> text,
             std::vector<double>& matrix, const std::vector<double>& gradient, std::size_t at) {
  constexpr double move = 1e-5;
  const auto was = matrix[at];
  matrix[at] = was + move;
  const auto above = tuner.loss(text);
  matrix[at] = was - move;
  const auto below = tuner.loss(text);
  matrix[at] = was;
  const auto slope = (above - below) / (2 * move);
  EXPECT_NEAR(gradient[at], slope, 1e-6 + 1e-4 * std::abs(slope)) << "element " << at;
}
std::size_t steepest(const std::vector<double>& gradient) {
  return static_cast<std::size_t>(
      std::ranges::max_element(gradient, {}, [](double g) { return std::abs(g); }) -
      gradient.begin());
}

TEST(fine_tuning, the_gradient_is_the_slope_of_the_loss) {
  const auto text = bytes_of(snippet);
  fine_tuner<double> tuner(weights(), most_used(text, {1, 6, 11}));
  (void)tuner.differentiate(text);
  for (const std::size_t layer : {1U, 6U, 11U}) {
    SCOPED_TRACE(layer);
    const auto expert = tuner.tuned()[layer].front();
    const auto gradient = tuner.gradient(layer, expert);
    auto& matrices = tuner.expert(layer, expert);
    const auto check = [&](auto member) {
      const auto& of = gradient.*member;
      ASSERT_NE(of[steepest(of)], 0.0);
      for (const auto at : {steepest(of), std::size_t{0}, of.size() / 2, of.size() - 1})
        compare(tuner, text, matrices.*member, of, at);
    };
    check(&expert_matrices<double>::gate);
    check(&expert_matrices<double>::up);
    check(&expert_matrices<double>::down);
  }
}

TEST(fine_tuning, floats_have_the_gradient_of_doubles) {
  const auto text = bytes_of(snippet);
  const auto tuned = most_used(text, {2, 9});
  fine_tuner<double> exact(weights(), tuned);
  fine_tuner<float> fast(weights(), tuned);
  EXPECT_NEAR(exact.differentiate(text), fast.differentiate(text), 1e-4);
  for (const std::size_t layer : {2U, 9U}) {
    const auto expert = tuned[layer].front();
    const auto& a = exact.gradient(layer, expert).down;
    const auto& b = fast.gradient(layer, expert).down;
    double apart = 0;
    double norm = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      apart += (a[i] - double{b[i]}) * (a[i] - double{b[i]});
      norm += a[i] * a[i];
    }
    EXPECT_GT(norm, 0.0);
    EXPECT_LT(std::sqrt(apart / norm), 1e-3);
  }
}

TEST(fine_tuning, steps_make_a_text_cheaper_and_change_nothing_but_what_is_tuned) {
  const auto text = bytes_of(snippet);
  fine_tuner<float> tuner(weights(), most_used(text, {8, 9, 10, 11}));
  const auto other = tuner.tuned()[8].front() == 0 ? 1_expert : 0_expert;
  const auto untouched = tuner.expert(8, other).gate;
  const auto before = tuner.loss(text);
  for (int i = 0; i < 10; ++i) {
    (void)tuner.differentiate(text);
    EXPECT_GT(tuner.step({.step = 0.1}), 0.0);
  }
  EXPECT_LT(tuner.loss(text), before - 0.05);
  EXPECT_EQ(tuner.expert(8, other).gate, untouched);
}

TEST(fine_tuning, a_step_is_scaled_down_to_the_norm_that_is_allowed) {
  const auto text = bytes_of(snippet);
  fine_tuner<double> tuner(weights(), most_used(text, {11}));
  (void)tuner.differentiate(text);
  const auto expert = tuner.tuned()[11].front();
  const auto before = tuner.expert(11, expert);
  const auto gradient = tuner.gradient(11, expert);
  const auto norm = tuner.step({.step = 2, .momentum = 0, .most = 1e-3});
  ASSERT_GT(norm, 1e-3);
  const auto& after = tuner.expert(11, expert);
  for (std::size_t i = 0; i < before.up.size(); i += 97)
    EXPECT_NEAR(after.up[i], before.up[i] - 2 * 1e-3 / norm * gradient.up[i], 1e-12);
}

// Rounded and merged by the engine, what was learned is still there, and nothing else has changed.
TEST(fine_tuning, an_adapter_is_what_was_tuned) {
  const auto text = bytes_of(snippet);
  fine_tuner<float> tuner(weights(), most_used(text, {9, 10, 11}));
  for (int i = 0; i < 5; ++i) {
    (void)tuner.differentiate(text);
    (void)tuner.step({.step = 0.1});
  }
  const auto adapter = rounded(tuner, weights().config(), "snippet");
  EXPECT_EQ(adapter.tuned(), tuner.tuned());
  merged_experts merged(weights(), adapter);
  EXPECT_NEAR(bits_per_byte(weights(), merged, text), tuner.loss(text), 2e-2);
  tuner.expert(9, tuner.tuned()[9].front()).up[3] = 1e6F;
  EXPECT_THROW((void)rounded(tuner, weights().config(), "snippet"), hotset::invalid_config);
}

TEST(fine_tuning, scores_are_shares_of_the_selections_and_mean_probabilities) {
  const auto text = bytes_of(snippet);
  const auto& shape = weights().config();
  const auto scores = score_experts(weights(), text, 16);
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
  // A window is a sequence of its own.
  EXPECT_NE(scores.token, score_experts(weights(), text, text.size()).token);
}

TEST(fine_tuning, refuses_what_it_cannot_tune) {
  EXPECT_EQ(refusal(tuned_experts(3)), "3 layers of tuned experts, accepted: 12");
  EXPECT_EQ(refusal(tuned_experts(12)), "no expert to tune, accepted: one or more");
  EXPECT_EQ(refusal(one_in_each_of({{4, 32}})), "layer 4: expert 32, accepted: each of 0..31 once");
  EXPECT_EQ(refusal(one_in_each_of({{4, -1}})), "layer 4: expert -1, accepted: each of 0..31 once");
  EXPECT_EQ(refusal(one_in_each_of({{4, 7}, {4, 7}})),
            "layer 4: expert 7, accepted: each of 0..31 once");
}

}  // namespace
}  // namespace fine_tuning_test
