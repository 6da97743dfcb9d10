// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/curve/reuse_distance.hpp"

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::reuse_distance_test {
namespace {

using testing::ElementsAre;
using testing::Pair;

class reuse_distances : public testing::Test {
 protected:
  std::vector<std::pair<std::size_t, std::uint32_t>> visit(const std::vector<std::int32_t>& ids,
                                                           std::size_t first_key = 0) {
    std::vector<std::pair<std::size_t, std::uint32_t>> found;
    count = distances.visit(ids, first_key, [&](std::size_t key, std::uint32_t distance) {
      found.emplace_back(key, distance);
    });
    return found;
  }
  std::uint32_t count = 0;
  reuse_distance distances{8, 4, 16};
};

// Access by access, 1 would be at 2 and 0 at 2: both are measured before either moves.
TEST_F(reuse_distances, a_visit_is_measured_before_it_moves) {
  EXPECT_THAT(visit({0, 1}), ElementsAre(Pair(0, 0), Pair(1, 0)));
  EXPECT_THAT(visit({1, 0}), ElementsAre(Pair(1, 1), Pair(0, 2)));
  EXPECT_THAT(visit({1, 0}), ElementsAre(Pair(1, 2), Pair(0, 1)));
}

TEST_F(reuse_distances, recency_follows_the_last_appearance) {
  visit({0, 1, 2, 0});  // from the top: 0 2 1
  EXPECT_EQ(count, 3U);
  EXPECT_THAT(visit({2}), ElementsAre(Pair(2, 2)));
  EXPECT_THAT(visit({1}), ElementsAre(Pair(1, 3)));
}

TEST_F(reuse_distances, other_ids_are_passed_over_and_layers_lie_side_by_side) {
  EXPECT_THAT(visit({3, -1, 4, 3}, 0), ElementsAre(Pair(3, 0)));
  EXPECT_THAT(visit({3}, 4), ElementsAre(Pair(7, 0)));
  EXPECT_THAT(visit({3}, 0), ElementsAre(Pair(3, 2)));
  EXPECT_THAT(visit({}), ElementsAre());
  EXPECT_EQ(count, 0U);
}

TEST(reuse_histogram, misses_fall_by_the_accesses_at_each_distance) {
  reuse_histogram h(4);
  for (const std::uint32_t distance : {0U, 0U, 0U, 1U, 3U, 3U, 2U}) h.add(distance);
  h.end_visit(3);
  h.end_visit(4);
  EXPECT_EQ(h.accesses(), 7U);
  EXPECT_EQ(h.compulsory(), 3U);
  EXPECT_EQ(h.widest(), 4U);
  EXPECT_THAT(h.misses(), testing::ElementsAre(7U, 6U, 5U, 3U, 3U));
}

TEST(reuse_histogram, begins_empty) {
  EXPECT_THAT(reuse_histogram().misses(), testing::ElementsAre(0U));
  EXPECT_EQ(reuse_histogram(9).keys(), 9U);
}

}  // namespace
}  // namespace hotset::reuse_distance_test
