// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/slot_mask.hpp"

#include <set>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::slot_mask_test {
namespace {

TEST(slot_mask, agrees_with_a_set) {
  for (const std::size_t slots : {1U, 63U, 64U, 65U, 200U}) {
    SCOPED_TRACE(slots);
    slot_mask mask(slots);
    std::set<slot_id> model;
    support::random_source random(slots);
    for (int n = 0; n < 500; ++n) {
      const slot_id slot{random.id_below(static_cast<std::int32_t>(slots))};
      const bool on = random.one_in(2);
      mask.assign(slot, on);
      on ? (void)model.insert(slot) : (void)model.erase(slot);
      ASSERT_EQ(mask.count(), model.size());
      const slot_id from{random.id_below(static_cast<std::int32_t>(slots))};
      const auto next = model.lower_bound(from);
      ASSERT_EQ(mask.next(from), next == model.end() ? no_slot : *next);
    }
    for (const auto s : each<slot_id>(slots)) ASSERT_EQ(mask.test(s), model.count(s) == 1);
    EXPECT_EQ(mask.next(static_cast<slot_id>(slots) + 63), no_slot);
    mask.clear();
    EXPECT_EQ(mask.count(), 0U);
    EXPECT_EQ(mask.next(0_slot), no_slot);
  }
}

TEST(slot_mask, difference_and_intersection) {
  slot_mask a(70);
  slot_mask b(70);
  slot_mask out(70);
  a.set(3_slot);
  a.set(69_slot);
  b.set(69_slot);
  b.set(1_slot);
  out.assign_difference(a, b);
  EXPECT_TRUE(out.test(3_slot));
  EXPECT_EQ(out.count(), 1U);
  out.assign_intersection(a, b);
  EXPECT_TRUE(out.test(69_slot));
  EXPECT_EQ(out.count(), 1U);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace hotset::slot_mask_test
