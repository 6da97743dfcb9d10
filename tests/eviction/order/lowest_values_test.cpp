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

template <class T>
class lowest_values_of : public ::testing::Test {};
using kinds = ::testing::Types<float, double>;
TYPED_TEST_SUITE(lowest_values_of, kinds);

TYPED_TEST(lowest_values_of, every_level_finds_the_least_and_all_within_a_bound_of_it) {
  constexpr auto none = std::numeric_limits<TypeParam>::infinity();
  support::random_source random(1);
  for (const auto level : {vector_level::scalar, vector_level::avx2, vector_level::avx512}) {
    if (level > best_vector_level()) break;
    for (int n = 0; n < 300; ++n) {
      const std::size_t words = 1 + random.below(3);
      std::vector<TypeParam> row(words * 64);
      set among(words, 0);
      set wanted(words, 0);
      for (auto& value : row) value = static_cast<TypeParam>(random.below(40));
      const auto named = random.below(n % 4 == 0 ? 2 : 64 * words);
      for (std::uint64_t i = 0; i < named; ++i)
        among[random.below(words)] |= std::uint64_t{1} << random.below(64);
      auto least = none;
      each_member(among, [&](std::size_t i) { least = std::min(least, row[i]); });
      each_member(among, [&](std::size_t i) {
        if (row[i] <= least + 1) wanted[i / 64] |= std::uint64_t{1} << i % 64;
      });
      set found(words, 77);
      const auto bound_of = [](TypeParam low) { return low + 1; };
      EXPECT_EQ(lowest_values(row.data(), among, found.data(), bound_of, level), least);
      EXPECT_EQ(found, wanted);
    }
  }
}

TEST(lowest_of_word, every_level_finds_all_within_a_bound_of_the_least) {
  constexpr auto none = std::numeric_limits<double>::infinity();
  support::random_source random(2);
  for (const auto level : {vector_level::scalar, vector_level::avx2, vector_level::avx512}) {
    if (level > best_vector_level()) break;
    for (std::uint64_t n = 0; n < 600; ++n) {
      std::vector<double> row(64);
      for (auto& value : row) value = static_cast<double>(random.below(40)) - 20;
      std::uint64_t among = 0;
      for (auto named = random.below(n % 4 == 0 ? 2 : 65); named > 0; --named)
        among |= std::uint64_t{1} << random.below(n % 2 == 0 ? 64 : 32);
      auto least = none;
      each_member(set{among}, [&](std::size_t i) { least = std::min(least, row[i]); });
      std::uint64_t wanted = 0;
      each_member(set{among}, [&](std::size_t i) {
        if (row[i] <= least + 1) wanted |= std::uint64_t{1} << i;
      });
      const auto bound_of = [](double low) { return low == none ? -none : low + 1; };
      EXPECT_EQ(lowest_of_word(row.data(), among, bound_of, level), wanted);
    }
  }
}

TEST(few_members, names_the_first_and_whether_there_is_another) {
  constexpr auto last = std::uint64_t{1} << 63U;
  EXPECT_EQ(few_members(set{1, 0}).first, 0U);
  EXPECT_TRUE(few_members(set{1, 0}).is_alone);
  EXPECT_EQ(few_members(set{0, 0, last}).first, 191U);
  EXPECT_TRUE(few_members(set{0, 0, last}).is_alone);
  EXPECT_EQ(few_members(set{0, 6}).first, 65U);
  EXPECT_FALSE(few_members(set{0, 6}).is_alone);
  EXPECT_EQ(few_members(set{last, 1}).first, 63U);
  EXPECT_FALSE(few_members(set{last, 1}).is_alone);
  EXPECT_FALSE(few_members(set{8, 0, 8}).is_alone);
}

TEST(each_member, comes_in_ascending_order) {
  std::vector<std::size_t> found;
  each_member(set{5, 0, 2}, [&](std::size_t i) { found.push_back(i); });
  EXPECT_THAT(found, ElementsAre(0, 2, 129));
}

}  // namespace
}  // namespace hotset::lowest_values_test
