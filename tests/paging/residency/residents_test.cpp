// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/residency/residents.hpp"

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::residents_test {
namespace {

using testing::ElementsAre;

const geometry shape{.layers = 3, .experts = 8, .top_k = 2, .expert_bytes = {100, 200, 300}};

/// Residents of one pool: the first experts of layer 0 in its first slots.
residents holding(std::int32_t experts, std::int64_t slots) {
  residents r(pool_layout::shared(shape, slots).value());
  std::vector<fill> fills;
  for (const auto e : each<expert_id>(experts))
    fills.push_back(r.reserve_free({0_layer, e}, 0_pool));
  r.hold(0_layer, fills, [](const fill&, std::uint64_t) {});
  return r;
}

TEST(residents, copies_held_together_are_evictable_whatever_happened_to_their_victims) {
  auto r = holding(3, 3);
  std::vector<fill> fills;
  for (const auto s : each<slot_id>(3))
    fills.push_back(r.reserve_victim({1_layer, 5_expert - number(s)}, s));
  (void)r.pin(1_slot);
  r.lose_victim(2_slot);  // its copy has failed
  std::vector<expert_key> lost;
  r.hold(1_layer, fills, [&](const fill& f, std::uint64_t bytes) {
    EXPECT_EQ(bytes, 200U);
    EXPECT_EQ(r[f.slot].key, f.victim) << "it is still there to be accounted for";
    lost.push_back(f.victim);
  });
  EXPECT_THAT(lost, ElementsAre(expert_key{0_layer, 0_expert}, expert_key{0_layer, 1_expert},
                                expert_key{0_layer, 2_expert}));
  for (const auto slot : each<slot_id>(3)) {
    EXPECT_TRUE(r.evictable().test(slot));
    EXPECT_EQ(r[slot].state, slot_state::resident);
    EXPECT_EQ(r[slot].pins, 0U);
  }
  EXPECT_EQ(r.pool(0_pool).evictable, 3U);
  EXPECT_EQ(r.pool(0_pool).resident_bytes, 600U);
  EXPECT_THAT(r.map().row(1_layer), ElementsAre(-1, -1, -1, 2, 1, 0, -1, -1));
  EXPECT_EQ(r.map().row(0_layer)[1], no_slot);
}

std::vector<slot_id> evictable_of(const residents& r) {
  std::vector<slot_id> out;
  for (auto s = r.evictable().next(); s != no_slot; s = r.evictable().next(s + 1)) out.push_back(s);
  return out;
}

TEST(residents, masks_end_in_the_reverse_order_of_their_beginnings) {
  auto r = holding(3, 4);
  const std::vector<slot_id> own{0_slot, no_slot, 3_slot};
  {
    const residents::mask outer(r, own);
    EXPECT_THAT(outer.slots(), ElementsAre(0)) << "slot 3 is free: nothing can be evicted from it";
    {
      residents::mask inner(r);
      inner.add(0_slot);
      inner.add(2_slot);
      EXPECT_THAT(inner.slots(), ElementsAre(2));
      EXPECT_THAT(evictable_of(r), ElementsAre(1));
    }
    EXPECT_THAT(evictable_of(r), ElementsAre(1, 2));
    EXPECT_TRUE(r.is_evictable(0_slot)) << "masked, and never read";
  }
  EXPECT_THAT(evictable_of(r), ElementsAre(0, 1, 2));
  EXPECT_EQ(r.pool(0_pool).evictable, 3U) << "a mask is no change";
}

}  // namespace
}  // namespace hotset::residents_test
