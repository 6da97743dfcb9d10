// SPDX-License-Identifier: Apache-2.0
// The part alone; what pagers make of it is in pager_compact_test.cpp and pager_room_test.cpp.
#include "hotset/paging/quotas.hpp"

#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/admission/always.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/hot_set.hpp"
#include "single_uses.hpp"

namespace hotset::quotas_test {
namespace {

using testing::ElementsAre;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .expert_bytes = {10}};

struct quotas_test : testing::Test {
  void hold(expert_key key) {
    expert_use a;
    a.key = key;
    a.pool = pool_id{number(key.layer)};
    const auto f = hot.held.reserve_free(key, a.pool);
    hot.held.hold(f);
    a.slot = f.slot;
    support::bring(hot.eviction, a);
  }
  std::vector<expert_id> order(pool_id p) {
    std::vector<expert_id> out;
    for (const auto slot : part.in_order(hot, p)) out.push_back(hot.held[slot].key.expert);
    return out;
  }
  hot_set<lru, always> hot{pool_layout::per_layer(shape, 4).value(), {}, {}};
  quotas part{8};
};

TEST_F(quotas_test, shrinking_evicts_in_the_policys_order_and_growing_takes_what_is_spare) {
  for (const auto e : each<expert_id>(4)) hold({0_layer, e});
  ASSERT_EQ(quotas::set(hot, 0_layer, 2), status::ok);
  EXPECT_THAT(order(0_pool), ElementsAre(2, 3));
  EXPECT_EQ(quotas::set(hot, 1_layer, 7), status::exceeds_memory);
  ASSERT_EQ(quotas::set(hot, 1_layer, 6), status::ok);
  EXPECT_EQ(hot.held.free_count(1_pool), 6U);
}

TEST_F(quotas_test, what_cannot_be_leaves_everything_as_it_is) {
  for (const auto e : each<expert_id>(4)) hold({0_layer, e});
  for (const auto e : each<expert_id>(3)) (void)hot.held.pin(hot.held.locate({0_layer, e}));
  EXPECT_EQ(quotas::set(hot, 0_layer, 2), status::busy) << "three are read";
  EXPECT_EQ(quotas::set(hot, 0_layer, 1), status::invalid_argument) << "no token would fit";
  EXPECT_EQ(quotas::set(hot, 0_layer, 9), status::invalid_argument)
      << "more than there are experts";
  EXPECT_EQ(hot.held.pool(0_pool).capacity, 4);
  EXPECT_THAT(order(0_pool), ElementsAre(3));
}

TEST_F(quotas_test, gathering_keeps_the_order_of_each_pool) {
  for (const auto e : each<expert_id>(4)) {
    hold({0_layer, e});
    hold({1_layer, e});
  }
  ASSERT_EQ(quotas::set(hot, 0_layer, 2), status::ok);
  std::map<slot_id, slot_id> moves;
  auto moved = [&](slot_id from, slot_id to) { moves[from] = to; };
  part.compact(hot, moved);
  EXPECT_EQ(moves.size(), 2U);
  for (const auto& [from, to] : moves) {
    EXPECT_GE(from, 6);
    EXPECT_LT(to, 6);
  }
  EXPECT_THAT(order(0_pool), ElementsAre(2, 3));
  EXPECT_THAT(order(1_pool), ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(quotas::set(hot, 1_layer, 6), status::ok);
  EXPECT_EQ(hot.held.free_count(1_pool), 2U);
}

}  // namespace
}  // namespace hotset::quotas_test
