// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/budget/cost_model.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace hotset::cost_model_test {
namespace {

// WiSP, section 4: in each of 48 layers half of the top-8 changes, 9.4 MB each.
TEST(cost_model, a_ceiling_is_the_links_rate) {
  const cost_model pcie4{.seconds_per_byte = 1 / 25e9};
  const double bytes = 4 * 48 * 9437184.0;
  EXPECT_NEAR(bytes / (1 << 30), 1.69, 0.005);
  EXPECT_NEAR(pcie4.ceiling(bytes), 13.8, 0.05);
  EXPECT_TRUE(std::isinf(pcie4.ceiling(0)));
}

// Hazard 31: a smaller cache with 60 % more misses is faster if its misses are cheap.
TEST(cost_model, seconds_and_not_misses_are_compared) {
  const cost_model cost{.seconds_per_byte = 1 / 10e9, .recompute_seconds_per_token = 1e-3};
  const double few_dear = 100 * cost.kv_miss(16);
  const double many_cheap = 160 * cost.expert_miss(9437184);
  EXPECT_DOUBLE_EQ(cost.kv_miss(16), 0.016);
  EXPECT_LT(many_cheap, few_dear);
}

TEST(cost_model, refuses_invalid_prices) {
  EXPECT_FALSE(cost_model{}.validate());
  for (const double wrong : {-1.0, 1.0, std::nan(""), HUGE_VAL})
    EXPECT_TRUE((cost_model{.seconds_per_byte = wrong}.validate())) << wrong;
  for (const double wrong : {-1.0, std::nan(""), HUGE_VAL})
    EXPECT_TRUE((cost_model{.recompute_seconds_per_token = wrong}.validate())) << wrong;
}

}  // namespace
}  // namespace hotset::cost_model_test
