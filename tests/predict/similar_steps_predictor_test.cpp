// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/similar_steps_predictor.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "naive_history.hpp"
#include "predictor_samples.hpp"
#include "random_source.hpp"
#include "written_ids.hpp"

namespace similar_steps_predictor_test {
namespace {

using namespace hotset;
using support::expert_ids;
using support::naive_history;
using support::naive_token;
using support::random_source;
using testing::HasSubstr;
using predictor_type = similar_steps_predictor;
using config = predictor_type::config;

constexpr geometry shape{.layers = 4, .experts = 70, .top_k = 3, .max_tokens_per_visit = 6};

struct visit {
  layer_id layer{};
  step_id step = 0;
  std::vector<naive_token> tokens;
  std::vector<expert_id> ids{};
  std::vector<sequence_id> sequences{};

  routing_view view() {
    ids.clear();
    sequences.clear();
    for (const auto& token : tokens) {
      ids.insert(ids.end(), token.ids.begin(), token.ids.end());
      sequences.push_back(token.sequence);
    }
    return {.layer = layer, .step = step, .experts = ids, .sequences = sequences};
  }
};

/// The rule with a list of all rows and sums in double.
class naive_predictor {
 public:
  explicit naive_predictor(const config& options)
      : options_(options), history_(shape, options.history) {}

  void learn(const visit& v) {
    history_.keep(v.step, v.layer, v.tokens, history_.stage(v.step, v.layer, v.tokens));
    std::set<expert_id> used;
    for (const auto& token : v.tokens)
      for (const auto e : token.ids)
        if (e >= 0 && e < shape.experts) used.insert(e);
    auto& rates_of_layer = rates_[v.layer];
    const auto move = [&](std::map<expert_id, double>& rates, double half_life) {
      const auto by = std::max(1 - std::exp2(-1 / half_life), 1.0 / (rates_of_layer.count + 2));
      for (const auto e : each<expert_id>(shape.experts))
        rates[e] += by * (static_cast<double>(used.count(e)) - rates[e]);
    };
    move(rates_of_layer.fast, two_rates::config{}.fast_half_life);
    move(rates_of_layer.slow, two_rates::config{}.slow_half_life);
    ++rates_of_layer.count;
  }
  /// Values for token t of a view in one layer.
  std::vector<double> row(const visit& v, std::size_t t, layer_id target) {
    std::vector<double> out(static_cast<std::size_t>(shape.experts), 0.0);
    if (target >= shape.layers) return out;
    const auto sequence = v.tokens[t].sequence;
    bool is_last = true;
    for (auto later = t + 1; later < v.tokens.size(); ++later)
      is_last = is_last && v.tokens[later].sequence != sequence;
    const bool opens = v.layer == before_layers;
    if (const auto* similar = history_.similar(sequence); is_last && similar != nullptr)
      for (const auto& [s, r] :
           history_.best(*similar, opens, static_cast<std::size_t>(options_.matches))) {
        const auto weight = std::exp(options_.sharpness * ((s / 16 + 0.5) / 2048 - 0.7));
        const auto& row = history_.at(opens ? history_.successor(r) : r);
        if (const auto set = row.sets.find(target); set != row.sets.end())
          for (const auto e : set->second) out[static_cast<std::size_t>(e)] += weight;
      }
    auto& [fast, slow, count] = rates_[target];
    for (const auto e : each<expert_id>(shape.experts))
      out[static_cast<std::size_t>(e)] +=
          options_.doubt / static_cast<double>(v.tokens.size()) *
          (two_rates::config{}.blend * fast[e] + (1 - two_rates::config{}.blend) * slow[e]);
    double total = 0;
    for (const auto p : out) total += p;
    for (auto& p : out) p = total > 0 ? p / total : 0;
    return out;
  }

