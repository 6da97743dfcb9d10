// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/expert_map.hpp"

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocation.hpp"
#include "hotset/policy/any/any_predictor.hpp"
#include "map_samples.hpp"
#include "predictor_samples.hpp"

namespace hotset::expert_map_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;
using testing::IsEmpty;
using floats = std::vector<float>;
using ids = std::vector<std::int32_t>;

/// Three layers of two experts.
const geometry shape{.layers = 3, .experts = 2, .top_k = 1, .max_tokens_per_visit = 3};

routing_view view_of(layer_id layer, step_id step, const floats& probabilities) {
  return {.layer = layer, .step = step, .probabilities = probabilities};
}
routing_view opening(step_id step, const ids& tokens) {
  return {.layer = before_layers, .step = step, .token_ids = tokens};
}
floats rows_of(const forecast& f) { return {f.probabilities.begin(), f.probabilities.end()}; }
floats confidence_of(const forecast& f) { return {f.confidence.begin(), f.confidence.end()}; }

/// Runs one step of tokens [tokens, layers, experts] and returns the forecasts' confidence after each layer.
std::vector<floats> run(expert_map& map, step_id step, const floats& maps, const ids& tokens,
                        request_class kind = request_class::decode) {
  const auto experts = map.store().experts();
  const auto layers = map.store().layers();
  std::vector<floats> out;
  auto open = opening(step, tokens);
  open.kind = kind;
  out.push_back(confidence_of(map.expect(open)));
  for (std::size_t l = 0; l < layers; ++l) {
    floats rows;
    for (std::size_t t = 0; t < tokens.size(); ++t)
      for (std::size_t e = 0; e < experts; ++e)
        rows.push_back(maps[(t * layers + l) * experts + e]);
    auto view = view_of(static_cast<layer_id>(l), step, rows);
    view.kind = kind;
    view.token_ids = tokens;
    out.push_back(confidence_of(map.expect(view)));
  }
  return out;
}
floats stored(const expert_map& map, std::size_t place) {
  floats out;
  floats row(map.store().experts());
  for (std::size_t l = 0; l < map.store().layers(); ++l) {
    map.store().read_row(place, l, row);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

TEST(expert_map, knows_nothing_at_first) {
  auto map = expert_map::create(shape, {.depth = 2}).value();
  const ids tokens{7, 8};
  auto f = map.expect(opening(0, tokens));
  EXPECT_EQ(f.depth, 2);
  EXPECT_EQ(f.probabilities.size(), 2 * 2 * 2U);
  EXPECT_THAT(rows_of(f), Each(0.0F));
  EXPECT_THAT(confidence_of(f), ElementsAre(0.0F, 0.0F));
  f = map.expect(view_of(0_layer, 0, {1, 0, 0.5F, 0.5F}));
  EXPECT_THAT(rows_of(f), Each(0.0F));
  EXPECT_THAT(confidence_of(f), ElementsAre(0.0F, 0.0F));
}

TEST(expert_map, forecasts_by_the_token_and_then_by_its_routing) {
  auto map = expert_map::create(shape, {.depth = 2}).value();
  run(map, 0, {1, 0, 0.75F, 0.25F, 0, 1}, {7});
  run(map, 1, {0, 1, 0.25F, 0.75F, 0.5F, 0.5F}, {8});
  ASSERT_EQ(map.store().size(), 2U);
  EXPECT_EQ(map.store().token(1), 8);
  const ids tokens{8, 7, 9};
  auto f = map.expect(opening(2, tokens));
  // Layers 0 and 1 of the token's map; token 9 has no map.
  EXPECT_THAT(rows_of(f), ElementsAre(0, 1, 0.25F, 0.75F, 1, 0, 0.75F, 0.25F, 0, 0, 0, 0));
  EXPECT_THAT(confidence_of(f), ElementsAre(1, 1, 0));
  // All tokens now follow the first map, the last one not exactly.
  f = map.expect(view_of(0_layer, 2, {1, 0, 1, 0, 0.75F, 0.25F}));
  EXPECT_THAT(rows_of(f), ElementsAre(0.75F, 0.25F, 0, 1, 0.75F, 0.25F, 0, 1, 0.75F, 0.25F, 0, 1));
  EXPECT_THAT(confidence_of(f),
              ElementsAre(FloatEq(1), FloatEq(1), FloatEq(0.75F / std::sqrt(0.625F))));
  // There is no layer after the last one.
  f = map.expect(view_of(1_layer, 2, {0.75F, 0.25F, 0.75F, 0.25F, 0.75F, 0.25F}));
  EXPECT_THAT(rows_of(f), ElementsAre(0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0));
  f = map.expect(view_of(2_layer, 2, {0, 1, 0, 1, 1, 0}));
  EXPECT_THAT(rows_of(f), Each(0.0F));
  EXPECT_EQ(map.store().size(), 5U);
  EXPECT_EQ(map.store().token(4), 9);
  EXPECT_THAT(stored(map, 4), ElementsAre(0.75F, 0.25F, 0.75F, 0.25F, 1, 0));
}

TEST(expert_map, a_token_is_expected_to_route_as_its_oldest_map) {
  auto map = expert_map::create(shape, {.depth = 1}).value();
  run(map, 0, {1, 0, 1, 0, 1, 0}, {7});
  run(map, 1, {0, 1, 1, 0, 1, 0}, {7});
  const ids tokens{7};
  const auto f = map.expect(opening(2, tokens));
  EXPECT_THAT(rows_of(f), ElementsAre(1, 0));
  EXPECT_THAT(confidence_of(f), ElementsAre(1));
}

TEST(expert_map, a_new_token_uses_the_nearest_embedding) {
  const floats table{1, 0, 0, 1, 0.6F, 0.8F, -1, 0};
  auto map =
      expert_map::create(shape, {.depth = 1, .embeddings = table, .embedding_width = 2}).value();
  run(map, 0, {1, 0, 1, 0, 1, 0}, {0});
  run(map, 1, {0, 1, 1, 0, 1, 0}, {1});
  const ids tokens{2, 3, 50};
  const auto f = map.expect(opening(2, tokens));
  EXPECT_THAT(rows_of(f), ElementsAre(0, 1, 0, 1, 0, 0));
  EXPECT_THAT(confidence_of(f), ElementsAre(FloatEq(0.8F), 0, 0));
}

TEST(expert_map, logits_are_probabilities_after_a_softmax) {
  auto one = expert_map::create(shape, {.depth = 1}).value();
  auto two = expert_map::create(shape, {.depth = 1}).value();
  support::random_source random(1);
  for (step_id step = 0; step < 5; ++step)
    for (const auto l : each<layer_id>(3)) {
      const floats logits{static_cast<float>(support::signed_uniform(random)), 0.25F};
      const auto first = std::exp(logits[0]) / (std::exp(logits[0]) + std::exp(logits[1]));
      auto by_logits = view_of(l, step, {});
      by_logits.logits = logits;
      const floats probabilities{first, 1 - first};
      const auto a = one.expect(by_logits);
      const auto b = two.expect(view_of(l, step, probabilities));
      ASSERT_THAT(rows_of(a), testing::Pointwise(testing::FloatNear(1e-6F), rows_of(b)));
      ASSERT_THAT(confidence_of(a),
                  testing::Pointwise(testing::FloatNear(1e-6F), confidence_of(b)));
    }
}

// Rows from routing alone: 3/4 and 1/4.
TEST(expert_map, rows_are_made_of_weights_on_request) {
  const geometry wide{.layers = 2, .experts = 4, .top_k = 2, .max_tokens_per_visit = 2};
  const std::vector<std::int32_t> first{2, 0, -1, 1};
  const std::vector<std::int32_t> second{3, 1, 0, 2};
  const floats weights{1.5F, 0.5F, 0.25F, 0.25F};
  const ids tokens{5, 6};
  const auto step = [&](expert_map& map, step_id at) {
    (void)map.expect(opening(at, tokens));
    for (const auto l : each<layer_id>(2))
      (void)map.expect(
          {.layer = l, .step = at, .experts = l == 0 ? first : second, .weights = weights});
  };
  auto by_weights = expert_map::create(wide, {.depth = 1, .source = map_source::weights}).value();
  step(by_weights, 0);
  EXPECT_THAT(stored(by_weights, 0), ElementsAre(0.25F, 0, 0.75F, 0, 0, 0.25F, 0, 0.75F));
  EXPECT_THAT(stored(by_weights, 1), ElementsAre(0, 1, 0, 0, 0.5F, 0, 0.5F, 0))
      << "an id that is none counts nothing";
  (void)by_weights.expect(opening(1, tokens));
  routing_view again{.layer = 0_layer, .step = 1, .experts = first, .weights = weights};
  const auto f = by_weights.expect(again);
  EXPECT_THAT(rows_of(f), ElementsAre(0, 0.25F, 0, 0.75F, 0.5F, 0, 0.5F, 0));
  EXPECT_THAT(confidence_of(f), Each(FloatEq(1.0F)));
  // No routed expert gives no map. Missing weights make the view invalid for it.
  const std::vector<std::int32_t> none{-1, -1, 7, -1};
  again.step = 2;
  again.experts = none;
  (void)by_weights.expect(again);
  again.layer = 1_layer;
  again.experts = second;
  (void)by_weights.expect(again);
  EXPECT_EQ(by_weights.store().size(), 2U);
  again.step = 3;
  again.layer = 0_layer;
  again.weights = {};
  EXPECT_EQ(by_weights.expect(again).depth, 0);
  EXPECT_FALSE(
      any_predictor::holding<expert_map>({.source = map_source::weights}).traits.needs_scores);
  EXPECT_TRUE(any_predictor::holding<expert_map>({}).traits.needs_scores);
}

TEST(expert_map, an_incomplete_step_stores_nothing) {
  auto map = expert_map::create(shape, {.depth = 1}).value();
  const floats row{1, 0};
  const auto go = [&](layer_id layer, step_id step) {
    return map.expect(view_of(layer, step, row));
  };
  go(0_layer, 0);
  go(1_layer, 0);
  go(0_layer, 1);  // another step
  go(1_layer, 1);
  EXPECT_THAT(confidence_of(go(2_layer, 0)), IsEmpty()) << "of a step that has ended";
  EXPECT_THAT(confidence_of(go(2_layer, 1)), IsEmpty()) << "which ends this one, too";
  EXPECT_EQ(map.store().size(), 0U);
  go(0_layer, 2);
  EXPECT_THAT(confidence_of(go(2_layer, 2)), IsEmpty()) << "layer 1 is missing";
  go(0_layer, 3);
  EXPECT_THAT(confidence_of(map.expect(view_of(1_layer, 3, {1, 0, 1, 0}))), IsEmpty())
      << "more tokens";
  go(2_layer, 3);
  EXPECT_EQ(map.store().size(), 0U);
  for (const auto l : each<layer_id>(3)) go(l, 4);
  EXPECT_EQ(map.store().size(), 1U);
}

TEST(expert_map, a_repeated_visit_counts_once) {
  auto once = expert_map::create(shape, {.depth = 2}).value();
  auto twice = expert_map::create(shape, {.depth = 2}).value();
  support::random_source random(4);
  for (step_id step = 0; step < 20; ++step) {
    const auto maps = support::repeating_maps(random, 2, 3, 2, 2, 0.5);
    const ids tokens{random.id_below(4), random.id_below(4)};
    const auto open = opening(step, tokens);
    const auto first = rows_of(once.expect(open));
    for (int n = 0; n < 2; ++n) ASSERT_EQ(rows_of(twice.expect(open)), first);
    for (std::size_t l = 0; l < 3; ++l) {
      const floats rows{maps[l * 2], maps[l * 2 + 1], maps[6 + l * 2], maps[6 + l * 2 + 1]};
      const auto view = view_of(static_cast<layer_id>(l), step, rows);
      const auto wanted = rows_of(once.expect(view));
      for (int n = 0; n < 3; ++n) ASSERT_EQ(rows_of(twice.expect(view)), wanted);
    }
    ASSERT_EQ(once.store().size(), 2 * (step + 1));
    ASSERT_EQ(twice.store().size(), once.store().size());
    for (std::size_t p = 2 * step; p < once.store().size(); ++p)
      ASSERT_EQ(stored(twice, p), stored(once, p));
  }
}

TEST(expert_map, a_token_with_a_wrong_row_is_neither_matched_nor_stored) {
  auto map = expert_map::create(shape, {.depth = 1}).value();
  run(map, 0, {1, 0, 1, 0, 1, 0}, {1});
  const auto confidence = run(map, 1,
                              {1, 0, 1, 0, 1, 0,        //
                               1, 0, 0.7F, 0.7F, 1, 0,  // layer 1 is no valid row
                               0, 1, 0, 1, 0, 1},
                              {2, 3, 4});
  EXPECT_THAT(confidence[1], ElementsAre(FloatEq(1), FloatEq(1), 0));
  EXPECT_THAT(confidence[2], ElementsAre(FloatEq(1), 0, 0));
  ASSERT_EQ(map.store().size(), 3U);
  EXPECT_EQ(map.store().token(1), 2);
  EXPECT_EQ(map.store().token(2), 4);
  EXPECT_THAT(stored(map, 2), ElementsAre(0, 1, 0, 1, 0, 1));
}

TEST(expert_map, prefill_is_stored_and_not_forecast) {
  auto map = expert_map::create(shape, {.depth = 1}).value();
  const floats maps{1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0.5F, 0.5F, 1, 0, 0, 1};
  for (const auto& of_layer : run(map, 0, maps, {5, 6, 7}, request_class::prefill))
    EXPECT_THAT(of_layer, IsEmpty());
  ASSERT_EQ(map.store().size(), 3U);
  for (std::size_t p = 0; p < 3; ++p)
    EXPECT_EQ(map.store().token(p), 5 + static_cast<std::int32_t>(p));
  EXPECT_THAT(stored(map, 1), ElementsAre(0, 1, 0, 1, 0, 1));
}

TEST(expert_map, views_without_required_inputs_end_the_step) {
  auto map = expert_map::create(shape, {.depth = 1}).value();
  const floats row{1, 0};
  const auto ends = [&](const routing_view& view) {
    static_cast<void>(map.expect(view_of(0_layer, 1, row)));
    const auto f = map.expect(view);
    EXPECT_THAT(rows_of(f), IsEmpty());
    EXPECT_THAT(rows_of(map.expect(view_of(1_layer, 1, row))), IsEmpty());
  };
  ends(view_of(1_layer, 1, {}));
  ends(view_of(1_layer, 1, {1, 0, 1}));
  ends(view_of(3_layer, 1, row));
  ends(view_of(layer_id{-2}, 1, row));
  ends(view_of(1_layer, 1, {1, 0, 1, 0, 1, 0, 1, 0}));
  ends(opening(2, {}));
  ends(opening(2, {1, 2, 3, 4}));
}

/// The next layers of the token with the nearest map, computed from scratch.
TEST(expert_map, agrees_with_the_rule_written_out) {
  const geometry model{.layers = 6, .experts = 9, .top_k = 2, .max_tokens_per_visit = 4};
  auto map = expert_map::create(model, {.capacity = 50, .depth = 2}).value();
  support::random_source random(12);
  std::vector<floats> kept;  // by place
  std::size_t next = 0;
  for (step_id step = 0; step < 60; ++step) {
    const auto count = 1 + random.below(4);
    const auto maps = support::repeating_maps(random, count, 6, 9, 4, 0.7);
    for (std::size_t l = 0; l < 6; ++l) {
      floats rows;
      for (std::size_t t = 0; t < count; ++t)
        rows.insert(rows.end(), maps.begin() + static_cast<std::ptrdiff_t>((t * 6 + l) * 9),
                    maps.begin() + static_cast<std::ptrdiff_t>((t * 6 + l) * 9 + 9));
      const auto f = map.expect(view_of(static_cast<layer_id>(l), step, rows));
      ASSERT_EQ(f.confidence.size(), count);
      for (std::size_t t = 0; t < count; ++t) {
        double most = 0;
        const floats* best = nullptr;
        for (const auto& old : kept) {
          const auto alike = support::cosine(std::span(maps).subspan(t * 54, (l + 1) * 9), old);
          if (alike > most + 1e-6) {
            most = alike;
            best = &old;
          }
        }
        ASSERT_NEAR(f.confidence[t], most, 1e-5);
        for (std::size_t d = 0; d < 2; ++d)
          for (std::size_t e = 0; e < 9; ++e)
            ASSERT_NEAR(f.probabilities[(t * 2 + d) * 9 + e],
                        best == nullptr || l + 1 + d >= 6 ? 0.0F : (*best)[(l + 1 + d) * 9 + e],
                        1e-5);
      }
    }
    for (std::size_t t = 0; t < count; ++t, next = (next + 1) % 50) {
      if (kept.size() < 50) kept.emplace_back();
      kept[next].assign(maps.begin() + static_cast<std::ptrdiff_t>(t * 54),
                        maps.begin() + static_cast<std::ptrdiff_t>(t * 54 + 54));
    }
  }
}

TEST(expert_map, nothing_allocates_while_it_is_used) {
  const geometry model{.layers = 4, .experts = 8, .top_k = 2, .max_tokens_per_visit = 3};
  support::random_source random(2);
  floats table(20 * 4);
  for (auto& x : table) x = static_cast<float>(support::signed_uniform(random));
  for (const auto storage : {map_storage::fp32, map_storage::fp16, map_storage::int8})
    for (const auto replace : {map_replacement::fifo, map_replacement::redundancy})
      for (const auto kind : {request_class::decode, request_class::prefill}) {
        auto map = expert_map::create(model, {.capacity = 20,
                                              .storage = storage,
                                              .replace = replace,
                                              .depth = 2,
                                              .embeddings = table,
                                              .embedding_width = 4})
                       .value();
        for (step_id step = 0; step < 30; ++step) {
          const auto maps = support::repeating_maps(random, 12, 1, 8, 12, 1.0);
          const ids tokens{random.id_below(25), random.id_below(25), random.id_below(25)};
          const auto allocations = support::allocations_of([&] {
            auto view = opening(step, tokens);
            view.kind = kind;
            static_cast<void>(map.expect(view));
            for (const auto l : each<layer_id>(4)) {
              view.layer = l;
              view.probabilities = std::span(maps).subspan(static_cast<std::size_t>(l) * 24, 24);
              static_cast<void>(map.expect(view));
            }
          });
          ASSERT_EQ(allocations, 0U);
        }
        EXPECT_EQ(map.store().size(), 20U);
      }
}

TEST(expert_map, is_a_predictor_by_name) {
  const auto options = support::config_of<expert_map>(
      "expert-map:capacity=40:storage=int8:replace=redundancy:source=weights");
  EXPECT_EQ(options.capacity, 40U);
  EXPECT_EQ(options.storage, map_storage::int8);
  EXPECT_EQ(options.replace, map_replacement::redundancy);
  EXPECT_EQ(options.source, map_source::weights);
  auto any = any_predictor::create(shape, with_depth(any_predictor::holding<expert_map>(), 2));
  ASSERT_TRUE(any);
  EXPECT_TRUE(any->facts().opens_steps);
  EXPECT_TRUE(any->facts().needs_scores);
  EXPECT_EQ(any->expect(view_of(0_layer, 0, {1, 0})).depth, 2);
}

TEST(expert_map, a_wrong_configuration_is_refused) {
  const auto why = [](const geometry& model, const expert_map::config& options) {
    return support::why(expert_map::create(model, options));
  };
  EXPECT_EQ(why(shape, {.capacity = 0}), "expert_map capacity = 0, accepted: 1..16777216");
  EXPECT_EQ(why(shape, {.depth = 0}), "expert_map depth = 0, accepted: 1 or more");
  EXPECT_EQ(why(shape, {.depth = 4}), "expert_map depth = 4, accepted: 1..3 (layers)");
  EXPECT_EQ(why(shape, {.source = static_cast<map_source>(2)}),
            "expert_map source = 2, accepted: 0 (scores), 1 (weights)");
  EXPECT_THAT(why({.layers = 0, .experts = 1, .top_k = 1}, {}), HasSubstr("layers = 0"));
  EXPECT_THAT(why({.layers = 64, .experts = 512, .top_k = 1, .max_tokens_per_visit = 1 << 20}, {}),
              HasSubstr("for visits of 1048576 tokens, accepted: at most 17179869184"));
  EXPECT_THAT(why({.layers = 64, .experts = 512, .top_k = 1}, {.capacity = 1U << 20U}),
              HasSubstr("expert maps of 64 layers x 512 experts need"));
  EXPECT_THAT(why({.layers = 4, .experts = 4, .top_k = 1, .max_tokens_per_visit = 1 << 20},
                  {.capacity = 1U << 16U}),
              HasSubstr("expert map matcher of 1048576 tokens"));
}

}  // namespace
}  // namespace hotset::expert_map_test
