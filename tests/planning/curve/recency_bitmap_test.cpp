// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/curve/recency_bitmap.hpp"

#include <string>

#include <gtest/gtest.h>

#include "naive_lru_stack.hpp"
#include "random_source.hpp"

namespace hotset::recency_bitmap_test {
namespace {

/// Touches and forgets the keys 0, spread, 2 * spread, ...; a list does the same.
void agrees_with_a_list(recency_bitmap stack, std::size_t keys, std::size_t spread = 1) {
  SCOPED_TRACE(std::to_string(keys) + " keys");
  support::random_source random(keys);
  support::naive_lru_stack model;
  for (int i = 0; i < 12000; ++i) {
    // A quarter of the keys is touched most, and the last ones late: first uses occur at every depth.
    const auto range = random.one_in(4) ? keys : (keys + 3) / 4;
    const auto key = static_cast<std::size_t>(random.below(range)) * spread;
    ASSERT_EQ(stack.distance(key), model.distance(key)) << "touch " << i;
    if (random.one_in(50)) {
      stack.forget(key);
      model.forget(key);
    } else {
      stack.touch(key);
      model.touch(key);
    }
  }
  for (std::size_t key = 0; key < keys; ++key)
    ASSERT_EQ(stack.distance(key * spread), model.distance(key * spread));
  EXPECT_EQ(stack.live(), model.size());
}

// Few keys and many touches: word borders and many compactions.
TEST(recency_bitmap, agrees_with_a_list) {
  for (const std::size_t keys : {1U, 2U, 3U, 15U, 16U, 17U, 64U, 65U, 511U, 512U, 513U, 700U})
    agrees_with_a_list(recency_bitmap(keys), keys);
}

TEST(recency_bitmap, few_live_keys_of_many_agree_with_a_list) {
  agrees_with_a_list(recency_bitmap(1 << 20, 100), 400, 2621);
}

TEST(recency_bitmap, more_live_keys_than_were_expected_agree_with_a_list) {
  for (const std::size_t keys : {700U, 5000U}) agrees_with_a_list(recency_bitmap(keys, 0), keys);
}

// Cyclic touches of all keys: always the deepest distance, across compactions.
TEST(recency_bitmap, a_cycle_has_one_distance) {
  constexpr std::size_t keys = 100000;
  recency_bitmap stack(keys);
  for (std::size_t i = 0; i < keys; ++i) stack.touch(i);
  for (std::size_t i = 0; i < 5 * keys; ++i) {
    ASSERT_EQ(stack.distance(i % keys), keys) << "touch " << i;
    stack.touch(i % keys);
  }
}

}  // namespace
}  // namespace hotset::recency_bitmap_test
