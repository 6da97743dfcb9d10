// SPDX-License-Identifier: Apache-2.0
#include "hotset/placement/placement_score.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace placement_score_test {
namespace {

using namespace hotset;

expert_placement of(const std::vector<int>& ids) {
  expert_placement out;
  for (const auto id : ids) out.push_back(static_cast<expert_id>(id));
  return out;
}

TEST(placement_score, shares_loads_evenly_by_replicas) {
  const placement_shape shape{3, 2, 2, 1, 1};
  const auto loads = step_loads::of(3, {6, 2, 4, 0, 0, 8}).value();
  // Step 0: 3 + 2 and 3 + 4. Step 1: 0 and 8.
  const auto score = score_of(shape, of({0, 1, 0, 2}), loads);
  EXPECT_DOUBLE_EQ(score.fullest, 7 + 8);
  EXPECT_DOUBLE_EQ(score.mean, 6 + 4);
  EXPECT_DOUBLE_EQ(score.excess(), .5);
  EXPECT_DOUBLE_EQ(score.balancedness(), 10.0 / 15);
  EXPECT_EQ(score.tokens, 0U);
}

TEST(placement_score, adds_up) {
  placement_score sum{3, 2, 10, 20};
  sum += {5, 2, 10, 30};
  EXPECT_DOUBLE_EQ(sum.excess(), 1);
  EXPECT_DOUBLE_EQ(sum.ranks_per_token(), 2.5);
  EXPECT_DOUBLE_EQ(placement_score{}.excess(), 0);
  EXPECT_DOUBLE_EQ(placement_score{}.balancedness(), 1);
  EXPECT_DOUBLE_EQ(placement_score{}.ranks_per_token(), 0);
}

/// Two nodes of two ranks; expert 0 is on ranks 0 and 2, expert 1 on 1 and 3, 2 and 3 on all four.
class dispatch : public testing::Test {
 protected:
  placement_shape shape{4, 4, 3, 2, 1};
  expert_placement placed = of({0, 2, 3, 1, 2, 3, 0, 2, 3, 1, 2, 3});
  placement_score score(replica_choice choice, const std::vector<int>& ids, std::size_t top_k) {
    token_dispatch out(shape, placed, choice);
    out.add_step(of(ids), top_k);
    return out.score();
  }
};

TEST_F(dispatch, near_takes_the_own_rank_then_the_own_node) {
  // Four tokens, one from each rank.
  EXPECT_DOUBLE_EQ(score(replica_choice::near, {2, 2, 2, 2}, 1).fullest, 1);
  EXPECT_DOUBLE_EQ(score(replica_choice::near, {0, 0, 0, 0}, 1).fullest, 2);
  EXPECT_EQ(score(replica_choice::near, {2, 3, 2, 3, 2, 3, 2, 3}, 2).copies, 4U);
}

TEST_F(dispatch, own_tokens_take_the_replica_that_they_sent_least_to) {
  // Eight tokens, two from each rank: each rank sends its two to different replicas.
  EXPECT_DOUBLE_EQ(score(replica_choice::own_tokens, {0, 0, 0, 0, 0, 0, 0, 0}, 1).fullest, 4);
  EXPECT_DOUBLE_EQ(score(replica_choice::own_tokens, std::vector<int>(16, 2), 1).fullest, 4);
}

TEST_F(dispatch, hash_takes_each_replica_about_as_often) {
  const auto score = this->score(replica_choice::hash, std::vector<int>(400, 2), 1);
  EXPECT_LT(score.excess(), .05);
  EXPECT_EQ(score.tokens, 400U);
  EXPECT_DOUBLE_EQ(score.ranks_per_token(), 1);
}

TEST_F(dispatch, skips_ids_that_are_no_expert) {
  const auto score = this->score(replica_choice::hash, {-1, -1, 1, -1}, 2);
  EXPECT_DOUBLE_EQ(score.mean, .25);
  EXPECT_EQ(score.copies, 1U);
}

}  // namespace
}  // namespace placement_score_test
