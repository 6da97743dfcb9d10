// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/next_visit_oracle.hpp"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "reference_policies.hpp"

namespace hotset::next_visit_oracle_test {
namespace {

using reference::hand_walk;
using support::slot_ids;
using events = std::vector<future_uses::event>;

std::shared_ptr<const future_uses> future(std::int32_t layers, const events& known) {
  return std::make_shared<const future_uses>(
      future_uses::create({.layers = layers, .experts = 8, .top_k = 2}, known).value());
}

/// One pool whose policy knows these events.
class walk : public hand_walk<next_visit_oracle> {
 public:
  walk(std::int32_t layers, std::int64_t size, const events& known)
      : hand_walk(reference::shared(layers, size), {.future = future(layers, known)}) {}
  void route(step_id step, layer_id layer, const std::vector<std::int32_t>& ids) {
    routing_view view;
    view.layer = layer;
    view.step = step;
    view.experts = ids;
    policy.on_routed(view);
  }
  /// Runs a visit without its uses.
  void visit(step_id step, layer_id layer, const std::vector<std::int32_t>& ids) {
    route(step, layer, ids);
    begin(step, layer);
  }
};

// Visits: L0 0 1, L1 0 1, L0 5, L1 1 3, L0 1. No rates: nothing was routed.
TEST(next_visit_oracle, first_evicts_keys_that_the_next_visit_does_not_use) {
  walk w(2, 4,
         {{0, {0_layer, 0_expert}},
          {0, {0_layer, 1_expert}},
          {1, {1_layer, 0_expert}},
          {1, {1_layer, 1_expert}},
          {2, {0_layer, 5_expert}},
          {3, {1_layer, 1_expert}},
          {3, {1_layer, 3_expert}},
          {4, {0_layer, 1_expert}}});
  w.begin(0, 0);
  w.fill(0, {0_layer, 0_expert});
  w.fill(1, {0_layer, 1_expert});
  w.begin(0, 1);
  w.fill(2, {1_layer, 0_expert});
  w.fill(3, {1_layer, 1_expert});
  EXPECT_EQ(w.order(1, 0), slot_ids({0, 2, 1, 3}))
      << "of what is used, the furthest layer goes first";
  w.begin(1, 0);
  EXPECT_EQ(w.order(1, 1), slot_ids({0, 2, 3, 1}))
      << "of layer 1, there is no visit after this one";
}

// Rates of 5 and 6 after 5, 6, 6: 0.244 and 0.511; after another 5: 0.424 and 0.390.
TEST(next_visit_oracle, the_running_visit_counts_before_its_victims_are_chosen) {
  walk w(1, 4, {});
  w.visit(0, 0_layer, {5});
  w.fill(0, {0_layer, 5_expert});
  w.visit(1, 0_layer, {6});
  w.fill(1, {0_layer, 6_expert});
  w.visit(2, 0_layer, {6});
  w.hit(1);
  EXPECT_EQ(w.order(3, 0), slot_ids({0, 1}));
  w.route(3, 0_layer, {5});
  EXPECT_EQ(w.order(3, 0), slot_ids({1, 0}));
  EXPECT_EQ(w.order(4, 0), slot_ids({0, 1})) << "another visit: this one has not taken place";
  w.route(3, 0_layer, {7});
  EXPECT_EQ(w.order(3, 0), slot_ids({0, 1})) << "it was planned anew";
  w.route(3, 0_layer, {5});
  w.begin(3, 0);
  EXPECT_EQ(w.order(4, 0), slot_ids({1, 0}));
}

TEST(next_visit_oracle, a_plan_that_came_to_nothing_is_forgotten_when_a_step_opens) {
  walk w(1, 4, {});
  w.visit(0, 0_layer, {6, 5});
  w.fill(0, {0_layer, 5_expert});
  w.fill(1, {0_layer, 6_expert});
  w.visit(1, 0_layer, {6});
  w.route(2, 0_layer, {5});
  w.route(2, before_layers, {});
  w.begin(2, 0);
  EXPECT_EQ(w.order(3, 0), slot_ids({0, 1}));
}

// A prefetcher's context has no ordinal: past visits are not ahead.
TEST(next_visit_oracle, speculation_looks_past_completed_visits) {
  walk w(1, 4, {{0, {0_layer, 4_expert}}, {1, {0_layer, 5_expert}}});
  w.begin(0, 0);
  w.prefetch(0, {0_layer, 5_expert}, 1);
  w.fill(1, {0_layer, 4_expert});
  std::vector<slot_id> out(2, no_slot);
  ASSERT_EQ(w.policy.select_victims({.speculative = true}, w.eligible, out), 2U);
  EXPECT_EQ(out, slot_ids({1, 0}));
}

TEST(next_visit_oracle, a_prefetch_for_a_future_visit_does_not_complete_it) {
  walk w(1, 4, {{0, {0_layer, 5_expert}}, {1, {0_layer, 4_expert}}, {2, {0_layer, 5_expert}}});
  w.begin(0, 0);
  w.prefetch(0, {0_layer, 4_expert}, 1);
  w.fill(1, {0_layer, 5_expert});
  w.begin(1, 0);
  // Its access has the ordinal of visit 1, which has used nothing yet.
  w.prefetch(2, {0_layer, 6_expert}, 2);
  std::vector<slot_id> out(3, no_slot);
  ASSERT_EQ(w.policy.select_victims({.ordinal = 1, .speculative = true}, w.eligible, out), 3U);
  EXPECT_EQ(out, slot_ids({1, 2, 0}));
}

TEST(next_visit_oracle, checks_its_future) {
  EXPECT_TRUE(next_visit_oracle::config{}.validate());
  const geometry shape{.layers = 1, .experts = 8, .top_k = 2};
  const next_visit_oracle::config known{.future = future(1, {{0, {0_layer, 4_expert}}})};
  EXPECT_FALSE(known.validate());
  EXPECT_FALSE(known.validate(shape));
  EXPECT_EQ(known.validate({.layers = 2, .experts = 8, .top_k = 2})->message,
            "next_visit_oracle future has 8 keys, accepted: layers x experts (16)");
}

}  // namespace
}  // namespace hotset::next_visit_oracle_test
