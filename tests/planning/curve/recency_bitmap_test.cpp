// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/curve/recency_bitmap.hpp"

#include <string>

#include <gtest/gtest.h>

#include "naive_lru_stack.hpp"
#include "random_source.hpp"

namespace hotset::recency_bitmap_test {
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

TEST(recency_bitmap, counts_distinct_keys_since_the_last_touch) {
  recency_bitmap stack(4);
  EXPECT_EQ(stack.distance(2), 0U);
  for (const std::size_t key : {2U, 0U, 2U, 1U, 1U}) stack.touch(key);
  EXPECT_EQ(stack.distance(1), 1U);
  EXPECT_EQ(stack.distance(2), 2U);
  EXPECT_EQ(stack.distance(0), 3U);
  EXPECT_EQ(stack.distance(3), 0U);
  EXPECT_EQ(stack.live(), 3U);
}

TEST(recency_bitmap, a_forgotten_key_is_as_one_never_touched) {
  recency_bitmap stack(4);
  for (const std::size_t key : {0U, 1U, 2U}) stack.touch(key);
  stack.forget(1);
  stack.forget(3);
  EXPECT_EQ(stack.distance(1), 0U);
  EXPECT_EQ(stack.distance(0), 2U);
  EXPECT_EQ(stack.live(), 2U);
  stack.touch(1);
  EXPECT_EQ(stack.distance(0), 3U);
}

// Few keys and many touches: every group boundary and several compactions are passed.
TEST(recency_bitmap, agrees_with_a_list) {
  for (const std::size_t keys : {1U, 2U, 3U, 64U, 65U, 511U, 512U, 513U, 700U}) {
    SCOPED_TRACE(std::to_string(keys) + " keys");
    support::random_source random(keys);
    recency_bitmap stack(keys);
    support::naive_lru_stack model;
    for (int i = 0; i < 12000; ++i) {
      const auto range = random.one_in(4) ? keys : (keys + 3) / 4;
      const auto key = static_cast<std::size_t>(random.below(range));
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
      ASSERT_EQ(stack.distance(key), model.distance(key));
    EXPECT_EQ(stack.live(), model.size());
  }
}

// Cyclic touches of all keys: the deepest distance every time, across compactions.
TEST(recency_bitmap, a_cycle_has_one_distance) {
  constexpr std::size_t keys = 100000;
  recency_bitmap stack(keys);
  for (std::size_t i = 0; i < keys; ++i) stack.touch(i);
  for (std::size_t i = 0; i < 5 * keys; ++i) {
    ASSERT_EQ(stack.distance(i % keys), keys) << "touch " << i;
    stack.touch(i % keys);
  }
}

TEST(recency_bitmap, few_live_keys_of_many_need_room_for_themselves_alone) {
  recency_bitmap stack(1 << 20, 100);
  EXPECT_LT(stack.room(), 10000U);
  support::naive_lru_stack model;
  support::random_source random(5);
  for (int i = 0; i < 20000; ++i) {
    const auto key = static_cast<std::size_t>(random.below(400)) * 2621;
    ASSERT_EQ(stack.distance(key), model.distance(key)) << "touch " << i;
    stack.touch(key);
    model.touch(key);
  }
}

// Room comes in spans of 32,768 touches: the first is passed on the way.
TEST(recency_bitmap, grows_without_losing_the_order) {
  constexpr std::size_t keys = 30000;
  recency_bitmap small(keys, 1);
  recency_bitmap large(keys);
  EXPECT_LT(small.room(), keys / 2);
  support::random_source random(6);
  const auto touch = [&](std::size_t key) {
    if (small.live() == small.room()) small.grow(2 * small.room());
    ASSERT_EQ(small.distance(key), large.distance(key)) << key;
    small.touch(key);
    large.touch(key);
  };
  for (std::size_t i = 0; i < keys; ++i) {
    touch(i);
    touch(static_cast<std::size_t>(random.below(i + 1)));
  }
  EXPECT_GE(small.room(), keys);
}

}  // namespace
}  // namespace hotset::recency_bitmap_test
