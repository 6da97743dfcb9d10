// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/curve/reuse_histogram.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::reuse_histogram_test {
namespace {

TEST(reuse_histogram, misses_fall_by_the_accesses_at_each_distance) {
  reuse_histogram h(4);
  for (const std::uint32_t distance : {0U, 0U, 0U, 1U, 3U, 3U, 2U}) h.add(distance);
  h.end_visit(3);
  h.end_visit(4);
  EXPECT_EQ(h.accesses(), 7U);
  EXPECT_EQ(h.compulsory(), 3U);
  EXPECT_EQ(h.widest(), 4U);
  EXPECT_EQ(h.count(3), 2U);
  EXPECT_THAT(h.misses(), testing::ElementsAre(7U, 6U, 5U, 3U, 3U));
}

TEST(reuse_histogram, begins_empty) {
  EXPECT_THAT(reuse_histogram().misses(), testing::ElementsAre(0U));
  EXPECT_EQ(reuse_histogram(9).keys(), 9U);
}

}  // namespace
}  // namespace hotset::reuse_histogram_test
