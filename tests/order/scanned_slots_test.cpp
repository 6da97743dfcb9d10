// SPDX-License-Identifier: Apache-2.0
#include "hotset/order/scanned_slots.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset {
namespace {

using testing::ElementsAre;

class scanned_slots_of_two_layers : public testing::Test {
 protected:
  const pool_layout layout =
      pool_layout::per_layer({.layers = 2, .experts = 8, .top_k = 2}, 3).value();
  scanned_slots slots{layout};
  slot_mask eligible{layout.slots()};

  void fill(layer_id layer, slot_id slot, expert_id expert) {
    slots.fill(layer, slot, {layer, expert});
    eligible.set(slot);
  }
  /// By the expert's number.
  std::vector<slot_id> order(pool_id pool) {
    std::vector<slot_id> out(layout.slots());
    out.resize(slots.select(pool, eligible, out,
                            [](expert_key key) { return static_cast<double>(key.expert / 2); }));
    return out;
  }
};

TEST_F(scanned_slots_of_two_layers, are_ordered_by_score_and_then_by_recency) {
  fill(0, 0, 4);
  fill(0, 1, 5);
  fill(0, 2, 1);
  fill(1, 3, 0);
  EXPECT_THAT(order(0), ElementsAre(2, 0, 1));
  slots.use(0);
  EXPECT_THAT(order(0), ElementsAre(2, 1, 0));
  EXPECT_THAT(order(1), ElementsAre(3));
  eligible.reset(2);
  EXPECT_THAT(order(0), ElementsAre(1, 0));
}

TEST_F(scanned_slots_of_two_layers, what_is_vacant_is_not_named) {
  fill(0, 0, 4);
  fill(0, 1, 2);
  slots.vacate(0);
  EXPECT_THAT(order(0), ElementsAre(1));
  fill(0, 0, 0);
  EXPECT_THAT(order(0), ElementsAre(0, 1));
}

TEST_F(scanned_slots_of_two_layers, a_move_keeps_key_and_recency) {
  fill(0, 0, 4);
  fill(0, 1, 5);
  slots.move(0, 2);
  eligible.reset(0);
  eligible.set(2);
  EXPECT_THAT(order(0), ElementsAre(2, 1));
}

TEST_F(scanned_slots_of_two_layers, a_slot_may_come_from_another_pool) {
  fill(1, 3, 6);
  fill(1, 4, 1);
  slots.vacate(4);
  fill(0, 4, 2);
  EXPECT_THAT(order(0), ElementsAre(4));
  EXPECT_THAT(order(1), ElementsAre(3));
}

}  // namespace
}  // namespace hotset
