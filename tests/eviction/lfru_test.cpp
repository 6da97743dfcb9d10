// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/lfru.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "reference_policies.hpp"

namespace hotset::lfru_test {
namespace {

using reference::hand_walk;
using reference::shared;
using support::slot_ids;

TEST(lfru, divides_by_age) {
  hand_walk<lfru> w(shared(1, 2), {.decay = 1.0});
  w.begin(0, 0);
  w.fill(0, {0_layer, 4_expert});
  w.begin(1, 0);
  w.hit(0);  // f = 2, last = 1
  w.begin(3, 0);
  w.fill(1, {0_layer, 5_expert});              // f = 1, last = 3
  EXPECT_EQ(w.order(3, 0), slot_ids({0, 1}));  // 2/3 against 1/1
  EXPECT_EQ(w.order(5, 0), slot_ids({1, 0}));  // 2/5 against 1/3
  EXPECT_EQ(w.order(4, 0), slot_ids({0, 1}));  // 2/4 against 1/2: a tie, by recency
}

TEST(lfru, decays_by_repeated_multiplication) {
  hand_walk<lfru> w(shared(1, 2), {.decay = 0.5});
  w.begin(0, 0);
  w.fill(0, {0_layer, 4_expert});
  w.begin(1, 0);
  w.hit(0);  // 1 * 0.5 + 1 = 1.5
  w.begin(2, 0);
  w.hit(0);  // 1.75
  w.begin(3, 0);
  w.fill(1, {0_layer, 5_expert});
  EXPECT_EQ(w.order(3, 0), slot_ids({0, 1}));  // 1.75 * 0.5 / 2 = 0.4375 against 1
  EXPECT_EQ(w.order(9, 0), slot_ids({0, 1}));  // and stays below
}

TEST(lfru, keeps_the_frequency_of_an_evicted_key) {
  hand_walk<lfru> w(shared(1, 2), {.decay = 1.0});
  w.begin(0, 0);
  w.fill(0, {0_layer, 4_expert});
  w.begin(0, 0);
  w.hit(0);
  w.hit_again(0);  // once per visit: f = 2
  w.evict(0);
  w.bypass({0_layer, 4_expert});  // f = 3
  w.prefetch(0, {0_layer, 4_expert}, 1);
  w.fill(1, {0_layer, 5_expert});
  w.begin(0, 0);
  w.hit(1);
  EXPECT_EQ(w.order(0, 0), slot_ids({1, 0}));  // 2 against 3
}

// A quota change may lend slots before anything was in them: the pool that they leave has room for others.
TEST(lfru, slots_that_were_never_filled_make_room) {
  const geometry shape{.layers = 2, .experts = 4, .top_k = 1};
  hand_walk<lfru> w(pool_layout::per_layer(shape, 4).value());
  w.begin(0, 0);
  for (auto s = 4_slot; s < 8; ++s)
    w.fill(s, {0_layer, expert_id{number(s) - 4}});  // all of them began in layer 1's pool
  EXPECT_EQ(w.order(0, 0), slot_ids({4, 5, 6, 7}));
}

TEST(lfru, ages_beyond_the_table_of_powers_still_order) {
  hand_walk<lfru> w(shared(1, 2));
  w.begin(0, 0);
  w.fill(0, {0_layer, 4_expert});
  w.begin(5, 0);
  w.fill(1, {0_layer, 5_expert});
  EXPECT_EQ(w.order(lfru::powers + 100, 0), slot_ids({0, 1}));
  EXPECT_EQ(w.order(lfru::powers + 100'000, 0), slot_ids({0, 1}));
}

TEST(lfru, refuses_a_decay_out_of_range) {
  EXPECT_FALSE(lfru::config{}.validate());
  EXPECT_TRUE(lfru::config{.decay = 0.0}.validate());
  EXPECT_TRUE(lfru::config{.decay = 1.5}.validate());
}

}  // namespace
}  // namespace hotset::lfru_test
