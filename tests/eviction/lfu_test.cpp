// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/lfu.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "reference_policies.hpp"

namespace hotset::lfu_test {
namespace {

using reference::hand_walk;
using reference::shared;
using support::slot_ids;
using slots = std::vector<slot_id>;

TEST(lfu, evicts_the_key_of_fewest_visits_ties_by_recency) {
  hand_walk<lfu> w(shared(1, 3));
  w.begin(0, 0);
  w.fill_from(4, 3);
  w.begin(1, 0);
  w.hit(0);
  w.begin(2, 0);
  w.hit(1);
  EXPECT_EQ(w.order(3, 0), slot_ids({2, 0, 1}));
}

// Counts of key 4: 3 visits before its eviction. `whole` keeps them, `resident` does not.
template <class Check>
void leave_and_return(lfu_history history, Check check) {
  hand_walk<lfu> w(shared(1, 2), {.history = history});
  w.begin(0, 0);
  w.fill(0, {0_layer, 4_expert});
  for (step_id s = 1; s < 3; ++s) {
    w.begin(s, 0);
    w.hit(0);
  }
  w.evict(0);
  w.begin(3, 0);
  w.fill(1, {0_layer, 5_expert});
  w.begin(4, 0);
  w.hit(1);
  w.begin(5, 0);
  w.fill(0, {0_layer, 4_expert});
  check(w.order(6, 0));
}
TEST(lfu, whole_history_outlives_eviction) {
  leave_and_return(lfu_history::whole, [](const slots& s) { EXPECT_EQ(s, slot_ids({1, 0})); });
}
TEST(lfu, resident_history_starts_again) {
  leave_and_return(lfu_history::resident, [](const slots& s) { EXPECT_EQ(s, slot_ids({0, 1})); });
}

TEST(lfu, ageing_lets_old_fame_fade) {
  const auto run = [](std::uint64_t period) {
    hand_walk<lfu> w(shared(1, 2), {.ageing_period = period});
    w.begin(0, 0);
    w.fill(0, {0_layer, 4_expert});
    for (step_id s = 1; s < 8; ++s) {
      w.begin(s, 0);
      w.hit(0);
    }
    w.begin(8, 0);
    w.fill(1, {0_layer, 5_expert});
    for (step_id s = 9; s < 13; ++s) {
      w.begin(s, 0);
      w.hit(1);
    }
    return w.order(13, 0);
  };
  EXPECT_EQ(run(0), slot_ids({1, 0}));  // 8 visits against 5
  // 4 + (4 / 2) = 6, then 3, then 1; against 4, then 2, then 3.
  EXPECT_EQ(run(4), slot_ids({0, 1}));
}

}  // namespace
}  // namespace hotset::lfu_test
