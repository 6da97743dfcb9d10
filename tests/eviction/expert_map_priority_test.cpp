// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/expert_map_priority.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "single_uses.hpp"

namespace hotset::expert_map_priority_test {
namespace {

using testing::ElementsAre;

const geometry shape{.layers = 2, .experts = 4, .top_k = 2, .max_tokens_per_visit = 2};

/// Experts 0, 1 and 2 of layer 0 in slots 0, 1 and 2, used once each.
class map_priority : public testing::Test {
 protected:
  explicit map_priority(const expert_map_priority::config& options = {}) : policy(layout, options) {
    for (const auto s : each<slot_id>(3)) {
      support::bring(policy, about(s));
      eligible.set(s);
    }
  }
  static expert_use about(slot_id slot) {
    expert_use a;
    a.key = {0_layer, expert_id{number(slot)}};
    a.slot = slot;
    return a;
  }
  const pool_layout layout = pool_layout::shared(shape, 4).value();
  expert_map_priority policy;
  slot_mask eligible{layout.slots()};

  void open(step_id step, sequence_id sequence) {
    routing_view view;
    view.layer = before_layers;
    view.step = step;
    view.sequences = std::span(&sequence, 1);
    policy.on_routed(view);
  }
  void expect(const std::vector<float>& rows) {
    forecast expected;
    expected.probabilities = rows;
    expected.depth = 1;
    policy.on_forecast({.layer = before_layers}, expected);
  }
  std::vector<slot_id> order() {
    std::vector<slot_id> out(4);
    out.resize(policy.select_victims({}, eligible, out));
    return out;
  }
};
class map_priority_since_fill : public map_priority {
 protected:
  map_priority_since_fill() : map_priority({.freq = use_history::resident}) {}
};

TEST_F(map_priority, multiplies_expected_by_past_uses) {
  EXPECT_THAT(order(), ElementsAre(0, 1, 2)) << "all are alike: recency";
  support::hit(policy, about(0_slot));
  support::hit(policy, about(0_slot));
  EXPECT_THAT(order(), ElementsAre(1, 2, 0));
  expect({0.1F, 0.4F, 0.2F, 0.3F});  // 3 x .1, 1 x .4, 1 x .2
  EXPECT_THAT(order(), ElementsAre(2, 0, 1));
}

TEST_F(map_priority, a_request_begins_without_expectations) {
  open(0, 7);
  expect({0.9F, 0.1F, 0.5F, 0.0F});
  EXPECT_THAT(order(), ElementsAre(1, 2, 0));
  open(1, 7);
  EXPECT_THAT(order(), ElementsAre(1, 2, 0));
  open(2, 8);
  EXPECT_THAT(order(), ElementsAre(0, 1, 2));
}

TEST_F(map_priority_since_fill, every_fill_is_one_use) {
  support::hit(policy, about(1_slot));
  policy.on_evict(1_slot, {0_layer, 1_expert});
  auto prefetched = about(1_slot);
  prefetched.speculative = true;
  support::bring(policy, prefetched);
  EXPECT_THAT(order(), ElementsAre(0, 2, 1)) << "all were used once";
}

}  // namespace
}  // namespace hotset::expert_map_priority_test
