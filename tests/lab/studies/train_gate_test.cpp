// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/train_gate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/trace/half_array.hpp"
#include "json_of.hpp"
#include "lab/errors.hpp"
#include "lab/progress.hpp"
#include "lab/reports/gate_report.hpp"
#include "sim_samples.hpp"

namespace hotset::train_gate_test {
namespace {

using lab::gate_target;
using lab::gate_training;
using lab::train_gate;
using support::refusal;
using testing::HasSubstr;

constexpr std::int32_t layers = 3;
constexpr std::int32_t experts = 6;
constexpr std::int32_t top_k = 2;
constexpr std::size_t d_model = 4;

/// Hidden states drawn anew for each token and layer, off the origin and of unlike sizes. The routing of layer l follows from the
/// hidden state of layer l - 1, by weights that the layer has; `probabilities` are the softmax of the scores.
struct model {
  std::vector<double> rule = std::vector<double>(std::size_t{layers} * experts * d_model);
  explicit model(std::uint64_t seed) {
    support::random_source random(seed);
    for (auto& w : rule) w = static_cast<double>(random.below(2001)) / 500.0 - 2.0;
  }
  [[nodiscard]] std::vector<double> scores(std::size_t of,
                                           const std::array<double, d_model>& x) const {
    std::vector<double> out(experts);
    for (std::size_t e = 0; e < experts; ++e)
      for (std::size_t i = 0; i < d_model; ++i)
        out[e] += rule[(of * experts + e) * d_model + i] * x[i];
    return out;
  }
};
constexpr std::array<double, d_model> middle{5, -3, 0, 0.5};
constexpr std::array<double, d_model> spread{2, 0.125, 1, 0.5};

routing_trace recorded(std::uint64_t seed, std::size_t sequences, std::size_t tokens) {
  const model rule(17);
  support::random_source random(seed);
  auto trace = support::empty_trace(layers, experts, top_k);
  std::vector<std::uint16_t> hidden, probabilities;
  for (std::size_t n = 0; n < sequences * tokens; ++n) {
    std::vector<double> scores(experts);  // of layer 0: nothing tells them
    for (auto& s : scores) s = static_cast<double>(random.below(1000)) / 500.0;
    std::vector<expert_id> ids;
    for (std::size_t l = 0; l < layers; ++l) {
      auto order = support::expert_ids({0, 1, 2, 3, 4, 5});
      std::stable_sort(order.begin(), order.end(), [&](expert_id a, expert_id b) {
        return scores[index_of(a)] > scores[index_of(b)];
      });
      ids.insert(ids.end(), order.begin(), order.begin() + top_k);
      double sum = 0;
      for (const auto s : scores) sum += std::exp(s);
      for (const auto s : scores)
        probabilities.push_back(float_to_half(static_cast<float>(std::exp(s) / sum)));
      std::array<double, d_model> x{};
      for (std::size_t i = 0; i < d_model; ++i) {
        x[i] = static_cast<double>(random.below(2001)) / 1000.0 - 1.0;
        hidden.push_back(float_to_half(static_cast<float>(middle[i] + spread[i] * x[i])));
      }
      if (l + 1 < layers) scores = rule.scores(l + 1, x);
    }
    support::add_step(trace, {ids});
    trace.sequence.back() = static_cast<std::uint32_t>(n / tokens);
  }
  trace.hidden = half_array(std::move(hidden));
  trace.hidden_width = d_model;
  trace.probabilities = half_array(std::move(probabilities));
  return trace;
}

TEST(train_gate, learns_what_hidden_states_tell_of_the_next_layer) {
  const auto trace = recorded(1, 20, 100);
  for (const std::int32_t width : {0, 16}) {
    const auto found =
        train_gate(trace, {.depth = 2, .width = width, .epochs = 30, .rate = 0.01, .batch = 32});
    ASSERT_EQ(found.distances.size(), 2U);
    const auto& one = found.distances[0];
    EXPECT_GT(one.share(one.hits), 0.9) << width;
    EXPECT_LT(one.share(one.popular_hits), 0.6);
    EXPECT_LT(one.share(*one.current_gate_hits), 0.6);
    const auto& two = found.distances[1];  // nothing tells of it
    EXPECT_LT(two.share(two.hits), 0.6);
    EXPECT_EQ(found.judged_sequences, 4U);
    EXPECT_EQ(found.judged_tokens, 400U);
    EXPECT_EQ(found.learnt_tokens, 1600U);
    EXPECT_EQ(one.places, 400U * 2 * top_k);
    EXPECT_EQ(two.places, 400U * 1 * top_k);
  }
}

TEST(train_gate, comes_to_the_probabilities_where_these_are_its_target) {
  auto trace = recorded(2, 4, 500);
  const auto found = train_gate(
      trace,
      {.width = 0, .epochs = 60, .holdout = 0, .target = gate_target::probabilities, .rate = 0.02});
  EXPECT_TRUE(found.distances.empty());
  auto gate = *learned_gate::create(
      trace.shape(), {.trained = std::make_shared<learned_gate::weights>(found.weights)});
  for (std::size_t t = 0; t < 50; ++t)
    for (layer_id l{}; l + 1 < layers; ++l) {
      std::vector<float> hidden(d_model), want(experts);
      const auto place = t * layers + index_of(l);
      trace.hidden.convert(place * d_model, hidden);
      trace.probabilities.convert((place + 1) * experts, want);
      routing_view view;
      view.layer = l;
      view.experts = trace.ids_of(t, l);
      view.hidden = hidden;
      const auto got = gate.expect(view, {}, 0).probabilities;
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t e = 0; e < want.size(); ++e) EXPECT_NEAR(got[e], want[e], 0.02);
    }
}

TEST(train_gate, the_same_seed_gives_the_same_weights) {
  const auto trace = recorded(3, 5, 20);
  const gate_training training{.depth = 2, .width = 3, .epochs = 2, .batch = 16};
  const auto first = train_gate(trace, training);
  const auto again = train_gate(trace, training);
  EXPECT_EQ(first.weights.save(), again.weights.save());
  EXPECT_EQ(first.distances, again.distances);
  auto other = training;
  other.seed = 2;
  EXPECT_NE(train_gate(trace, other).weights.save(), first.weights.save());
  // A network does not depend on how many others there are.
  auto near = training;
  near.depth = 1;
  const auto alone = train_gate(trace, near);
  auto one = alone.weights;
  auto two = first.weights;
  EXPECT_THAT(one.all_of(1_layer, 1), testing::ElementsAreArray(two.all_of(1_layer, 1)));
}

TEST(train_gate, learns_nothing_of_what_is_held_out) {
  const auto trace = recorded(4, 6, 10);
  const gate_training training{.width = 2, .epochs = 2, .holdout = 0.5};
  const auto before = train_gate(trace, training);
  EXPECT_EQ(before.judged_sequences, 3U);
  // Each sequence in turn is made another: the weights change exactly where it was learnt from.
  std::set<std::uint32_t> learnt;
  for (std::uint32_t s = 0; s < 6; ++s) {
    auto changed = trace;
    for (std::size_t i = 0; i < changed.ids.size(); ++i)
      if (changed.sequence[i / (std::size_t{layers} * top_k)] == s)
        changed.ids[i] = expert_id{(number(changed.ids[i]) + 1) % experts};
    if (train_gate(changed, training).weights.save() != before.weights.save()) learnt.insert(s);
  }
  EXPECT_EQ(learnt.size(), 3U);
}

TEST(train_gate, counts_what_was_named_beside_what_needs_no_training) {
  // Two sequences of one token each; whichever is held out, the other taught experts 0 and 1 in every layer.
  auto trace = support::empty_trace(3, 4, 2);
  for (std::uint32_t s = 0; s < 2; ++s) {
    support::add_step(trace, {{0, 1, 1, 0, 0, -1}});
    trace.sequence.back() = s;
  }
  trace.hidden_width = 1;
  trace.hidden = half_array(std::vector<std::uint16_t>(6, float_to_half(1)));
  // Layer 0 thinks of 2 and 1, layer 1 of 3 and 2.
  for (std::uint32_t s = 0; s < 2; ++s)
    trace.logits.insert(trace.logits.end(), {0, 2, 3, 1, 0, 1, 2, 3, 0, 0, 0, 0});
  // Predictions one layer ahead: of layer 1 experts 0 and 1, of layer 2 3 and 0 (a tie with 1).
  trace.prediction_depth = 1;
  std::vector<std::uint16_t> predictions;
  for (std::uint32_t s = 0; s < 2; ++s)
    for (const float p : {.5F, .25F, .125F, 0.F, .25F, .25F, 0.F, .5F, 0.F, 0.F, 0.F, 0.F})
      predictions.push_back(float_to_half(p));
  trace.predictions = half_array(std::move(predictions));

  const auto found = train_gate(trace, {.depth = 2, .width = 0, .epochs = 50, .rate = 0.1});
  ASSERT_EQ(found.distances.size(), 2U);
  const auto& one = found.distances[0];
  EXPECT_EQ(one.places, 4U);
  EXPECT_EQ(one.popular_hits, 3U) << "0 and 1 of {1, 0}; 0 of {0, -1}";
  EXPECT_EQ(one.hits, 3U) << "a hidden state that never changes tells what is used most";
  EXPECT_EQ(one.current_gate_hits, 1U) << "1 of {1, 0}";
  EXPECT_EQ(one.recorded_hits, 3U);
  const auto& two = found.distances[1];
  EXPECT_EQ(two.places, 2U);
  EXPECT_EQ(two.popular_hits, 1U);
  EXPECT_EQ(two.current_gate_hits, 0U) << "2 and 1 of {0, -1}";
  EXPECT_FALSE(two.recorded_hits) << "the trace looked one layer ahead";

  const auto json = support::json_of(found);
  EXPECT_EQ(json["schema"], "hotset.train-gate/1");
  EXPECT_EQ(json["judged"]["tokens"], 1);
  EXPECT_DOUBLE_EQ(json["distances"][0]["precision"].get<double>(), 0.75);
  EXPECT_DOUBLE_EQ(json["distances"][0]["current_gate"].get<double>(), 0.25);
  EXPECT_EQ(json["distances"][1]["recorded"], nullptr);
  const auto table = lab::to_table(found);
  for (const char* part : {"3 layers x 4 experts, hidden states of 1; 3 networks of width 0",
                           "precision at 2 in %, of 1 tokens of 1 sequences", "75.00"})
    EXPECT_THAT(table, HasSubstr(part));
}

TEST(train_gate, tokens_that_nothing_was_routed_for_are_left_out) {
  auto trace = recorded(5, 4, 20);
  // The same sequences, each with a token more that goes nowhere.
  auto with = support::empty_trace(layers, experts, top_k);
  std::vector<std::uint16_t> hidden;
  for (std::size_t t = 0; t < trace.tokens(); ++t) {
    const auto take = [&](bool routed) {
      std::vector<expert_id> ids(std::size_t{layers} * top_k, no_expert);
      if (routed)
        std::copy_n(trace.ids.begin() + static_cast<std::ptrdiff_t>(t * ids.size()), ids.size(),
                    ids.begin());
      support::add_step(with, {ids});
      with.sequence.back() = trace.sequence[t];
      for (std::size_t i = 0; i < layers * d_model; ++i)
        hidden.push_back(trace.hidden.raw(t * layers * d_model + i));
    };
    take(true);
    take(false);
  }
  with.hidden = half_array(std::move(hidden));
  with.hidden_width = d_model;
  trace.probabilities = {};
  const gate_training training{.width = 2, .epochs = 3};
  const auto want = train_gate(trace, training);
  const auto got = train_gate(with, training);
  EXPECT_EQ(got.distances, want.distances);
  EXPECT_EQ(got.judged_tokens, 2 * want.judged_tokens);
}

TEST(train_gate, a_layer_that_never_routes_is_forecast_evenly) {
  auto trace = recorded(6, 4, 25);
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    std::fill_n(trace.ids.begin() + static_cast<std::ptrdiff_t>(trace.index(t, 2_layer)), top_k,
                no_expert);
  auto found = train_gate(trace, {.width = 2, .epochs = 1});
  EXPECT_THAT(found.weights.all_of(1_layer, 1), testing::Each(0.0F));
  EXPECT_EQ(found.distances[0].places, found.judged_tokens * top_k) << "of layer 1 alone";
}

TEST(train_gate, an_input_that_never_changes_weighs_nothing) {
  auto trace = recorded(6, 4, 25);
  std::vector<std::uint16_t> hidden;
  for (std::size_t i = 0; i < trace.hidden.size(); ++i)
    hidden.push_back(i % d_model == 2 ? float_to_half(3) : trace.hidden.raw(i));
  trace.hidden = half_array(std::move(hidden));
  auto found = train_gate(trace, {.width = 2, .epochs = 1});
  const auto net = found.weights.of(0_layer, 1);
  EXPECT_EQ(net.hidden[2], 0.0F);
  EXPECT_EQ(net.hidden[d_model + 2], 0.0F);
  EXPECT_NE(net.hidden[0], 0.0F);
}

TEST(train_gate, tells_how_far_it_is) {
  std::uint64_t last = 0, total = 0;
  const lab::progress_scope asked([&](std::uint64_t done, std::uint64_t of) {
    EXPECT_TRUE(of != total || done > last) << "never back";
    last = done;
    total = of;
  });
  (void)train_gate(recorded(7, 2, 10), {.depth = 2, .width = 2, .epochs = 4, .holdout = 0});
  EXPECT_EQ(total, 3U * 4);
  EXPECT_EQ(last, total);
}

TEST(train_gate, refuses_what_it_cannot_learn_from) {
  const auto trace = recorded(8, 2, 5);
  const auto usage = [&](const gate_training& training) {
    return refusal<lab::usage_error>([&] { (void)train_gate(trace, training); });
  };
  EXPECT_EQ(usage({.depth = 0}), "depth = 0, accepted: 1 or more");
  EXPECT_EQ(usage({.depth = 3}), "depth = 3, accepted: 1..2 (layers - 1)");
  EXPECT_EQ(usage({.width = -1}), "width = -1, accepted: 0 or more");
  EXPECT_EQ(usage({.epochs = 0}), "epochs = 0, accepted: 1 or more");
  EXPECT_EQ(usage({.holdout = 1}), "holdout = 1, accepted: 0 or more, less than 1");
  EXPECT_EQ(usage({.rate = 0}), "rate = 0, accepted: more than 0, at most 1");
  EXPECT_EQ(usage({.batch = 0}), "batch = 0, accepted: 1 or more");
  EXPECT_EQ(usage({.target = static_cast<gate_target>(2)}),
            "target = 2, accepted: 0 (routed), 1 (probabilities)");
  EXPECT_THAT(usage({.width = 1 << 21}), HasSubstr("learned_gate width = 2097152, accepted: 0.."));

  const auto why = [](routing_trace of, const gate_training& training = {.width = 2, .epochs = 1}) {
    return refusal<trace_error>([&] { (void)train_gate(of, training); });
  };
  auto bad = trace;
  bad.hidden = {};
  EXPECT_EQ(why(bad), "the trace has no hidden states, accepted: a trace that recorded them");
  EXPECT_THAT(why(support::empty_trace(3, 4, 2)), HasSubstr("the trace has no tokens"));
  bad = trace;
  bad.probabilities = {};
  EXPECT_THAT(why(bad, {.target = gate_target::probabilities}), HasSubstr("no probabilities"));
  bad = trace;
  std::ranges::fill(bad.sequence, 4U);
  EXPECT_THAT(why(bad), HasSubstr("1 sequence in the trace, accepted: 2 or more"));
  bad = trace;
  std::vector<std::uint16_t> hidden;
  for (std::size_t i = 0; i < trace.hidden.size(); ++i) hidden.push_back(trace.hidden.raw(i));
  hidden[d_model + 1] = 0x7c00;  // infinity, layer 1 of token 0
  bad.hidden = half_array(std::move(hidden));
  EXPECT_EQ(why(bad, {.width = 2, .epochs = 1, .holdout = 0}),
            "a hidden state of layer 1 is not finite, accepted: finite numbers");
  EXPECT_EQ(why(support::one_layer(4, {{0}, {1}})), "the trace has 1 layer, accepted: 2 or more");
}

}  // namespace
}  // namespace hotset::train_gate_test
