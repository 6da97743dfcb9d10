// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/importance.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "single_uses.hpp"

namespace hotset::importance_test {
namespace {

using testing::ElementsAre;

const geometry shape{.layers = 2, .experts = 6, .top_k = 2, .max_tokens_per_visit = 2};

/// Layer 1 holds experts 0, 1 and 2 in slots 3, 4 and 5.
class importance_of_a_layer : public testing::Test {
 protected:
  explicit importance_of_a_layer(const importance::config& options = {.alpha = 0.5, .gamma = 0.5})
      : policy(layout, options) {
    for (auto s = 3_slot; s < 6; ++s) {
      expert_use a;
      a.key = {1_layer, expert_id{number(s) - 3}};
      a.slot = s;
      a.pool = 1_pool;
      support::bring(policy, a);
      eligible.set(s);
    }
  }
  const pool_layout layout = pool_layout::per_layer(shape, 3).value();
  importance policy;
  slot_mask eligible{layout.slots()};

  void route(step_id step, const std::vector<std::int32_t>& ids,
             const std::vector<std::int32_t>& choice = {}) {
    routing_view view;
    view.layer = 1_layer;
    view.step = step;
    view.experts = ids;
    view.router_choice = choice;
    policy.on_routed(view);
  }
  void expect(step_id step, layer_id after, const std::vector<float>& rows, std::int32_t depth) {
    forecast expected;
    expected.probabilities = rows;
    expected.depth = depth;
    policy.on_forecast({.layer = after, .step = step}, expected);
  }
  std::vector<slot_id> order(step_id step) {
    std::vector<slot_id> out(3);
    out.resize(
        policy.select_victims({.layer = 0_layer, .pool = 1_pool, .step = step}, eligible, out));
    return out;
  }
};

TEST_F(importance_of_a_layer, without_a_forecast_the_past_decides) {
  EXPECT_THAT(order(0), ElementsAre(3, 4, 5)) << "nothing was used: recency";
  route(0, {0, 1});
  support::begin_visit(policy, 0, 1_layer);
  route(1, {0, 5});
  support::begin_visit(policy, 1, 1_layer);
  // u: 1.5, 0.5, 0.
  EXPECT_THAT(order(2), ElementsAre(5, 4, 3));
}

TEST_F(importance_of_a_layer, a_forecast_is_the_mean_of_its_tokens_and_of_its_layer) {
  // Before the first layer, two layers ahead, two tokens: the second rows are layer 1's.
  expect(1, before_layers,
         {9, 9, 9, 9, 9, 9, 0.6F, 0.0F, 0.2F, 0, 0, 0, 9, 9, 9, 9, 9, 9, 0.0F, 0.5F, 0.3F, 0, 0, 0},
         2);
  EXPECT_THAT(order(1), ElementsAre(4, 5, 3));  // .25, .25 and less recent, .3
}

TEST_F(importance_of_a_layer, an_aborted_visit_has_no_effect) {
  route(0, {2, 3});
  route(0, {0, 1});  // planned again
  EXPECT_THAT(order(0), ElementsAre(3, 4, 5)) << "victims are chosen by what was before";
  support::begin_visit(policy, 0, 1_layer);
  support::begin_visit(policy, 0, 1_layer);  // a later group
  EXPECT_THAT(order(1), ElementsAre(5, 3, 4));
}

TEST_F(importance_of_a_layer, the_routers_choice_counts_if_a_policy_shortened_it) {
  route(0, {0, -1}, {0, 2});
  support::begin_visit(policy, 0, 1_layer);
  EXPECT_THAT(order(1), ElementsAre(4, 3, 5));
}

}  // namespace
}  // namespace hotset::importance_test
