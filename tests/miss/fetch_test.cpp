// SPDX-License-Identifier: Apache-2.0
#include "hotset/miss/fetch.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace hotset::fetch_test {
namespace {

static_assert(fetch::traits.is_exact && fetch::traits.fetches_all && !fetch::traits.needs_logits);

const geometry three{
    .layers = 1, .experts = 8, .top_k = 2, .expert_bytes = {8}, .lower_precisions = {{4}, {2}}};

TEST(fetch, brings_everything_at_precision_0_a_held_lower_copy_too) {
  fetch policy(three);
  const std::vector<miss> misses{{.expert = 3_expert}, {.expert = 5_expert, .held = 2_precision}};
  std::vector<miss_decision> out(3, {miss_action::drop, 1_precision});
  policy.decide(misses, {}, {}, {}, out);
  EXPECT_EQ(out[0].action, miss_action::fetch);
  EXPECT_EQ(out[0].precision, 0);
  EXPECT_EQ(out[1].action, miss_action::fetch);
  EXPECT_EQ(out[1].precision, 0);
  EXPECT_EQ(out[2].action, miss_action::drop);  // not requested
}

}  // namespace
}  // namespace hotset::fetch_test
