// SPDX-License-Identifier: Apache-2.0
#include "hotset/miss/fetch_lowest.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace hotset::fetch_lowest_test {
namespace {

static_assert(!fetch_lowest::traits.is_exact && !fetch_lowest::traits.fetches_all &&
              !fetch_lowest::traits.needs_logits);

const geometry one{.layers = 1, .experts = 8, .top_k = 2, .expert_bytes = {8}};
const geometry three{
    .layers = 1, .experts = 8, .top_k = 2, .expert_bytes = {8}, .lower_precisions = {{4}, {2}}};

TEST(fetch_lowest, fetches_the_smallest_copy_and_keeps_residents) {
  fetch_lowest policy(three, {});
  const std::vector<miss> misses{{.expert = 3_expert, .weight = 0.9F},
                                 {.expert = 5_expert, .weight = 0.9F, .held = 1_precision},
                                 {.expert = 6_expert}};
  std::vector<miss_decision> out(3);
  policy.decide(misses, {}, {}, {}, out);
  EXPECT_EQ(out[0].action, miss_action::fetch);
  EXPECT_EQ(out[0].precision, 2);
  EXPECT_EQ(out[1].action, miss_action::keep);
  EXPECT_EQ(out[2].action, miss_action::fetch);
  EXPECT_EQ(out[2].precision, 2);
}

TEST(fetch_lowest, refuses_a_model_of_one_precision) {
  EXPECT_FALSE(fetch_lowest::config{}.validate(three));
  ASSERT_TRUE(fetch_lowest::config{}.validate(one));
  EXPECT_EQ(fetch_lowest::config{}.validate(one)->message,
            "fetch_lowest needs two or more precisions, this model has 1; accepted: 2 or more");
}

}  // namespace
}  // namespace hotset::fetch_lowest_test
