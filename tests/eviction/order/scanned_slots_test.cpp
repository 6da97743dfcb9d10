// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/order/scanned_slots.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::scanned_slots_test {
namespace {

using testing::ElementsAre;

class scanned_slots_of_two_layers : public testing::Test {
 protected:
  const pool_layout layout =
      pool_layout::per_layer({.layers = 2, .experts = 8, .top_k = 2}, 3).value();
  scanned_slots slots{layout};
  slot_mask eligible{layout.slots()};

  void fill(layer_id layer, slot_id slot, expert_id expert) {
    slots.fill(pool_id{number(layer)}, slot, {layer, expert});
    eligible.set(slot);
  }
  /// By the expert's number.
  std::vector<slot_id> order(pool_id pool) {
    std::vector<slot_id> out(layout.slots());
    out.resize(slots.select(pool, eligible, out, [](slot_id, expert_key key) {
      return static_cast<double>(number(key.expert) / 2);
    }));
    return out;
  }
};

TEST_F(scanned_slots_of_two_layers, are_ordered_by_score_and_then_by_recency) {
  fill(0_layer, 0_slot, 4_expert);
  fill(0_layer, 1_slot, 5_expert);
  fill(0_layer, 2_slot, 1_expert);
  fill(1_layer, 3_slot, 0_expert);
  EXPECT_THAT(order(0_pool), ElementsAre(2, 0, 1));
  slots.use(0_slot);
  EXPECT_THAT(order(0_pool), ElementsAre(2, 1, 0));
  EXPECT_THAT(order(1_pool), ElementsAre(3));
  eligible.reset(2_slot);
  EXPECT_THAT(order(0_pool), ElementsAre(1, 0));
}

TEST_F(scanned_slots_of_two_layers, what_is_vacant_is_not_named) {
  fill(0_layer, 0_slot, 4_expert);
  fill(0_layer, 1_slot, 2_expert);
  slots.vacate(0_slot);
  EXPECT_THAT(order(0_pool), ElementsAre(1));
  fill(0_layer, 0_slot, 0_expert);
  EXPECT_THAT(order(0_pool), ElementsAre(0, 1));
}

TEST_F(scanned_slots_of_two_layers, a_move_keeps_key_and_recency) {
  fill(0_layer, 0_slot, 4_expert);
  fill(0_layer, 1_slot, 5_expert);
  slots.move(0_slot, 2_slot);
  eligible.reset(0_slot);
  eligible.set(2_slot);
  EXPECT_THAT(order(0_pool), ElementsAre(2, 1));
}

TEST_F(scanned_slots_of_two_layers, a_slot_may_come_from_another_pool) {
  fill(1_layer, 3_slot, 6_expert);
  fill(1_layer, 4_slot, 1_expert);
  slots.vacate(4_slot);
  fill(0_layer, 4_slot, 2_expert);
  EXPECT_THAT(order(0_pool), ElementsAre(4));
  EXPECT_THAT(order(1_pool), ElementsAre(3));
}

TEST_F(scanned_slots_of_two_layers, whole_scores_are_compared_as_they_are) {
  // No double tells these apart.
  const auto score = [](slot_id slot, expert_key) {
    return (std::uint64_t{1} << 60U) + (slot == 0 ? 1U : 0U);
  };
  for (const auto s : {0_slot, 1_slot}) fill(0_layer, s, expert_id{number(s)});
  std::vector<slot_id> out(2, no_slot);
  ASSERT_EQ(slots.select(0_pool, eligible, out, score), 2U);
  EXPECT_THAT(out, ElementsAre(1, 0));
}

}  // namespace
}  // namespace hotset::scanned_slots_test
