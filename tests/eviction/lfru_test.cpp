// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/lfru.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"
#include "reference_policies.hpp"

namespace hotset::lfru_test {
namespace {

using reference::hand_walk;
using reference::shared;
using support::slot_ids;
using slots = std::vector<slot_id>;

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

// A quota change may lend slots that were never filled; the pool that they leave must have room for others.
TEST(lfru, slots_that_were_never_filled_make_room) {
  const geometry shape{.layers = 2, .experts = 4, .top_k = 1};
  hand_walk<lfru> w(pool_layout::per_layer(shape, 4).value());
  w.begin(0, 0);
  for (auto s = 4_slot; s < 8; ++s)
    w.fill(s, {0_layer, expert_id{number(s) - 4}});  // all started in layer 1's pool
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

// A few victims come from a sorted list of a large pool's coldest slots; all of them come from a scan. Many slots
// share a score.
TEST(lfru, the_coldest_of_a_large_pool_are_the_first_of_all) {
  for (const double decay : {1.0, 0.9, 0.01}) {
    const geometry shape{.layers = 4, .experts = 150, .top_k = 8};
    hand_walk<lfru> w(pool_layout::shared(shape, 500).value(), {.decay = decay});
    support::random_source random(7);
    for (step_id step = 0; step < 60; ++step) {
      w.begin(step, 0);
      if (step < 5)
        for (auto s = 0_slot; s < 100; ++s) {
          const auto slot = s + static_cast<std::int32_t>(step) * 100;
          w.fill(slot, {layer_id{number(slot) / 150}, expert_id{number(slot) % 150}});
        }
      for (int n = 0; n < 25 && step >= 5; ++n) w.hit(slot_id{random.id_below(500)});
      const auto all = w.order(step, 0);
      for (const std::size_t few : {3U, 40U, 90U}) {
        slots first(few, no_slot);
        first.resize(w.policy.select_victims({0_layer, 0_pool, step, 0}, w.eligible, first));
        ASSERT_EQ(first, slots(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(few)));
      }
    }
  }
}

}  // namespace
}  // namespace hotset::lfru_test
