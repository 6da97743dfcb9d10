// SPDX-License-Identifier: Apache-2.0
#include "hotset/prefetch/previous_step.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::previous_step_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using ids = std::vector<std::int32_t>;

const geometry shape{.layers = 3, .experts = 8, .top_k = 2, .max_tokens_per_visit = 2};

/// Visits in order; returns the requests as "layer, step: experts".
struct walk {
  explicit walk(const geometry& g = shape) : policy(g) {}
  ids visit(layer_id layer, step_id step, const ids& experts, std::size_t room = 20) {
    routing_view view;
    view.layer = layer;
    view.step = step;
    view.experts = experts;
    policy.observe(view);
    std::vector<prefetch_request> out(room);
    out.resize(policy.propose(view, {}, out));
    ids got;
    for (const auto& r : out) {
      asked_layer = r.key.layer;
      asked_step = r.for_step;
      EXPECT_EQ(r.probability, 1.0F);
      got.push_back(number(r.key.expert));
    }
    return got;
  }
  previous_step policy;
  layer_id asked_layer{-1};
  step_id asked_step = 0;
};

TEST(previous_step, declares_its_inputs) {
  EXPECT_EQ(previous_step(shape).depth(), 1);
  EXPECT_EQ(previous_step(shape).most_requests(), 4U);
  EXPECT_EQ(previous_step({.layers = 1, .experts = 3, .top_k = 2, .max_tokens_per_visit = 2}, {})
                .most_requests(),
            3U);
}

TEST(previous_step, requests_the_next_layers_last_experts_in_routed_order) {
  walk w;
  EXPECT_THAT(w.visit(0_layer, 4, {5, 1}), IsEmpty());
  EXPECT_THAT(w.visit(1_layer, 4, {7, 2}), IsEmpty());
  EXPECT_THAT(w.visit(2_layer, 4, {3, 0}), ElementsAre(5, 1));
  EXPECT_EQ(w.asked_layer, 0);
  EXPECT_EQ(w.asked_step, 5U);
  EXPECT_THAT(w.visit(0_layer, 5, {6, 4}), ElementsAre(7, 2));
  EXPECT_EQ(w.asked_layer, 1);
  EXPECT_EQ(w.asked_step, 5U);
  EXPECT_THAT(w.visit(1_layer, 5, {2, 0}), ElementsAre(3, 0));
  EXPECT_THAT(w.visit(2_layer, 5, {1, 2}), ElementsAre(6, 4));
  EXPECT_THAT(w.visit(0_layer, 6, {6, 4}), ElementsAre(2, 0));
}

TEST(previous_step, names_every_expert_once) {
  walk w;
  w.visit(1_layer, 4, {7, -1, 2, 7});
  EXPECT_THAT(w.visit(0_layer, 5, {1, 8}), ElementsAre(7, 2));
}

TEST(previous_step, a_visit_without_experts_gives_no_requests) {
  walk w;
  w.visit(1_layer, 4, {7, 2});
  w.visit(1_layer, 5, {-1, -1});
  EXPECT_THAT(w.visit(0_layer, 6, {1, 2}), IsEmpty());
}

TEST(previous_step, a_layer_that_was_left_out_keeps_its_last_visit) {
  walk w;
  w.visit(1_layer, 4, {7, 2});
  EXPECT_THAT(w.visit(0_layer, 9, {1, 2}), ElementsAre(7, 2));
}

TEST(previous_step, the_only_layer_follows_itself) {
  walk w(geometry{.layers = 1, .experts = 4, .top_k = 2});
  EXPECT_THAT(w.visit(0_layer, 4, {3, 1}), ElementsAre(3, 1));
  EXPECT_EQ(w.asked_layer, 0);
  EXPECT_EQ(w.asked_step, 5U);
}

TEST(previous_step, writes_no_more_than_there_is_room_for) {
  walk w;
  w.visit(1_layer, 4, {7, 2, 5});
  EXPECT_THAT(w.visit(0_layer, 5, {1, 2}, 2), ElementsAre(7, 2));
  EXPECT_THAT(w.visit(0_layer, 5, {1, 2}, 0), IsEmpty());
}

TEST(previous_step, a_visit_larger_than_announced_is_cut_short) {
  walk w;
  w.visit(2_layer, 4, {5, 6});
  // Layer 2's own requests are complete.
  EXPECT_THAT(w.visit(1_layer, 5, {0, 1, 2, 3, 4, 7, 6, 5}), ElementsAre(5, 6));
  EXPECT_THAT(w.visit(0_layer, 6, {1, 2}), ElementsAre(0, 1, 2, 3));
}

}  // namespace
}  // namespace hotset::previous_step_test
