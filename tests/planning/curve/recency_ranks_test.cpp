// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/curve/recency_ranks.hpp"

#include <string>

#include <gtest/gtest.h>

#include "naive_lru_stack.hpp"
#include "random_source.hpp"

namespace hotset::recency_ranks_test {
namespace {

TEST(recency_ranks, counts_distinct_keys_since_the_last_touch) {
  recency_ranks stack(4);
  EXPECT_EQ(stack.distance(2), 0U);
  for (const std::size_t key : {2U, 0U, 2U, 1U, 1U}) stack.touch(key);
  EXPECT_EQ(stack.distance(1), 1U);
  EXPECT_EQ(stack.distance(2), 2U);
  EXPECT_EQ(stack.distance(0), 3U);
  EXPECT_EQ(stack.distance(3), 0U);
  EXPECT_EQ(stack.seen(), 3U);
}

void agrees_with_the_list(std::size_t keys) {
  SCOPED_TRACE(std::to_string(keys) + " keys");
  support::random_source random(keys);
  recency_ranks stack(keys);
  support::naive_lru_stack model;
  for (int i = 0; i < 3000; ++i) {
    // The lower half is touched most, and the last keys late: first sights come at every depth.
    const auto range = random.one_in(4) ? keys : (keys + 1) / 2;
    const auto key = static_cast<std::size_t>(random.below(range));
    ASSERT_EQ(stack.distance(key), model.distance(key)) << "touch " << i;
    stack.touch(key);
    model.touch(key);
  }
  for (std::size_t key = 0; key < keys; ++key) ASSERT_EQ(stack.distance(key), model.distance(key));
  EXPECT_EQ(stack.seen(), model.size());
}

// Around the width of a vector and the range of a rank.
TEST(recency_ranks, agrees_with_a_list) {
  for (const std::size_t keys :
       {1U, 2U, 3U, 15U, 16U, 17U, 63U, 64U, 65U, 127U, 128U, 129U, 255U, 256U})
    agrees_with_the_list(keys);
}

}  // namespace
}  // namespace hotset::recency_ranks_test
