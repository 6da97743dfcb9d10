// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/order/rank_scan.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::rank_scan_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class rank_scan : public testing::Test {
 protected:
  rank_scan() {
    for (const auto s : each<slot_id>(70)) eligible.set(s);
  }
  std::vector<slot_id> lowest(std::size_t count) {
    std::vector<slot_id> out(count, no_slot);
    std::vector<ranked_slot> scratch(members.size() + 1);
    out.resize(scan_ranks(members, ranks, eligible, scratch, out));
    return out;
  }
  const std::vector<slot_id> members{65_slot, 3_slot, 8_slot, 1_slot};
  std::vector<slot_rank> ranks = std::vector<slot_rank>(70, {0, 1});  // of slots elsewhere: lowest
  slot_mask eligible{70};
};

TEST_F(rank_scan, lists_members_by_key_then_position) {
  ranks[65] = {7, 2};
  ranks[3] = {5, 9};
  ranks[8] = {5, 4};
  ranks[1] = {6, 1};
  EXPECT_THAT(lowest(1), ElementsAre(8));
  EXPECT_THAT(lowest(3), ElementsAre(8, 3, 1));
  EXPECT_THAT(lowest(9), ElementsAre(8, 3, 1, 65));
  EXPECT_THAT(lowest(0), IsEmpty());
}

TEST_F(rank_scan, leaves_out_the_vacant_and_the_not_eligible) {
  ranks[65] = {7, 2};
  ranks[3] = {5, 9};
  ranks[8] = vacant_rank;
  ranks[1] = {4, 1};
  eligible.reset(1_slot);
  EXPECT_THAT(lowest(4), ElementsAre(3, 65));
  eligible.clear();
  EXPECT_THAT(lowest(4), IsEmpty());
}

TEST(take_lowest, takes_as_many_as_there_is_room_for) {
  std::vector<ranked_slot> found{{{7, 2}, 4}, {{5, 9}, 6}, {vacant_rank, 1}, {{5, 4}, 2}};
  std::vector<slot_id> out(2, no_slot);
  EXPECT_EQ(take_lowest(found, out), 2U);
  EXPECT_THAT(out, ElementsAre(2, 6));
  EXPECT_EQ(take_lowest(std::span(found).first(0), out), 0U);
}

// Few are counted, more are taken one after the other.
TEST(take_lowest, agrees_with_a_sort) {
  support::random_source random(3);
  for (std::uint32_t size = 0; size < 3 * most_counted; ++size)
    for (int round = 0; round < 30; ++round) {
      std::vector<ranked_slot> found;
      for (std::uint32_t n = 0; n < size; ++n)
        found.push_back(
            {random.one_in(9) ? vacant_rank : slot_rank{random.below(4), 1 + (n * 37) % 101}, n});
      std::vector<ranked_slot> sorted(found);
      std::erase_if(sorted, [](const ranked_slot& e) { return e.rank == vacant_rank; });
      std::ranges::sort(
          sorted, {}, [](const ranked_slot& e) { return std::pair(e.rank.key, e.rank.position); });
      const auto wanted = random.below(size + 2);
      std::vector<slot_id> expected;
      for (const auto& e : sorted)
        if (expected.size() < wanted) expected.push_back(static_cast<slot_id>(e.slot));
      std::vector<slot_id> out(wanted, no_slot);
      out.resize(take_lowest(found, out));
      ASSERT_EQ(out, expected);
    }
}

}  // namespace
}  // namespace hotset::rank_scan_test
