// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/slot_mask.hpp"

#include <cstdint>
#include <set>
#include <vector>

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
      const slot_id from{random.id_below(static_cast<std::int32_t>(slots))};
      const auto next = model.lower_bound(from);
      ASSERT_EQ(mask.next(from), next == model.end() ? no_slot : *next);
    }
    for (const auto s : each<slot_id>(slots)) ASSERT_EQ(mask.test(s), model.count(s) == 1);
    EXPECT_EQ(mask.next(static_cast<slot_id>(slots) + 63), no_slot);
    mask.clear();
    EXPECT_EQ(mask.next(0_slot), no_slot);
  }
}

TEST(slot_mask, copies_any_run_of_slots) {
  support::random_source random(7);
  for (const std::size_t slots : {1U, 64U, 65U, 200U}) {
    slot_mask mask(slots);
    for (const auto s : each<slot_id>(slots)) mask.assign(s, random.one_in(2));
    for (std::size_t first = 0; first < slots; ++first)
      for (std::size_t count = 0; first + count <= slots; ++count) {
        std::vector<std::uint64_t> words((count + 63) / 64 + 1, 7);
        mask.copy(static_cast<slot_id>(first), count, words.data());
        ASSERT_EQ(words.back(), 7U) << "no word more than it needs";
        for (std::size_t n = 0; n + 64 < words.size() * 64; ++n)
          ASSERT_EQ((words[n / 64] >> n % 64 & 1U) != 0,
                    n < count && mask.test(static_cast<slot_id>(first + n)));
      }
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
  slot_mask only_a(70);
  only_a.set(3_slot);
  EXPECT_EQ(out, only_a);
  out.assign_intersection(a, b);
  slot_mask both(70);
  both.set(69_slot);
  EXPECT_EQ(out, both);
}

}  // namespace
}  // namespace hotset::slot_mask_test
