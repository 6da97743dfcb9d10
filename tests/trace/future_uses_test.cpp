// SPDX-License-Identifier: Apache-2.0
#include "hotset/trace/future_uses.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "written_ids.hpp"

namespace future_uses_test {
namespace {
using namespace hotset;
using support::key_of;
using ::testing::ElementsAre;

result<future_uses> future(const std::vector<future_uses::event>& events) {
  return future_uses::create({.layers = 2, .experts = 8, .top_k = 2}, events);
}

TEST(future_uses, lists_each_visit_once) {
  const auto known = future({{0, key_of(0, 1)},
                             {0, key_of(0, 1)},
                             {4, key_of(0, 1)},
                             {4, key_of(1, 2)},
                             {9, key_of(0, 1)}});
  ASSERT_TRUE(known);
  EXPECT_EQ(known->keys(), 16U);
  EXPECT_THAT(known->uses(1), ElementsAre(0, 4, 9));
  EXPECT_THAT(known->uses(10), ElementsAre(4));
  EXPECT_TRUE(known->uses(3).empty());
  EXPECT_THAT(known->keys_in_order(), ElementsAre(1, 1, 10, 1));
}

TEST(future_uses, closes_the_uses_of_every_key) {
  const auto known = future({{2, key_of(0, 1)}, {5, key_of(1, 7)}});
  ASSERT_TRUE(known);
  for (std::size_t k = 0; k < known->keys(); ++k)
    EXPECT_EQ(known->ordinals()[known->first(k) + known->uses(k).size()], future_uses::never) << k;
}

TEST(future_uses, refuses_what_it_cannot_hold) {
  const auto falling = future({{3, key_of(0, 1)}, {2, key_of(0, 1)}});
  ASSERT_FALSE(falling);
  EXPECT_EQ(falling.error().message,
            "event 1: ordinal 2, layer 0, expert 1, accepted: ordinals that do not fall");
  EXPECT_FALSE(future({{0, key_of(0, 8)}}));
  EXPECT_FALSE(future({{0, key_of(2, 0)}}));
  EXPECT_FALSE(future({{future_uses::never, key_of(0, 1)}}));
}

}  // namespace
}  // namespace future_uses_test
