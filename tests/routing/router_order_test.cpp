// SPDX-License-Identifier: Apache-2.0
#include "hotset/routing/router_order.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "written_ids.hpp"

namespace hotset::router_order_test {
namespace {

static_assert(router_order::traits.is_exact && !router_order::traits.needs_logits);

const geometry shape{.layers = 1, .experts = 8, .top_k = 2};
const std::vector<expert_id> experts = support::expert_ids({3, 1, 7, -1});
const std::vector<float> gates{0.7F, 0.3F, 1.0F, 0.0F};

routing_view both() {
  routing_view view;
  view.experts = experts;
  view.weights = gates;
  return view;
}

TEST(router_order, copies_the_selection_and_its_weights) {
  router_order policy(shape);
  std::vector<expert_id> selected(4, 9_expert);
  std::vector<float> weights(4, 9.0F);
  EXPECT_EQ(policy.route(both(), {}, selected, weights), status::ok);
  EXPECT_EQ(selected, experts);
  EXPECT_EQ(weights, gates);
  std::fill(selected.begin(), selected.end(), 9_expert);
  EXPECT_EQ(policy.route(both(), {}, selected, {}), status::ok);  // no weights requested
  EXPECT_EQ(selected, experts);
}

TEST(router_order, works_in_place) {
  auto selected = experts;
  auto weights = gates;
  routing_view view;
  view.experts = selected;
  view.weights = weights;
  EXPECT_EQ(router_order(shape).route(view, {}, selected, weights), status::ok);
  EXPECT_EQ(selected, experts);
  EXPECT_EQ(weights, gates);
}

TEST(router_order, refuses_arrays_of_another_length_and_writes_nothing) {
  router_order policy(shape);
  std::vector<expert_id> selected(3, 9_expert);
  std::vector<float> weights(4, 9.0F);
  EXPECT_EQ(policy.route(both(), {}, selected, weights), status::invalid_visit);
  selected.resize(4, 9_expert);
  weights.resize(3);
  EXPECT_EQ(policy.route(both(), {}, selected, weights), status::invalid_visit);
  weights.resize(4, 9.0F);
  auto unweighed = both();
  unweighed.weights = {};
  EXPECT_EQ(policy.route(unweighed, {}, selected, weights), status::invalid_visit);
  EXPECT_EQ(selected, std::vector<expert_id>(4, 9_expert));
  EXPECT_EQ(weights, std::vector<float>(4, 9.0F));
}

}  // namespace
}  // namespace hotset::router_order_test
