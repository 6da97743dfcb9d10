// SPDX-License-Identifier: Apache-2.0
#include "hotset/order/values_at_most.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::values_at_most_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::size_t> found(const std::vector<double>& row, double bound, vector_level level) {
  std::vector<std::size_t> out;
  each_at_most(row, bound, level, [&](std::size_t i) { out.push_back(i); });
  return out;
}

TEST(values_at_most, names_those_that_are_no_greater) {
  for (const auto level : {vector_level::scalar, best_vector_level()}) {
    EXPECT_THAT(found({3, 1, 2, 1, 0, 5}, 1, level), ElementsAre(1, 3, 4));
    EXPECT_THAT(found({3, 1, 2}, 0.5, level), IsEmpty());
    EXPECT_THAT(found({}, 1, level), IsEmpty());
    EXPECT_THAT(found({0.0, -0.0, -1}, 0.0, level), ElementsAre(0, 1, 2));
    constexpr auto absent = std::numeric_limits<double>::infinity();
    EXPECT_THAT(
        found({absent, 1, absent, absent, absent}, std::numeric_limits<double>::max(), level),
        ElementsAre(1));
  }
}

TEST(values_at_most, every_level_finds_the_same_in_rows_of_any_length) {
  support::random_source random(1);
  for (std::size_t n = 0; n < 200; ++n) {
    std::vector<double> row(n);
    for (auto& v : row) v = static_cast<double>(random.below(9));
    std::vector<std::size_t> wanted;
    for (std::size_t i = 0; i < n; ++i)
      if (row[i] <= 3) wanted.push_back(i);
    EXPECT_EQ(found(row, 3, vector_level::scalar), wanted);
    EXPECT_EQ(found(row, 3, best_vector_level()), wanted);
  }
}

TEST(values_at_most, the_lowest_are_those_within_a_bound_of_the_least) {
  support::random_source random(2);
  constexpr auto absent = std::numeric_limits<double>::infinity();
  for (const auto level : {vector_level::scalar, vector_level::avx2, vector_level::avx512}) {
    if (level > best_vector_level()) break;
    for (std::size_t n = 0; n < 150; ++n) {
      std::vector<double> row(n);
      for (auto& v : row) v = random.one_in(4) ? absent : static_cast<double>(random.below(30));
      std::vector<std::size_t> wanted;
      if (n != 0) {
        const auto most = std::ranges::min(row) + 2;
        for (std::size_t i = 0; i < n; ++i)
          if (row[i] != absent && row[i] <= most) wanted.push_back(i);
      }
      std::vector<std::size_t> lowest;
      each_lowest(
          row, [](double least) { return least == absent ? -absent : least + 2; }, level,
          [&](std::size_t i) { lowest.push_back(i); });
      EXPECT_EQ(lowest, wanted);
    }
  }
}

}  // namespace
}  // namespace hotset::values_at_most_test
