// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <gtest/gtest.h>

#include "hotset/policy/policy_config.hpp"
#include "pager_walk.hpp"

namespace {

#include "policies_1.inc"

using namespace hotset::literals;

TEST(policies, the_documented_policy_evicts_the_most_recently_used) {
  const hotset::geometry shape{.layers = 1, .experts = 8, .top_k = 1, .max_tokens_per_visit = 1};
  hotset::pager<most_recent> pages({.layout = hotset::pool_layout::shared(shape, 3).value()});
  auto plan = pages.make_plan();
  for (const auto e : hotset::each<hotset::expert_id>(4)) {
    const std::vector<hotset::expert_id> ids{e};
    ASSERT_EQ(pages.serve({.experts = ids}, plan, [](const hotset::visit_group&) {}),
              hotset::status::ok);
  }
  EXPECT_EQ(pages.locate({0_layer, 2_expert}), hotset::no_slot);
  EXPECT_NE(pages.locate({0_layer, 0_expert}), hotset::no_slot);
}

}  // namespace
