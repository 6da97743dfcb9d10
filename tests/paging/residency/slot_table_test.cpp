// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/residency/slot_table.hpp"

#include <gtest/gtest.h>

namespace hotset::slot_table_test {
namespace {

TEST(slot_table, slots_start_free_and_nameless) {
  const slot_table table(3);
  EXPECT_EQ(table.slots(), 3U);
  for (const auto s : each<slot_id>(3)) {
    EXPECT_EQ(table[s].state, slot_state::free);
    EXPECT_EQ(table[s].key, no_key);
    EXPECT_EQ(table[s].last_reader, no_ticket);
    EXPECT_FALSE(table.evictable(s));
  }
}

TEST(slot_table, only_a_resident_slot_without_pins_is_evictable) {
  slot_table table(1);
  table[0_slot].state = slot_state::filling;
  EXPECT_FALSE(table.evictable(0_slot));
  table[0_slot].state = slot_state::resident;
  EXPECT_TRUE(table.evictable(0_slot));
  table[0_slot].pins = 1;
  EXPECT_FALSE(table.evictable(0_slot));
}

}  // namespace
}  // namespace hotset::slot_table_test
