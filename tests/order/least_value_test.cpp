// SPDX-License-Identifier: Apache-2.0
#include "hotset/order/least_value.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::least_value_test {
namespace {

template <class T>
class least_value_of : public ::testing::Test {};
using kinds = ::testing::Types<float, double>;
TYPED_TEST_SUITE(least_value_of, kinds);

TYPED_TEST(least_value_of, every_level_finds_the_least_and_all_that_are_equal_to_it) {
  support::random_source random(1);
  for (const auto level : {vector_level::scalar, best_vector_level()})
    for (std::size_t n = 1; n < 150; ++n) {
      std::vector<TypeParam> values(n);
      for (auto& x : values)
        x = random.below(4) == 0 ? TypeParam{absent_value}
                                 : static_cast<TypeParam>(random.below(5));
      const std::span<const TypeParam> row(values);
      const auto least = least_value(row, level);
      EXPECT_EQ(least, std::ranges::min(row));
      std::vector<std::size_t> found;
      each_equal(row, least, level, [&](std::size_t i) { found.push_back(i); });
      std::vector<std::size_t> wanted;
      for (std::size_t i = 0; i < n; ++i)
        if (row[i] == least) wanted.push_back(i);
      EXPECT_EQ(found, wanted);
    }
}

TEST(residents_only, every_level_leaves_out_what_has_no_slot) {
  support::random_source random(2);
  for (const auto level : {vector_level::scalar, best_vector_level()})
    for (std::size_t n = 1; n < 70; ++n) {
      std::vector<float> row(n);
      for (auto& x : row) x = static_cast<float>(random.below(5));
      std::vector<slot_id> slots(n);
      for (auto& s : slots)
        s = random.below(2) == 0 ? no_slot : static_cast<slot_id>(random.below(9));
      std::vector<float> kept(n);
      residents_only(row, slots, kept, level);
      for (std::size_t i = 0; i < n; ++i)
        EXPECT_EQ(kept[i], slots[i] == no_slot ? absent_value : row[i]);
    }
}

}  // namespace
}  // namespace hotset::least_value_test
