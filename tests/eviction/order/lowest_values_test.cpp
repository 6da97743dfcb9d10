// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/order/lowest_values.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::lowest_values_test {
namespace {

using testing::ElementsAre;
using set = std::vector<std::uint64_t>;

TEST(lowest_values, finds_the_least_and_all_within_a_bound_of_it) {
  constexpr auto none = std::numeric_limits<double>::infinity();
  support::random_source random(1);
  for (const auto level : {vector_level::scalar, vector_level::avx2}) {
    if (level > best_vector_level()) break;
    for (int n = 0; n < 600; ++n) {
      const std::size_t words = 1 + random.below(3);
      std::vector<double> row(words * 64);
      set among(words, 0);
      set wanted(words, 0);
      for (auto& value : row) value = static_cast<double>(random.below(40)) - 20;
      const auto named = random.below(n % 4 == 0 ? 2 : 64 * words);
      for (std::uint64_t i = 0; i < named; ++i)
        among[random.below(words)] |= std::uint64_t{1} << random.below(n % 2 == 0 ? 64 : 32);
      auto least = none;
      each_member(among, [&](std::size_t i) { least = std::min(least, row[i]); });
      each_member(among, [&](std::size_t i) {
        if (row[i] <= least + 1) wanted[i / 64] |= std::uint64_t{1} << i % 64;
      });
      set found(words, 77);
      const auto bound_of = [](double low) { return low + 1; };
      EXPECT_EQ(lowest_values(row.data(), among, found.data(), bound_of, level), least);
      EXPECT_EQ(found, wanted);
    }
  }
}

TEST(each_member, comes_in_ascending_order) {
  std::vector<std::size_t> found;
  each_member(set{5, 0, 2}, [&](std::size_t i) { found.push_back(i); });
  EXPECT_THAT(found, ElementsAre(0, 2, 129));
}

}  // namespace
}  // namespace hotset::lowest_values_test
