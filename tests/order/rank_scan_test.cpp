// SPDX-License-Identifier: Apache-2.0
#include "hotset/order/rank_scan.hpp"

#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace hotset::rank_scan_test
