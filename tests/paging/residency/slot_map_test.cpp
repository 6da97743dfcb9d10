// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/residency/slot_map.hpp"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::slot_map_test {
namespace {

using testing::Each;
using testing::ElementsAre;

const geometry shape{.layers = 2, .experts = 3, .top_k = 1};

TEST(slot_entry, is_evictable_if_it_is_resident_and_nobody_reads_it) {
  for (const auto state : {slot_state::free, slot_state::filling, slot_state::resident})
    for (const std::uint32_t pins : {0U, 1U})
      EXPECT_EQ((slot_entry{.pins = pins, .state = state}.is_evictable()),
                state == slot_state::resident && pins == 0);
}

// Hazard 4: an unknown expert must not read slot 0.
TEST(slot_map, everything_is_absent_at_first) {
  const slot_map map(shape);
  for (const auto l : each<layer_id>(2)) {
    EXPECT_EQ(map.row(l).size(), 3U);
    EXPECT_THAT(map.row(l), Each(no_slot));
  }
  EXPECT_EQ(no_slot, -1);
}

// Hazard 3: a slot is the key's own before its bytes may be read.
TEST(slot_map, a_placed_key_is_not_in_the_row_until_it_is_published) {
  slot_map map(shape);
  map.place({1_layer, 2_expert}, 5_slot);
  EXPECT_EQ(map.locate({1_layer, 2_expert}), 5);
  EXPECT_EQ(map.located(1_layer)[2], 5);
  EXPECT_THAT(map.row(1_layer), Each(no_slot));
  map.publish({1_layer, 2_expert});
  EXPECT_THAT(map.row(1_layer), ElementsAre(-1, -1, 5));
  EXPECT_THAT(map.row(0_layer), Each(no_slot));
  map.remove({1_layer, 2_expert});
  EXPECT_EQ(map.locate({1_layer, 2_expert}), no_slot);
  EXPECT_THAT(map.row(1_layer), Each(no_slot));
}

TEST(slot_map, place_and_publish_does_both) {
  slot_map map(shape);
  map.place_and_publish({0_layer, 0_expert}, 4_slot);
  EXPECT_EQ(map.locate({0_layer, 0_expert}), 4);
  EXPECT_THAT(map.row(0_layer), ElementsAre(4, -1, -1));
}

// What mirrors a row elsewhere asks for its version, and must not miss a change.
TEST(slot_map, a_version_changes_with_its_row_and_with_no_other) {
  slot_map map(shape);
  auto before = map.version(1_layer);
  EXPECT_EQ(before, 0U);
  const auto changed = [&] { return std::exchange(before, map.version(1_layer)) != before; };
  map.place({1_layer, 2_expert}, 5_slot);
  EXPECT_FALSE(changed()) << "placed keys are not in the row";
  map.publish({1_layer, 2_expert});
  EXPECT_TRUE(changed());
  map.place_and_publish({1_layer, 0_expert}, 3_slot);
  EXPECT_TRUE(changed());
  map.remove({1_layer, 2_expert});
  EXPECT_TRUE(changed());
  map.place_and_publish({0_layer, 0_expert}, 1_slot);
  map.remove({0_layer, 0_expert});
  EXPECT_FALSE(changed()) << "that was the other row";
}

// Hazard 13 needs it: an engine may keep the address of a row.
TEST(slot_map, rows_keep_their_address) {
  slot_map map(shape);
  const auto* const before = map.row(1_layer).data();
  map.place_and_publish({1_layer, 0_expert}, 1_slot);
  map.remove({1_layer, 0_expert});
  EXPECT_EQ(map.row(1_layer).data(), before);
}

}  // namespace
}  // namespace hotset::slot_map_test
