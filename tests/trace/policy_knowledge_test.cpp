// SPDX-License-Identifier: Apache-2.0
#include "hotset/trace/policy_knowledge.hpp"

#include <limits>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace hotset::policy_knowledge_test {
namespace {

const geometry shape{.layers = 2, .experts = 3, .top_k = 1};

std::string why(const usage_profile& profile) {
  return profile.validate("popular", shape).value_or(error{"fine"}).message;
}

TEST(usage_profile, is_of_a_shape_or_none) {
  EXPECT_EQ(why({}), "fine");
  EXPECT_TRUE(usage_profile{}.empty());
  EXPECT_EQ(why({{0, 1, 2, 3, 4, 0.5}, "a file"}), "fine");
  EXPECT_EQ(why({{1, 2}, "a file"}),
            "popular profile has 2 entries, accepted: none or layers x experts (6)");
  const usage_profile of_another{{1, 2}, "a file"};
  EXPECT_FALSE(of_another.validate("popular")) << "any shape's";
}

TEST(usage_profile, counts_are_finite_and_not_negative) {
  usage_profile profile{{0, 0, 0, 0, 0, 0}, ""};
  for (const auto& [count, text] :
       {std::pair{-1.0, "-1.000000"}, std::pair{std::numeric_limits<double>::infinity(), "inf"},
        std::pair{std::numeric_limits<double>::quiet_NaN(), "nan"}}) {
    profile.counts[4] = count;
    EXPECT_EQ(why(profile),
              "popular profile[4] = " + std::string(text) + ", accepted: finite, 0 or more");
    EXPECT_TRUE(profile.validate("popular"));
  }
}

}  // namespace
}  // namespace hotset::policy_knowledge_test
