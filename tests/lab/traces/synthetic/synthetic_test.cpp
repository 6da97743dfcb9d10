// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/synthetic/synthetic.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "case_names.hpp"
#include "written_ids.hpp"

namespace synthetic_test {
namespace {
using namespace hotset;
using support::expert_ids;

class hashed {
 public:
  void mix(std::uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3ULL; }
  [[nodiscard]] std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};
std::uint64_t fingerprint(const routing_trace& trace) {
  hashed hash;
  for (const auto id : trace.ids) hash.mix(static_cast<std::uint64_t>(id));
  for (const auto w : trace.weights) hash.mix(std::bit_cast<std::uint32_t>(w));
  for (const auto s : trace.step) hash.mix(s);
  return hash.value();
}
std::uint64_t fingerprint_of_scores(const routing_trace& trace) {
  hashed hash;
  for (const auto z : trace.logits) hash.mix(std::bit_cast<std::uint32_t>(z));
  for (const auto* const halves : {&trace.probabilities, &trace.predictions})
    for (std::size_t i = 0; i < halves->size(); ++i) hash.mix(halves->raw(i));
  return hash.value();
}

std::vector<std::uint64_t> counts(const routing_trace& trace, layer_id layer, std::size_t from,
                                  std::size_t to) {
  std::vector<std::uint64_t> out(static_cast<std::size_t>(trace.experts), 0);
  for (std::size_t t = from; t < to; ++t)
    for (const auto id : trace.ids_of(t, layer)) ++out[static_cast<std::size_t>(id)];
  return out;
}

/// Very different routers, each with scores.
std::vector<synthetic_config> scored_configs() {
  std::vector<synthetic_config> out{
      {.tokens = 100, .stickiness = 0.3},
      {.layers = 2, .experts = 64, .top_k = 8, .tokens = 100, .zipf = 0},
      {.experts = 128, .top_k = 1, .tokens = 50, .zipf = 8},
      {.sequences = 2, .prefill = 30, .tokens = 20, .phase_length = 25, .weights = false},
      {.experts = 8, .top_k = 7, .tokens = 300},
      {.experts = 4, .top_k = 4, .tokens = 20},
      {.layers = 1, .experts = 1, .top_k = 1, .tokens = 20},
      {.tokens = 100, .autoregression = 0.9},
      {.layers = 2,
       .experts = 64,
       .top_k = 8,
       .sequences = 3,
       .prefill = 10,
       .tokens = 30,
       .autoregression = 0,
       .phase_length = 25},
      // So steep that logits reach the limit.
      {.experts = 4096, .top_k = 500, .tokens = 4, .zipf = 8, .autoregression = 0.5},
      {.layers = 1, .experts = 1, .top_k = 1, .tokens = 20, .autoregression = 0.1}};
  for (auto& config : out) config.scores = true;
  return out;
}
/// A trace of each configuration.
class scored : public testing::TestWithParam<synthetic_config> {
 protected:
  const synthetic_config config = GetParam();
  const routing_trace trace = synthetic_trace(config).value();
};
INSTANTIATE_TEST_SUITE_P(routers, scored, testing::ValuesIn(scored_configs()), support::by_place);

/// Two sequences with prompts whose popular experts change.
synthetic_config changing() {
  return {.sequences = 2,
          .prefill = 8,
          .tokens = 64,
          .zipf = 1.2,
          .stickiness = 0.5,
          .phase_length = 50,
          .seed = 7};
}

/// Scores of one token in one layer.
std::vector<float> row_of(const std::vector<float>& logits, const routing_trace& trace,
                          std::size_t token, layer_id layer) {
  const auto e = static_cast<std::size_t>(trace.experts);
  const auto begin =
      (token * static_cast<std::size_t>(trace.layers) + static_cast<std::size_t>(layer)) * e;
  return {logits.begin() + static_cast<std::ptrdiff_t>(begin),
          logits.begin() + static_cast<std::ptrdiff_t>(begin + e)};
}
std::vector<float> row_of(const half_array& halves, const routing_trace& trace, std::size_t token,
                          layer_id layer) {
  std::vector<float> all(halves.size());
  halves.convert(0, all);
  return row_of(all, trace, token, layer);
}

/// The k greatest; ties go to the lower id.
std::vector<expert_id> best(const std::vector<float>& scores, std::int32_t k) {
  const auto all = each<expert_id>(scores.size());
  std::vector<expert_id> order(all.begin(), all.end());
  std::stable_sort(order.begin(), order.end(), [&](expert_id a, expert_id b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>(k));
  return order;
}

/// Share of the next layer's routed experts among the k best predictions.
double accuracy(const routing_trace& trace) {
  std::size_t right = 0;
  std::size_t all = 0;
  std::vector<float> predictions(trace.predictions.size());
  trace.predictions.convert(0, predictions);
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    for (const auto l : each<layer_id>(trace.layers - 1)) {
      const auto real = trace.ids_of(t, l + 1);
      for (const auto id : best(row_of(predictions, trace, t, l), trace.top_k))
        right += std::count(real.begin(), real.end(), id) != 0 ? 1U : 0U;
      all += real.size();
    }
  return static_cast<double>(right) / static_cast<double>(all);
}

TEST(synthetic, the_same_seed_gives_the_same_trace_on_every_machine) {
  const auto trace = synthetic_trace(changing()).value();
  EXPECT_EQ(fingerprint(trace), 16419722522490417801ULL);
  auto other = changing();
  other.seed = 8;
  EXPECT_NE(fingerprint(synthetic_trace(other).value()), fingerprint(trace));
}

TEST(synthetic, popularity_follows_the_exponent) {
  for (const double s : {0.0, 0.5, 1.0, 2.5}) {
    const auto table = detail::zipf_table(64, s);
    for (std::size_t r = 0; r < 64; ++r) {
      const auto mass = table[r] - (r == 0 ? 0 : table[r - 1]);
      EXPECT_NEAR(static_cast<double>(mass) * 0x1p-40, std::pow(static_cast<double>(r + 1), -s),
                  1e-7);
    }
  }
}

TEST(synthetic, traces_are_valid_and_shaped_as_asked) {
  const auto trace =
      synthetic_trace(
          {.layers = 3, .experts = 16, .top_k = 4, .sequences = 2, .prefill = 10, .tokens = 5})
          .value();
  EXPECT_FALSE(trace.validate());
  EXPECT_EQ(trace.tokens(), 30U);
  EXPECT_EQ(trace.step[9], 0U);
  EXPECT_EQ(trace.step[10], 1U);
  EXPECT_EQ(trace.step[15], 6U);
  EXPECT_EQ(trace.sequence[15], 1U);
  EXPECT_EQ(trace.kind[9], request_class::prefill);
  EXPECT_EQ(trace.kind[10], request_class::decode);
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    for (const auto l : each<layer_id>(3)) {
      std::vector<expert_id> ids(trace.ids_of(t, l).begin(), trace.ids_of(t, l).end());
      std::sort(ids.begin(), ids.end());
      EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end()) << "distinct";
      const auto w = trace.weights_of(t, l);
      EXPECT_TRUE(std::is_sorted(w.rbegin(), w.rend()));
      EXPECT_NEAR(std::accumulate(w.begin(), w.end(), 0.0F), 1.0F, 1e-5F);
    }
}

TEST(synthetic, skew_stickiness_and_phases_have_their_effect) {
  const auto flat = synthetic_trace({.top_k = 1, .tokens = 4000, .zipf = 0}).value();
  const auto steep = synthetic_trace({.top_k = 1, .tokens = 4000, .zipf = 2}).value();
  const auto most = [](const routing_trace& t) {
    const auto c = counts(t, 0_layer, 0, t.tokens());
    return *std::max_element(c.begin(), c.end());
  };
  EXPECT_LT(most(flat), 4000U / 16);
  EXPECT_GT(most(steep), 4000U / 2);

  const auto repeats = [](const routing_trace& t) {
    std::size_t same = 0;
    for (std::size_t i = 1; i < t.tokens(); ++i)
      same += t.ids_of(i, 0_layer)[0] == t.ids_of(i - 1, 0_layer)[0] ? 1U : 0U;
    return same;
  };
  const auto sticky =
      synthetic_trace({.top_k = 1, .tokens = 4000, .zipf = 0, .stickiness = 0.9}).value();
  EXPECT_GT(repeats(sticky), 3400U);
  EXPECT_LT(repeats(flat), 400U);

  const auto phased =
      synthetic_trace({.top_k = 1, .tokens = 4000, .zipf = 2, .phase_length = 2000}).value();
  const auto first = counts(phased, 0_layer, 0, 2000);
  const auto second = counts(phased, 0_layer, 2000, 4000);
  EXPECT_NE(std::max_element(first.begin(), first.end()) - first.begin(),
            std::max_element(second.begin(), second.end()) - second.begin());
}

/// Share of the positions whose experts in a layer equal the step before, in rank order.
double kept(const routing_trace& trace, std::size_t positions) {
  std::size_t same = 0;
  std::size_t all = 0;
  for (std::size_t t = positions; t < trace.tokens(); ++t)
    for (layer_id l{}; l < trace.layers; ++l, ++all)
      same += std::ranges::equal(trace.ids_of(t, l), trace.ids_of(t - positions, l)) ? 1U : 0U;
  return static_cast<double>(same) / static_cast<double>(all);
}

TEST(synthetic, every_step_routes_all_positions) {
  const auto trace =
      synthetic_trace({.sequences = 2, .prefill = 3, .tokens = 4, .positions = 5}).value();
  EXPECT_FALSE(trace.validate());
  ASSERT_EQ(trace.tokens(), 2U * (3 + 4 * 5));
  for (std::size_t t = 0; t < trace.tokens(); ++t) {
    const auto at = t % 23;
    EXPECT_EQ(trace.sequence[t], t / 23);
    EXPECT_EQ(trace.step[t], 5 * (t / 23) + (at < 3 ? 0 : 1 + (at - 3) / 5));
    EXPECT_EQ(trace.kind[t], at < 3 ? request_class::prefill : request_class::decode);
  }
}

TEST(synthetic, positions_keep_their_experts_as_often_as_asked) {
  synthetic_config config{.experts = 64, .top_k = 6, .tokens = 40, .positions = 50, .seed = 3};
  EXPECT_LT(kept(synthetic_trace(config).value(), 50), 0.01);
  for (const double chance : {0.1, 0.5, 0.9, 1.0}) {
    config.position_stickiness = chance;
    const auto trace = synthetic_trace(config).value();
    EXPECT_FALSE(trace.validate());
    EXPECT_NEAR(kept(trace, 50), chance, 0.02);
  }
  config.stickiness = 0.5;
  EXPECT_EQ(kept(synthetic_trace(config).value(), 50), 1.0) << "ranks are not asked";
}

// Neither the prompt nor another sequence counts as the step before.
TEST(synthetic, the_first_step_of_a_sequence_keeps_nothing) {
  const auto trace = synthetic_trace({.layers = 1,
                                      .experts = 64,
                                      .sequences = 2,
                                      .prefill = 8,
                                      .tokens = 2,
                                      .positions = 8,
                                      .position_stickiness = 1})
                         .value();
  const auto same = [&](std::size_t first, std::size_t second) {
    std::size_t out = 0;
    for (std::size_t p = 0; p < 8; ++p)
      out += std::ranges::equal(trace.ids_of(first + p, 0_layer), trace.ids_of(second + p, 0_layer))
                 ? 1U
                 : 0U;
    return out;
  };
  EXPECT_LT(same(0, 8), 8U) << "the prompt";
  EXPECT_EQ(same(8, 16), 8U);
  EXPECT_LT(same(16, 24), 8U) << "the next prompt";
  EXPECT_LT(same(24, 32), 8U);
  EXPECT_EQ(same(32, 40), 8U);
}

TEST(synthetic, positions_are_the_same_on_every_machine_and_scored_as_any_token) {
  synthetic_config config{
      .tokens = 10, .positions = 20, .position_stickiness = 0.4, .scores = true, .seed = 7};
  const auto trace = synthetic_trace(config).value();
  EXPECT_EQ(fingerprint(trace), 9025839281235133527ULL);
  EXPECT_FALSE(trace.validate());
  for (std::size_t t = 0; t < trace.tokens(); ++t) {
    const auto ids = trace.ids_of(t, 2_layer);
    EXPECT_EQ(best(row_of(trace.logits, trace, t, 2_layer), 4),
              std::vector<expert_id>(ids.begin(), ids.end()));
  }
}

TEST(synthetic, rows_that_take_nearly_all_experts_keep_their_draws) {
  const synthetic_config sticky{.layers = 2,
                                .experts = 64,
                                .top_k = 64,
                                .sequences = 2,
                                .prefill = 3,
                                .tokens = 5,
                                .zipf = 3,
                                .stickiness = 0.5,
                                .seed = 9};
  EXPECT_EQ(fingerprint(synthetic_trace(sticky).value()), 0xe4ecb2d6cc41a7b9U);
  const synthetic_config steep{.layers = 1,
                               .experts = 300,
                               .top_k = 290,
                               .tokens = 6,
                               .zipf = 8,
                               .phase_length = 2,
                               .seed = 5};
  EXPECT_EQ(fingerprint(synthetic_trace(steep).value()), 0xe1bdc384d3d544e6U);
}

// O(E K^2) per row would take an hour here.
TEST(synthetic, the_widest_row_names_each_expert_once) {
  const auto trace =
      synthetic_trace({.layers = 1, .experts = 65535, .top_k = 65535, .tokens = 1}).value();
  const auto uses = counts(trace, 0_layer, 0, 1);
  EXPECT_EQ(std::ranges::count(uses, 1U), 65535);
}

TEST_P(scored, leaves_everything_else_as_it_is) {
  auto unscored = config;
  unscored.scores = false;
  const auto without = synthetic_trace(unscored).value();
  EXPECT_EQ(trace.ids, without.ids);
  EXPECT_EQ(trace.weights, without.weights);
  EXPECT_EQ(trace.step, without.step);
  EXPECT_TRUE(without.logits.empty());
  EXPECT_TRUE(without.probabilities.empty());
  EXPECT_TRUE(without.predictions.empty());
  EXPECT_EQ(without.prediction_depth, 0);
  EXPECT_TRUE(without.metadata.empty());
}

TEST(synthetic, scores_are_the_same_on_every_machine) {
  auto config = changing();
  config.scores = true;
  config.predictor_noise = 0.25;
  const auto trace = synthetic_trace(config).value();
  EXPECT_EQ(fingerprint(trace), 16419722522490417801ULL) << "as without scores";
  EXPECT_EQ(fingerprint_of_scores(trace), 16426321438858752711ULL);
}

TEST_P(scored, is_valid_and_describes_its_scores) {
  EXPECT_FALSE(trace.validate());
  const auto places = trace.tokens() * static_cast<std::size_t>(config.layers * config.experts);
  EXPECT_EQ(trace.logits.size(), places);
  EXPECT_EQ(trace.probabilities.size(), places);
  EXPECT_EQ(trace.predictions.size(), places);
  EXPECT_EQ(trace.prediction_depth, 1);
  if (!config.autoregression) {
    EXPECT_EQ(trace.fact("logits"), "logarithms of the probabilities");
  }
}

TEST(synthetic, records_the_noise_of_its_predictions) {
  const auto noisy = synthetic_trace({.tokens = 1, .scores = true, .predictor_noise = 0.2}).value();
  EXPECT_EQ(noisy.fact("predictions"),
            "probabilities of the next layer; chance of an expert to have another one's: 0.2");
}

TEST_P(scored, has_the_routed_experts_in_rank_order_as_the_best_logits) {
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    for (const auto l : each<layer_id>(trace.layers)) {
      const auto ids = trace.ids_of(t, l);
      auto z = row_of(trace.logits, trace, t, l);
      ASSERT_EQ(best(z, trace.top_k), std::vector<expert_id>(ids.begin(), ids.end()));
      std::sort(z.rbegin(), z.rend());
      const auto last = std::min(z.size(), static_cast<std::size_t>(trace.top_k) + 1);
      for (std::size_t i = 1; i < last; ++i) ASSERT_LT(z[i], z[i - 1]) << "no tie to break";
    }
}

// Equal or almost equal 32-bit draws are too rare to wait for.
TEST(synthetic, ties_of_gate_weights_are_none_of_the_scores) {
  const synthetic_config config{.layers = 1, .experts = 6, .top_k = 3, .scores = true};
  detail::synthetic_scores scores(config);
  detail::score_rows made(config);
  const auto ids = expert_ids({4, 1, 5});
  const auto popular = expert_ids({0, 1, 2, 3, 4, 5});
  const auto alike = detail::zipf_table(6, 0);
  const auto huge = std::uint64_t{1} << 32U;
  const std::vector<std::vector<std::uint64_t>> ties{
      {1, 1, 1},    {huge, huge, huge}, {huge, huge - 1, huge - 2},
      {huge, 1, 1}, {huge, huge, 1},    {huge, huge, 1024}};
  constexpr std::size_t rounds = 20;
  for (std::size_t t = 0; t < rounds * ties.size(); ++t) {
    scores.add_layer(ids, ties[t % ties.size()], popular, alike, made);
    made.end_token();
  }
  routing_trace trace;
  trace.layers = 1;
  trace.experts = 6;
  trace.step.resize(rounds * ties.size());
  made.move_into(trace, "");
  for (std::size_t t = 0; t < trace.tokens(); ++t) {
    const auto z = row_of(trace.logits, trace, t, 0_layer);
    EXPECT_EQ(best(z, 3), ids);
    EXPECT_GT(z[4], z[1]);
    EXPECT_GT(z[1], z[5]);
    EXPECT_GT(z[5], std::max({z[0], z[2], z[3]}));
    EXPECT_GE(z[0], -64.0F);
    const auto p = row_of(trace.probabilities, trace, t, 0_layer);
    EXPECT_GT(std::min({p[4], p[1], p[5]}), std::max({p[0], p[2], p[3]})) << "also if nearly 0";
  }
}

TEST_P(scored, has_the_softmax_of_the_logits_as_probabilities) {
  for (std::size_t t = 0; t < trace.tokens(); t += 7)
    for (const auto l : each<layer_id>(trace.layers)) {
      const auto z = row_of(trace.logits, trace, t, l);
      const auto p = row_of(trace.probabilities, trace, t, l);
      double total = 0;
      for (const auto one : z) total += std::exp(double{one});
      if (!config.autoregression) {
        EXPECT_NEAR(total, 1.0, 1e-3) << "logarithms of them";
      }
      for (std::size_t e = 0; e < z.size(); ++e) {
        const double wanted = std::exp(double{z[e]}) / total;
        ASSERT_NEAR(double{p[e]}, wanted, wanted * 0x1p-9 + 0x1p-23) << t << ' ' << l << ' ' << e;
      }
    }
}

TEST_P(scored, has_the_routed_probabilities_renormalised_as_gate_weights) {
  for (std::size_t t = 0; config.weights && t < trace.tokens(); t += 3)
    for (const auto l : each<layer_id>(trace.layers)) {
      const auto z = row_of(trace.logits, trace, t, l);
      const auto ids = trace.ids_of(t, l);
      double total = 0;
      for (const auto id : ids) total += std::exp(double{z[static_cast<std::size_t>(id)]});
      for (std::size_t k = 0; k < ids.size(); ++k)
        ASSERT_NEAR(std::exp(double{z[static_cast<std::size_t>(ids[k])]}) / total,
                    double{trace.weights_of(t, l)[k]}, 1e-4);
    }
}

TEST(synthetic, routed_experts_hold_half_and_some_are_missed_nearly) {
  const auto trace =
      synthetic_trace({.experts = 64, .top_k = 6, .tokens = 250, .zipf = 0.5, .scores = true})
          .value();
  std::vector<double> shares;
  std::size_t near = 0;
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    for (const auto l : each<layer_id>(trace.layers)) {
      auto z = row_of(trace.logits, trace, t, l);
      std::sort(z.rbegin(), z.rend());
      near += z[5] - z[6] < 0.5F ? 1U : 0U;
      double share = 0;
      for (std::size_t k = 0; k < 6; ++k) share += std::exp(double{z[k]});
      shares.push_back(share);
    }
  EXPECT_GT(near, shares.size() / 10);
  EXPECT_LT(near, shares.size() / 2);
  std::sort(shares.begin(), shares.end());
  EXPECT_GT(shares.front(), 0.4999);
  EXPECT_LT(shares[shares.size() / 10], 0.5001) << "no further than that";
  EXPECT_GT(shares[shares.size() * 9 / 10], 0.9) << "peaked ones";
}

TEST_P(scored, without_noise_predicts_the_next_layer_exactly) {
  const auto e = static_cast<std::size_t>(config.experts);
  const auto layers = static_cast<std::size_t>(config.layers);
  for (std::size_t row = 0; row < trace.tokens() * layers; ++row) {
    const bool last = row % layers + 1 == layers;
    for (std::size_t i = 0; i < e; ++i)
      ASSERT_EQ(trace.predictions.raw(row * e + i),
                last ? 0 : trace.probabilities.raw((row + 1) * e + i));
  }
  if (config.layers > 1) {
    EXPECT_EQ(accuracy(trace), 1.0);
  }
}

TEST(synthetic, noise_makes_predictions_worse_step_by_step) {
  double before = 1;
  for (const double noise : {0.1, 0.2, 0.4, 0.6, 0.8, 1.0}) {
    const auto trace =
        synthetic_trace(
            {.experts = 64, .top_k = 6, .tokens = 300, .scores = true, .predictor_noise = noise})
            .value();
    const double now = accuracy(trace);
    EXPECT_LT(now, before) << noise;
    // An exchanged expert keeps its place only by chance: 5 of the 63 others are as good.
    EXPECT_NEAR(now, 1 - noise * 58 / 63, 0.02) << noise;
    before = now;
  }
}

TEST(synthetic, autoregressive_logits_decide_the_routing) {
  const synthetic_config config{.layers = 3,
                                .experts = 40,
                                .top_k = 5,
                                .sequences = 2,
                                .prefill = 6,
                                .tokens = 20,
                                .autoregression = 0.8,
                                .phase_length = 17,
                                .scores = true,
                                .seed = 5};
  const auto trace = synthetic_trace(config).value();
  EXPECT_EQ(trace.step[5], 0U);
  EXPECT_EQ(trace.step[6], 1U);
  EXPECT_EQ(trace.kind[5], request_class::prefill);
  EXPECT_EQ(trace.kind[6], request_class::decode);
  // Repeats the generator's process beside the trace; a phase shuffles the popular experts.
  detail::autoregressive_logits process(config);
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    for (const auto l : each<layer_id>(trace.layers)) {
      const auto all = each<expert_id>(40);
      std::vector<expert_id> popular(all.begin(), all.end());
      splitmix64 random(splitmix64(5 ^ (std::uint64_t{t / 17} << 32U)).next() ^ index_of(l));
      for (std::size_t i = 40; i > 1; --i) std::swap(popular[i - 1], popular[random.below(i)]);
      std::vector<float> z;
      for (const auto step : process.next(index_of(l), popular, t != 0 && t != 26))
        z.push_back(static_cast<float>(step) * 0x1p-18F);
      const auto ids = trace.ids_of(t, l);
      ASSERT_EQ(best(z, 5), std::vector<expert_id>(ids.begin(), ids.end())) << t << ' ' << l;
      ASSERT_EQ(row_of(trace.logits, trace, t, l), z) << t << ' ' << l;
    }
  EXPECT_EQ(trace.fact("logits"), "autoregressive; correlation 0.8");
}

TEST(synthetic, autoregressive_traces_are_the_same_on_every_machine) {
  auto config = changing();
  config.stickiness = 0;
  config.autoregression = 0.85;
  config.scores = true;
  config.predictor_noise = 0.5;
  config.predictor_noise_kind = noise_kind::gaussian;
  const auto trace = synthetic_trace(config).value();
  EXPECT_EQ(fingerprint(trace), 9196443316347353127ULL);
  EXPECT_EQ(fingerprint_of_scores(trace), 605479474932372054ULL);
  config.seed = 8;
  EXPECT_NE(fingerprint(synthetic_trace(config).value()), fingerprint(trace));
}

std::string refusal(const synthetic_config& config) {
  const auto made = synthetic_trace(config);
  return made ? "" : made.error().message;
}

TEST(synthetic, refuses_a_configuration_with_the_accepted_range) {
  const auto nan = std::nan("");
  struct refused {
    synthetic_config config;
    const char* name;
    double value;
    const char* accepted;
  };
  std::vector<refused> all{
      {{.zipf = -1}, "zipf", -1, "0..8"},
      {{.stickiness = 1.5}, "stickiness", 1.5, "0..1"},
      {{.stickiness = 0.5, .autoregression = 0.5}, "stickiness", 0.5, "0 with autoregression"},
      {{.position_stickiness = 0.5, .autoregression = 0.5},
       "position_stickiness",
       0.5,
       "0 with autoregression"}};
  for (const double bad : {-0.1, 1.1, nan}) {
    all.push_back({{.position_stickiness = bad}, "position_stickiness", bad, "0..1"});
    all.push_back({{.predictor_noise = bad}, "predictor_noise", bad, "0..1"});
    all.push_back({{.autoregression = bad}, "autoregression", bad, "0 or more, below 1"});
  }
  for (const double bad : {-0.1, 16.1, nan})
    all.push_back({{.predictor_noise = bad, .predictor_noise_kind = noise_kind::gaussian},
                   "predictor_noise",
                   bad,
                   "0..16 (gaussian)"});
  for (const auto& [config, name, value, accepted] : all)
    EXPECT_EQ(refusal(config), name + (" = " + std::to_string(value)) + ", accepted: " + accepted);
  EXPECT_EQ(refusal({.positions = 0}), "positions = 0, accepted: 1 or more");
  for (const auto& config :
       {synthetic_config{.zipf = nan}, synthetic_config{.sequences = 0},
        synthetic_config{.experts = 2, .top_k = 3}, synthetic_config{.autoregression = 1}})
    EXPECT_NE(refusal(config), "");
  EXPECT_EQ(refusal({.autoregression = std::nextafter(1.0, 0.0), .predictor_noise = 1}), "");
}

TEST(synthetic, refuses_more_rows_than_it_can_number) {
  EXPECT_EQ(refusal({.sequences = 3, .prefill = 1U << 31U, .tokens = 5}),
            "sequences x (prefill + positions x tokens) = 3 x (2147483648 + 1 x 5), accepted: "
            "1..2147483648");
  EXPECT_NE(refusal({.tokens = 1U << 16U, .positions = 1U << 16U}), "");
  EXPECT_NE(refusal({.tokens = UINT32_MAX, .positions = UINT32_MAX}), "");
  EXPECT_NE(refusal({.tokens = 0}), "");
  // 2^64 + 2^31 rows in total.
  EXPECT_NE(refusal({.sequences = 3221225472, .prefill = 4294967295, .tokens = 1431655767}), "");
}

}  // namespace
}  // namespace synthetic_test
