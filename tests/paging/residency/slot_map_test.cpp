// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/residency/slot_map.hpp"

#include <utility>

#include <gtest/gtest.h>

namespace hotset::slot_map_test {
namespace {

const geometry shape{.layers = 2, .experts = 3, .top_k = 1};

// A mirror of a row compares its version, so no change may keep it.
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

// Hazard 13 needs it: an engine may keep a row's address.
TEST(slot_map, rows_keep_their_address) {
  slot_map map(shape);
  const auto* const before = map.row(1_layer).data();
  map.place_and_publish({1_layer, 0_expert}, 1_slot);
  map.remove({1_layer, 0_expert});
  EXPECT_EQ(map.row(1_layer).data(), before);
}

}  // namespace
}  // namespace hotset::slot_map_test
