// SPDX-License-Identifier: Apache-2.0
#include "hotset/adapters/redirect_rows.hpp"

#include <array>

#include <gtest/gtest.h>

namespace hotset::redirect_rows_test {
namespace {

// Two adapters of three experts.
constexpr std::array<expert_id, 6> rows{0_expert, 3_expert, 2_expert, 5_expert, 1_expert, 6_expert};
constexpr redirect_rows map{rows.data(), 2, 3};

static_assert(redirected(map, 1_expert, 0) == 3);
static_assert(redirected(map, 2_expert, 1) == 6);

TEST(redirect_rows, an_id_of_the_base_model_and_a_negative_one_stay) {
  EXPECT_EQ(redirected(map, 1_expert, -1), 1);
  EXPECT_EQ(redirected(map, expert_id{-4}, 1), -4);
}

TEST(redirect_rows, ids_and_adapters_past_the_map_are_refused_and_negative_ids_never) {
  EXPECT_FALSE(is_refused(map, 2_expert, 1));
  EXPECT_TRUE(is_refused(map, 3_expert, 1));
  EXPECT_TRUE(is_refused(map, 3_expert, -1));
  EXPECT_TRUE(is_refused(map, 0_expert, 2));
  EXPECT_FALSE(is_refused(map, no_expert, 2));
}

}  // namespace
}  // namespace hotset::redirect_rows_test
