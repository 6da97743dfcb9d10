// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/lru.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "reference_policies.hpp"
#include "single_uses.hpp"

namespace hotset::lru_test {
namespace {

using reference::hand_walk;
using reference::shared;
using support::slot_ids;
using slots = std::vector<slot_id>;

TEST(lru, evicts_the_least_recently_visited) {
  hand_walk<lru> w(shared(2, 3));
  w.begin(0, 0);
  w.fill_from(4, 2);
  w.begin(0, 1);
  w.fill(2, {1_layer, 4_expert});
  EXPECT_EQ(w.order(1, 0), slot_ids({0, 1, 2}));
  w.begin(1, 0);
  w.hit(1);
  w.hit(0);
  EXPECT_EQ(w.order(1, 1), slot_ids({2, 1, 0}));
}

TEST(lru, keeps_its_order_when_a_quota_change_lends_a_slot_to_another_pool) {
  const auto layout = pool_layout::per_layer({.layers = 2, .experts = 8, .top_k = 2}, 3).value();
  lru policy(layout);
  slot_mask eligible(layout.slots());
  const auto use = [&](support::written_slot slot, support::written_layer layer,
                       support::written_expert expert, bool resident) {
    expert_use a;
    a.key = {layer, expert};
    a.slot = slot;
    a.pool = pool_id{number(layer.id)};
    resident ? support::hit(policy, a) : support::bring(policy, a);
    eligible.set(slot);
  };
  const auto order = [&](pool_id pool) {
    visit_context context;
    context.pool = pool;
    context.layer = layer_id{number(pool)};
    slots out(layout.slots(), no_slot);
    out.resize(policy.select_victims(context, eligible, out));
    return out;
  };
  for (const int s : {0, 1, 2}) use(s, 0, s, false);
  for (const int s : {3, 4, 5}) use(s, 1, s, false);
  use(3, 1, 3, true);
  use(0, 0, 0, true);
  policy.on_evict(1_slot, {0_layer, 1_expert});
  eligible.reset(1_slot);
  use(1, 1, 7, false);  // pool 0 lent the slot
  EXPECT_EQ(order(0_pool), slot_ids({2, 0}));
  EXPECT_EQ(order(1_pool), slot_ids({4, 5, 3, 1}));
  use(2, 0, 2, true);
  use(4, 1, 4, true);
  EXPECT_EQ(order(0_pool), slot_ids({0, 2}));
  EXPECT_EQ(order(1_pool), slot_ids({5, 3, 1, 4}));
}

}  // namespace
}  // namespace hotset::lru_test