 private:
  struct layer_rates {
    std::map<expert_id, double> fast, slow;
    double count = 0;
  };
  config options_;
  naive_history history_;
  std::map<layer_id, layer_rates> rates_;
};

void expect_rows(const forecast& found, naive_predictor& naive, const visit& v,
                 const config& options) {
  ASSERT_EQ(found.depth, options.depth);
  ASSERT_EQ(found.probabilities.size(),
            v.tokens.size() * static_cast<std::size_t>(options.depth * shape.experts));
  for (std::size_t t = 0; t < v.tokens.size(); ++t)
    for (std::int32_t d = 0; d < options.depth; ++d) {
      const auto wanted = naive.row(v, t, v.layer + 1 + d);
      const auto row = found.probabilities.subspan(
          (t * static_cast<std::size_t>(options.depth) + static_cast<std::size_t>(d)) * 70, 70);
      for (std::size_t e = 0; e < 70; ++e)
        ASSERT_NEAR(row[e], wanted[e], 2e-5)
            << "step " << v.step << " layer " << v.layer << " token " << t << " ahead " << d + 1
            << " expert " << e;
    }
}

/// Tokens that often repeat the routing of one of five earlier tokens.
std::vector<naive_token> tokens_of(random_source& random, const std::vector<sequence_id>& sequences,
                                   layer_id layer) {
  std::vector<naive_token> out;
  for (const auto s : sequences) {
    const auto kind = static_cast<std::int32_t>(random.below(5));
    naive_token token{.sequence = s, .ids = {}};
    for (std::int32_t k = 0; k < 3; ++k)
      token.ids.push_back(expert_id{random.one_in(6) ? random.id_below(70)
                                                     : (kind * 13 + number(layer) * 5 + k) % 70});
    out.push_back(token);
  }
  return out;
}

void run_against_naive(const config& options, std::uint64_t seed, step_id steps, bool prompts) {
  random_source random(seed);
  auto made = predictor_type::create(shape, options).value();
  naive_predictor naive(options);
  for (step_id step = 0; step < steps; ++step) {
    std::vector<sequence_id> running{3, 8};
    if (step % 5 == 1) running = {8};
    if (prompts && step % 7 == 0) running = {3, 3, 3, 8};
    visit opening{.layer = before_layers, .step = step, .tokens = {}};
    for (const auto s : running) opening.tokens.push_back({.sequence = s, .ids = {}});
    expect_rows(made.expect(opening.view(), {}, 0), naive, opening, options);
    for (const auto layer : each<layer_id>(shape.layers)) {
      visit v{.layer = layer, .step = step, .tokens = tokens_of(random, running, layer)};
      naive.learn(v);
      expect_rows(made.expect(v.view(), {}, 0), naive, v, options);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(similar_steps_predictor, agrees_with_its_rule) {
  run_against_naive({.history = {.rows = 256, .reach = 8}}, 1, 80, false);
}
TEST(similar_steps_predictor, looks_several_layers_ahead) {
  run_against_naive({.depth = 3, .matches = 5, .doubt = 2, .history = {.rows = 256}}, 2, 50, false);
}
TEST(similar_steps_predictor, tokens_of_a_prompt_but_the_last_get_the_rates) {
  run_against_naive({.depth = 2, .history = {.rows = 256}}, 3, 60, true);
}
TEST(similar_steps_predictor, continues_after_its_rows_are_reused) {
  run_against_naive({.history = {.rows = 256}}, 4, 200, false);
}

std::vector<float> copy(const forecast& f) {
  return {f.probabilities.begin(), f.probabilities.end()};
}

/// Steps of one sequence.
void teach(predictor_type& to, std::uint64_t seed, step_id first, step_id steps) {
  random_source random(seed);
  for (auto step = first; step < first + steps; ++step)
    for (const auto layer : each<layer_id>(shape.layers)) {
      visit v{.layer = layer, .step = step, .tokens = tokens_of(random, {3}, layer)};
      (void)to.expect(v.view(), {}, 0);
    }
}

TEST(similar_steps_predictor, a_repeated_visit_of_a_step_is_not_learned) {
  auto once = predictor_type::create(shape, {}).value();
  auto again = predictor_type::create(shape, {}).value();
  random_source random(5);
  for (step_id step = 0; step < 30; ++step)
    for (const auto layer : each<layer_id>(shape.layers)) {
      visit v{.layer = layer, .step = step, .tokens = tokens_of(random, {3, 4}, layer)};
      const auto first = copy(once.expect(v.view(), {}, 0));
      (void)again.expect(v.view(), {}, 0);
      EXPECT_EQ(copy(again.expect(v.view(), {}, 0)), first);
    }
  EXPECT_EQ(once.save(shape), again.save(shape));
}

TEST(similar_steps_predictor, an_invalid_visit_changes_nothing) {
  auto made = predictor_type::create(shape, {}).value();
  teach(made, 6, 0, 10);
  const auto before = made.save(shape);
  const std::vector<std::int32_t> ids{1, 2};
  const std::vector<std::int32_t> whole{1, 2, 3};
  const std::vector<sequence_id> two{1, 2};
  const std::vector<std::int32_t> many(21, 1);
  for (const auto& [layer, experts, sequences] :
       {std::tuple{0_layer, std::span(ids), std::span<const sequence_id>{}},
        {9_layer, std::span(whole), std::span<const sequence_id>{}},
        {1_layer, std::span(whole), std::span<const sequence_id>(two)},
        {1_layer, std::span(many), std::span<const sequence_id>{}}}) {
    const routing_view view{.layer = layer, .step = 90, .experts = experts, .sequences = sequences};
    EXPECT_TRUE(made.expect(view, {}, 0).probabilities.empty());
  }
  EXPECT_EQ(made.save(shape), before);
}

TEST(similar_steps_predictor, is_as_sure_as_the_best_row_is_similar) {
  auto made = predictor_type::create(shape, {}).value();
  visit v{.layer = 0_layer, .step = 0, .tokens = {{.sequence = 3, .ids = expert_ids({1, 2, 3})}}};
  EXPECT_EQ(made.expect(v.view(), {}, 0).confidence[0], 0.0F) << "nothing is known yet";
  for (step_id step = 1; step < 40; ++step)
    for (const auto layer : each<layer_id>(shape.layers)) {
      v = {.layer = layer, .step = step, .tokens = {{.sequence = 3, .ids = expert_ids({1, 2, 3})}}};
      (void)made.expect(v.view(), {}, 0);
    }
  v.step = 50;
  v.layer = 0_layer;
  EXPECT_GT(made.expect(v.view(), {}, 0).confidence[0], 0.9F);
  v.tokens[0].ids = expert_ids({60, 61, 62});
  v.step = 51;
  EXPECT_LT(made.expect(v.view(), {}, 0).confidence[0], 0.6F);
}

TEST(similar_steps_predictor, a_request_that_has_ended_begins_anew) {
  auto made = predictor_type::create(shape, {}).value();
  teach(made, 7, 0, 20);
  visit opening{.layer = before_layers, .step = 20, .tokens = {{.sequence = 3, .ids = {}}}};
  EXPECT_GT(made.expect(opening.view(), {}, 0).confidence[0], 0.0F);
  made.on_sequence_end(3);
  EXPECT_EQ(made.expect(opening.view(), {}, 0).confidence[0], 0.0F);
}

TEST(similar_steps_predictor, starts_from_another_predictors_history) {
  auto first = predictor_type::create(shape, {}).value();
  teach(first, 8, 0, 40);
  config options;
  options.from.saved = std::make_shared<const saved_history>(first.save(shape));
  auto second = predictor_type::create(shape, options).value();
  EXPECT_EQ(second.save(shape), first.save(shape));
  // A new request in its first visit.
  visit v{.layer = 0_layer, .step = 90, .tokens = {{.sequence = 40, .ids = expert_ids({0, 1, 2})}}};
  auto cold = predictor_type::create(shape, {}).value();
  EXPECT_EQ(copy(second.expect(v.view(), {}, 0)), copy(first.expect(v.view(), {}, 0)));
  EXPECT_EQ(cold.expect(v.view(), {}, 0).confidence[0], 0.0F);
}

TEST(similar_steps_predictor, refuses_invalid_configurations) {
  const auto why = [](const config& options) {
    return support::why(predictor_type::create(shape, options));
  };
  EXPECT_EQ(why({}), "accepted");
  EXPECT_EQ(why({.depth = 0}), "similar_steps depth = 0, accepted: 1 or more");
  EXPECT_EQ(why({.depth = 5}), "similar_steps depth = 5, accepted: 1..4 (layers)");
  EXPECT_EQ(why({.matches = 65}), "similar_steps matches = 65, accepted: 1..64");
  EXPECT_THAT(why({.doubt = 0}), HasSubstr("doubt = 0.000000, accepted: above 0"));
  EXPECT_THAT(why({.history = {.rows = 100}}), HasSubstr("history rows = 100"));
  config foreign;
  auto other = shape;
  other.experts = 71;
  foreign.from.saved = std::make_shared<const saved_history>(saved_history::of(other));
  EXPECT_THAT(why(foreign), HasSubstr("a history of 4 layers x 71 experts"));
  constexpr geometry huge{
      .layers = 60, .experts = 4096, .top_k = 8, .max_tokens_per_visit = 1 << 20};
  EXPECT_THAT(predictor_type::create(huge, {.depth = 60}).error().message,
              HasSubstr("tokens, accepted: at most 17179869184"));
}

}  // namespace
}  // namespace similar_steps_predictor_test
