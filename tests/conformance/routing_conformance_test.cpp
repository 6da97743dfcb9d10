// SPDX-License-Identifier: Apache-2.0
// Every routing policy joins the suite here with its type and options. All route random visits; the result must meet
// the engine's requirements.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/policy/routing_policy.hpp"
#include "hotset/routing/budget_top_k.hpp"
#include "hotset/routing/cache_aware.hpp"
#include "hotset/routing/router_order.hpp"
#include "random_source.hpp"

namespace hotset::routing_conformance_test {
namespace {

using support::random_source;

template <class R>
struct plain {
  using policy = R;
  static typename R::config options() { return {}; }
  static constexpr bool exact = R::traits.is_exact;
  static constexpr bool wants_logits = R::traits.needs_logits;
};
struct router_order_entry : plain<router_order> {};
struct cache_aware_entry : plain<cache_aware> {};
struct cache_aware_value_entry : plain<cache_aware> {
  static cache_aware::config options() { return {.lambda = 2.0, .average = logit_average::value}; }
};
/// Zero lifts no expert: the router's selection must result.
struct cache_aware_zero_entry : plain<cache_aware> {
  static cache_aware::config options() { return {.lambda = 0.0}; }
  static constexpr bool exact = true;
};
/// The suite's visits have no freed slots.
struct budget_top_k_entry : plain<budget_top_k> {
  static constexpr bool exact = true;
};
// A type-erased holder of each policy.
template <class Inner>
struct any_entry : Inner {
  using policy = any_routing_policy;
  static any_routing_policy::config options() {
    return any_routing_policy::holding<typename Inner::policy>(Inner::options());
  }
};

template <class Entry>
class routing_conformance : public testing::Test {};
using entries = testing::Types<router_order_entry, cache_aware_entry, cache_aware_value_entry,
                               cache_aware_zero_entry, budget_top_k_entry,
                               any_entry<budget_top_k_entry>, any_entry<router_order_entry>,
                               any_entry<cache_aware_entry>, any_entry<cache_aware_zero_entry>>;
TYPED_TEST_SUITE(routing_conformance, entries);

const geometry shape{.layers = 2, .experts = 10, .top_k = 3, .max_tokens_per_visit = 4};

struct visit {
  std::vector<expert_id> experts;
  std::vector<float> weights;
  std::vector<float> logits;
  std::vector<slot_id> row;
  layer_id layer{};
  [[nodiscard]] routing_view view() const {
    return {.layer = layer, .experts = experts, .weights = weights, .logits = logits};
  }
};
/// The router chooses by logit (some are masked) and weights by softmax.
visit draw(random_source& random) {
  visit v;
  v.layer = layer_id{random.id_below(2)};
  const auto tokens = 1 + random.below(4);
  for (std::uint64_t t = 0; t < tokens; ++t) {
    std::vector<float> z(10);
    for (auto& one : z)
      one = random.one_in(12) ? -std::numeric_limits<float>::infinity()
                              : static_cast<float>(random.below(40)) / 8.0F;
    z[random.below(10)] = 1.0F;
    std::vector<expert_id> order;
    for (const auto e : each<expert_id>(10))
      if (std::isfinite(z[static_cast<std::size_t>(e)])) order.push_back(e);
    std::stable_sort(order.begin(), order.end(), [&](expert_id a, expert_id b) {
      return z[static_cast<std::size_t>(a)] > z[static_cast<std::size_t>(b)];
    });
    order.resize(3, no_expert);
    float sum = 0;
    for (const auto e : order)
      if (e >= 0) sum += std::exp(z[static_cast<std::size_t>(e)]);
    for (const auto e : order) {
      v.experts.push_back(e);
      v.weights.push_back(e < 0 ? 0.0F : std::exp(z[static_cast<std::size_t>(e)]) / sum);
    }
    v.logits.insert(v.logits.end(), z.begin(), z.end());
  }
  for (const auto e : each<slot_id>(10)) v.row.push_back(random.one_in(2) ? e : no_slot);
  return v;
}

struct answer {
  status code = status::ok;
  std::vector<expert_id> ids;
  std::vector<float> weights;
  friend bool operator==(const answer&, const answer&) = default;
};
template <class R>
answer route(R& policy, const visit& v) {
  answer a{status::ok, std::vector<expert_id>(v.experts.size() + 1, 77_expert),
           std::vector<float>(v.experts.size() + 1, 77.0F)};
  a.code = policy.route(v.view(), {v.row}, std::span(a.ids).first(v.experts.size()),
                        std::span(a.weights).first(v.experts.size()));
  EXPECT_EQ(a.ids.back(), 77) << "wrote past";
  EXPECT_EQ(a.weights.back(), 77.0F) << "wrote past";
  a.ids.pop_back();
  a.weights.pop_back();
  return a;
}

TYPED_TEST(routing_conformance, selections_are_legal_and_twins_agree) {
  using R = typename TypeParam::policy;
  ASSERT_FALSE(TypeParam::options().validate());
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_source random(seed);
    R policy(shape, TypeParam::options());
    R twin(shape, TypeParam::options());
    R in_place(shape, TypeParam::options());
    for (int n = 0; n < 60; ++n) {
      const auto v = draw(random);
      const auto a = route(policy, v);
      ASSERT_EQ(a.code, status::ok);
      EXPECT_EQ(a, route(twin, v));
      auto own = v;
      ASSERT_EQ(in_place.route(own.view(), {v.row}, own.experts, own.weights), status::ok);
      EXPECT_EQ(own.experts, a.ids);
      EXPECT_EQ(own.weights, a.weights);
      if (TypeParam::exact) {
        EXPECT_EQ(a.ids, v.experts);
        EXPECT_EQ(a.weights, v.weights);
      }
      for (std::size_t place = 0; place < a.ids.size(); ++place) {
        const auto e = a.ids[place];
        ASSERT_TRUE(e >= no_expert && e < shape.experts);
        EXPECT_TRUE(a.weights[place] >= 0.0F && a.weights[place] <= 1.0F + 1e-6F);
        const auto rank = place % 3;
        if (e == no_expert) {
          EXPECT_EQ(a.weights[place], 0.0F);
          if (rank < 2) {
            EXPECT_EQ(a.ids[place + 1], no_expert);
          }
          continue;
        }
        EXPECT_TRUE(std::isfinite(v.logits[place / 3 * 10 + static_cast<std::size_t>(e)]));
        for (std::size_t r = 0; r < rank; ++r) EXPECT_NE(a.ids[place - rank + r], e);
      }
    }
  }
}

TYPED_TEST(routing_conformance, a_view_without_required_inputs_changes_nothing) {
  using R = typename TypeParam::policy;
  random_source random(3);
  R policy(shape, TypeParam::options());
  R twin(shape, TypeParam::options());
  for (int n = 0; n < 30; ++n) {
    const auto v = draw(random);
    if (TypeParam::wants_logits) {
      auto blind = v;
      blind.logits.clear();
      const auto refused = route(policy, blind);
      EXPECT_EQ(refused.code, status::invalid_visit);
      EXPECT_EQ(refused.ids, std::vector<expert_id>(v.experts.size(), 77_expert));
      EXPECT_EQ(refused.weights, std::vector<float>(v.experts.size(), 77.0F));
    }
    std::vector<expert_id> few(v.experts.size() - 1, 77_expert);
    EXPECT_EQ(policy.route(v.view(), {v.row}, few, {}), status::invalid_visit);
    EXPECT_EQ(few, std::vector<expert_id>(v.experts.size() - 1, 77_expert));
    EXPECT_EQ(route(policy, v), route(twin, v));
  }
}

TYPED_TEST(routing_conformance, a_visit_of_no_tokens_is_routed) {
  typename TypeParam::policy policy(shape, TypeParam::options());
  visit v;
  v.row.assign(10, no_slot);
  EXPECT_EQ(route(policy, v).code, status::ok);
}

}  // namespace
}  // namespace hotset::routing_conformance_test
