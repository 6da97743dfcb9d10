// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/ids.hpp"

#include <gtest/gtest.h>

namespace hotset {
namespace {

TEST(ids, keys_are_ordered_by_layer_then_expert) {
  EXPECT_LT((expert_key{0, 7}), (expert_key{1, 0}));
  EXPECT_LT((expert_key{1, 0}), (expert_key{1, 1}));
  EXPECT_EQ((expert_key{2, 3}), (expert_key{2, 3}));
}

TEST(ids, a_key_that_was_not_set_is_no_key) {
  EXPECT_EQ(expert_key{}, no_key);
  EXPECT_NE((expert_key{0, 0}), no_key);
  EXPECT_LT(no_slot, 0);
}

TEST(ids, no_step_has_the_mark_that_says_never) {
  EXPECT_EQ(mark_of(0), 1U);
  EXPECT_EQ(mark_of(41), 42U);
  EXPECT_EQ(mark_of(~step_id{0}), ~step_id{0});
}

}  // namespace
}  // namespace hotset
