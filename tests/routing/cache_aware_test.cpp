// SPDX-License-Identifier: Apache-2.0
#include "hotset/routing/cache_aware.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::cache_aware_test {
namespace {

static_assert(!cache_aware::traits.is_exact && cache_aware::traits.needs_logits);

using ids_t = std::vector<expert_id>;
using support::expert_ids;
using floats = std::vector<float>;
constexpr float masked = -std::numeric_limits<float>::infinity();

/// Two layers of 4 experts, top-2.
const geometry shape{.layers = 2, .experts = 4, .top_k = 2, .max_tokens_per_visit = 4};

struct answer {
  status code = status::ok;
  ids_t ids{};
  floats weights{};
};
/// The router selects 0, 1 for every token.
answer ask(cache_aware& policy, const floats& logits, const std::vector<std::int32_t>& resident,
           layer_id layer = 0_layer) {
  std::vector<slot_id> row(4, no_slot);
  for (const auto e : resident) row[static_cast<std::size_t>(e)] = slot_id{e};
  ids_t experts;
  for (std::size_t t = 0; t < logits.size() / 4; ++t)
    experts.insert(experts.end(), {0_expert, 1_expert});
  routing_view view;
  view.layer = layer;
  view.experts = experts;
  view.logits = logits;
  answer a{status::ok, ids_t(experts.size(), 9_expert), floats(experts.size(), 9.0F)};
  a.code = policy.route(view, {row}, a.ids, a.weights);
  return a;
}

TEST(cache_aware, ties_go_to_the_lower_id) {
  cache_aware policy(shape, {.lambda = 0.5});
  EXPECT_EQ(ask(policy, {0, 2, 2, 2}, {}).ids, expert_ids({1, 2}));
  EXPECT_EQ(ask(policy, {2, 0, 1, 1}, {2}).ids, expert_ids({0, 2}));  // 1 + 0.5 * 2 meets 2
}

TEST(cache_aware, weights_use_the_unchanged_logits) {
  cache_aware policy(shape, {.lambda = 0.75});
  const auto a = ask(policy, {3, 2, 1, 0}, {2});  // 2, then 0
  EXPECT_FLOAT_EQ(a.weights[0], static_cast<float>(1.0 / (1.0 + std::exp(2.0))));
  EXPECT_FLOAT_EQ(a.weights[1], static_cast<float>(1.0 / (1.0 + std::exp(-2.0))));
}

TEST(cache_aware, weights_do_not_overflow) {
  cache_aware policy(shape, {.lambda = 4.0});
  const auto a = ask(policy, {3000, 2000, 1000, -3000}, {2, 3});
  EXPECT_EQ(a.ids, expert_ids({2, 3}));
  EXPECT_EQ(a.weights, (floats{1, 0}));
}

TEST(cache_aware, never_selects_a_logit_that_is_not_finite) {
  cache_aware policy(shape, {.lambda = 1.0});
  const auto a = ask(policy, {masked, 2, masked, 0}, {0, 2});
  EXPECT_EQ(a.ids, expert_ids({1, 3}));
  EXPECT_FLOAT_EQ(a.weights[0] + a.weights[1], 1.0F);
  const auto one = ask(policy, {masked, masked, 5, std::numeric_limits<float>::quiet_NaN()}, {0});
  EXPECT_EQ(one.ids, expert_ids({2, -1}));
  EXPECT_EQ(one.weights, (floats{1, 0}));
  const auto none = ask(policy, {masked, masked, masked, -masked}, {0});
  EXPECT_EQ(none.ids, expert_ids({-1, -1}));
  EXPECT_EQ(none.weights, (floats{0, 0}));
}

TEST(cache_aware, masked_experts_are_in_no_average) {
  // The finite logits span 1: 0 + 1 does not reach 1.5.
  cache_aware policy(shape, {.lambda = 1.0});
  EXPECT_EQ(ask(policy, {1.5, 1.5, masked, 0.5}, {3}).ids, expert_ids({0, 1}));
  // A token without finite logits has no part in the average; neither has a visit of such tokens.
  cache_aware other(shape, {.lambda = 0.5});
  ask(other, {masked, masked, masked, masked}, {});
  EXPECT_EQ(ask(other, {3, 2, 1, 0, masked, masked, masked, masked}, {2}).ids,
            expert_ids({0, 2, -1, -1}));
}

/// A router that does not choose by the logits.
TEST(cache_aware, lambda_0_keeps_the_routers_selection) {
  cache_aware policy(shape, {.lambda = 0.0});
  const auto experts = expert_ids({3, 1, 2, 2});
  const floats gates{0.8F, 0.1F, 0.25F, 0.25F};
  const floats logits{3, 2, 1, 0, 0, 1, 2, 3};
  const std::vector<slot_id> row{0_slot, no_slot, no_slot, no_slot};
  routing_view view;
  view.experts = experts;
  view.logits = logits;
  ids_t ids(4, 9_expert);
  floats weights(4, 9.0F);
  EXPECT_EQ(policy.route(view, {row}, ids, weights), status::ok);
  EXPECT_EQ(ids, experts);
  EXPECT_FLOAT_EQ(weights[0], static_cast<float>(1.0 / (1.0 + std::exp(2.0))));
  EXPECT_FLOAT_EQ(weights[2], 0.5F);
  view.weights = gates;
  EXPECT_EQ(policy.route(view, {row}, ids, weights), status::ok);
  EXPECT_EQ(ids, experts);
  EXPECT_EQ(weights, gates);
}

TEST(cache_aware, weighs_no_place_that_the_router_left_empty) {
  cache_aware policy(shape, {.lambda = 0.0});
  const auto experts = expert_ids({3, -1});
  const floats logits{3, 2, 1, 0};
  const std::vector<slot_id> row(4, no_slot);
  routing_view view;
  view.experts = experts;
  view.logits = logits;
  ids_t ids(2, 9_expert);
  floats weights(2, 9.0F);
  EXPECT_EQ(policy.route(view, {row}, ids, weights), status::ok);
  EXPECT_EQ(ids, experts);
  EXPECT_EQ(weights, (floats{1, 0}));
}

TEST(cache_aware, weighs_no_logit_that_is_not_finite) {
  for (const float broken : {masked, -masked, std::numeric_limits<float>::quiet_NaN()}) {
    cache_aware policy(shape, {.lambda = 0.0});
    EXPECT_EQ(ask(policy, {3, broken, masked, masked}, {}).weights, (floats{1, 0}));
  }
}

TEST(cache_aware, refuses_a_visit_without_its_arrays_and_learns_nothing_from_it) {
  cache_aware policy(shape, {.lambda = 0.5});
  const auto experts = expert_ids({0, 1});
  const floats logits{30, 20, 10, 0};
  const std::vector<slot_id> row{no_slot, no_slot, 0_slot, no_slot};
  ids_t ids(2, 9_expert);
  floats weights(2, 9.0F);
  routing_view good;
  good.experts = experts;
  good.logits = logits;
  const auto refused = [&](const routing_view& view, std::span<const slot_id> residents,
                           std::span<expert_id> selected, std::span<float> w) {
    EXPECT_EQ(policy.route(view, {residents}, selected, w), status::invalid_visit);
    EXPECT_EQ(ids, ids_t(2, 9_expert));
    EXPECT_EQ(weights, floats(2, 9.0F));
  };
  auto bad = good;
  bad.logits = {};
  refused(bad, row, ids, weights);
  bad.logits = std::span(logits).first(3);
  refused(bad, row, ids, weights);
  for (const layer_id layer : {before_layers, 2_layer}) {
    bad = good;
    bad.layer = layer;
    refused(bad, row, ids, weights);
  }
  bad = good;
  bad.experts = std::span(experts).first(1);
  refused(bad, row, ids, weights);
  const auto odd = expert_ids({0, 1, 2});  // a token and a half
  bad.experts = odd;
  ids.push_back(9_expert);
  weights.push_back(9.0F);
  EXPECT_EQ(policy.route(bad, {row}, ids, weights), status::invalid_visit);
  EXPECT_EQ(ids, ids_t(3, 9_expert));
  ids.pop_back();
  weights.pop_back();
  refused(good, std::span(row).first(3), ids, weights);
  refused(good, row, std::span(ids).first(1), weights);
  refused(good, row, ids, std::span(weights).first(1));
  // The range is 1, as if there were no earlier visit: 0 + 0.5 does not reach 0.75.
  EXPECT_EQ(ask(policy, {1, 0.75, 0, 0}, {2}).ids, expert_ids({0, 1}));
}

TEST(cache_aware, works_in_place_and_without_weights) {
  for (const double lambda : {0.0, 0.75}) {
    cache_aware policy(shape, {.lambda = lambda});
    auto ids = expert_ids({0, 1});
    floats weights{0.5F, 0.25F};
    const floats logits{3, 2, 1, 0};
    const std::vector<slot_id> row{no_slot, no_slot, 0_slot, no_slot};
    routing_view view;
    view.experts = ids;
    view.weights = weights;
    view.logits = logits;
    EXPECT_EQ(policy.route(view, {row}, ids, {}), status::ok);
    EXPECT_EQ(ids, lambda > 0 ? expert_ids({2, 0}) : expert_ids({0, 1}));
    EXPECT_EQ(weights, (floats{0.5F, 0.25F}));
    EXPECT_EQ(policy.route(view, {row}, ids, weights), status::ok);
    EXPECT_EQ(ids, lambda > 0 ? expert_ids({2, 0}) : expert_ids({0, 1}));
    EXPECT_EQ(weights[0]<weights[1], lambda> 0);
  }
}

// The rule with all visits of a layer and full sorting.
TEST(cache_aware, agrees_with_its_naive_form) {
  int bent = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    const auto experts = 2 + random.id_below(9);
    const auto k = 1 + random.id_below(std::min(experts, 4));
    const geometry model{.layers = 2, .experts = experts, .top_k = k, .max_tokens_per_visit = 3};
    const auto wide = static_cast<std::size_t>(experts);
    const auto top = static_cast<std::size_t>(k);
    const auto average = random.one_in(2) ? logit_average::range : logit_average::value;
    const double lambda = 0.1 * static_cast<double>(1 + random.below(12));
    cache_aware policy(model, {lambda, average});
    std::map<layer_id, std::vector<double>> history;
    for (int n = 0; n < 40; ++n) {
      const layer_id layer{random.id_below(2)};
      const auto tokens = 1 + random.below(3);
      floats logits(tokens * wide);
      for (auto& z : logits) z = static_cast<float>(random.below(1U << 20U)) / (1U << 17U) - 2;
      std::vector<slot_id> row(wide, no_slot);
      for (auto& slot : row) slot = random.one_in(2) ? 1_slot : no_slot;
      const ids_t routed(tokens * top, 0_expert);
      routing_view view;
      view.layer = layer;
      view.experts = routed;
      view.logits = logits;
      ids_t ids(routed.size(), 9_expert);
      floats weights(routed.size(), 9.0F);
      ASSERT_EQ(policy.route(view, {row}, ids, weights), status::ok);

      double visit = 0;
      for (std::size_t t = 0; t < tokens; ++t) {
        const auto first = logits.begin() + static_cast<std::ptrdiff_t>(t * wide);
        std::multiset<double> z(first, first + experts);
        double sum = 0;
        for (const auto one : z) sum += one;
        visit += average == logit_average::range ? *z.rbegin() - *z.begin() : sum / experts;
      }
      history[layer].push_back(visit / static_cast<double>(tokens));
      double delta = 0;
      for (const auto one : history[layer]) delta += one;
      delta /= static_cast<double>(history[layer].size());
      for (std::size_t t = 0; t < tokens; ++t) {
        std::vector<std::pair<double, expert_id>> order;
        std::vector<std::pair<double, expert_id>> plain;
        for (std::size_t e = 0; e < wide; ++e) {
          const double z = logits[t * wide + e];
          order.emplace_back(-(z + (row[e] >= 0 ? lambda * delta : 0.0)),
                             static_cast<expert_id>(e));
          plain.emplace_back(-z, static_cast<expert_id>(e));
        }
        std::sort(order.begin(), order.end());
        std::sort(plain.begin(), plain.end());
        double kept = 0;
        for (std::size_t r = 0; r < top; ++r)
          kept += std::exp(logits[t * wide + index_of(order[r].second)]);
        for (std::size_t r = 0; r < top; ++r) {
          ASSERT_EQ(ids[t * top + r], order[r].second);
          const double z = logits[t * wide + index_of(order[r].second)];
          ASSERT_NEAR(weights[t * top + r], std::exp(z) / kept, 1e-6);
          bent += order[r].second != plain[r].second ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(bent, 500);
}

}  // namespace
}  // namespace hotset::cache_aware_test
