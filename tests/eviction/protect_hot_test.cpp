// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/protect_hot.hpp"

#include <gtest/gtest.h>

#include "hotset/eviction/gate_score.hpp"
#include "hotset/eviction/lru.hpp"
#include "reference_policies.hpp"

namespace hotset::protect_hot_test {
namespace {

using reference::hand_walk;
using reference::shared;
using support::slot_ids;

using hot_lru = protect_hot<lru>;
static_assert(eviction_policy<hot_lru>);
static_assert(eviction_policy<protect_hot<protect_hot<gate_score>>>);
static_assert(!hot_lru::traits.needs_weights && protect_hot<gate_score>::traits.needs_weights);

TEST(protect_hot, spares_keys_used_often_since_their_fill) {
  hand_walk<hot_lru> w(shared(1, 3), {.uses = 2});
  w.begin(0, 0);
  w.fill(0, {0_layer, 4_expert});
  w.begin(1, 0);
  w.hit(0);
  w.begin(2, 0);
  w.fill(1, {0_layer, 5_expert});
  w.hit_again(1);  // a later group of the visit
  w.fill(2, {0_layer, 6_expert});
  EXPECT_EQ(w.order(3, 0), slot_ids({1, 2, 0}));  // the hot one only if nothing else is left
  w.evict(0);
  w.begin(3, 0);
  w.fill(0, {0_layer, 4_expert});
  w.begin(4, 0);
  w.hit(1);
  EXPECT_EQ(w.order(5, 0), slot_ids({2, 0, 1}));
}

}  // namespace
}  // namespace hotset::protect_hot_test
