// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/lru.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "reference_policies.hpp"

namespace hotset {
namespace {

using reference::hand_walk;
using slots = std::vector<slot_id>;

pool_layout shared(std::int32_t layers, std::int64_t count) {
  return pool_layout::shared({.layers = layers, .experts = 8, .top_k = 2}, count).value();
}

TEST(lru, gives_up_the_least_recently_visited) {
  hand_walk<lru> w(shared(2, 3));
  w.begin(0, 0);
  w.fill(0, {0, 4});
  w.fill(1, {0, 5});
  w.begin(0, 1);
  w.fill(2, {1, 4});
  EXPECT_EQ(w.order(1, 0), (slots{0, 1, 2}));
  w.begin(1, 0);
  w.hit(1);
  w.hit(0);
  EXPECT_EQ(w.order(1, 1), (slots{2, 1, 0}));
}

TEST(lru, moves_a_key_that_a_later_token_group_repeats) {
  hand_walk<lru> w(shared(1, 2));
  w.begin(0, 0);
  w.fill(0, {0, 4});
  w.fill(1, {0, 5});
  w.hit_again(0);
  EXPECT_EQ(w.order(1, 0), (slots{1, 0}));
}

TEST(lru, places_a_speculative_fill_when_it_is_decided) {
  hand_walk<lru> w(shared(2, 3));
  w.begin(0, 0);
  w.fill(0, {0, 4});
  w.prefetch(1, {1, 5}, 0);
  w.fill(2, {0, 6});
  EXPECT_EQ(w.order(0, 1), (slots{0, 1, 2}));
}

}  // namespace
}  // namespace hotset
