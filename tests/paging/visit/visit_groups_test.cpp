// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/visit/visit_groups.hpp"

#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"
#include "written_ids.hpp"

namespace visit_groups_test {
namespace {

using namespace hotset;

const geometry shape{.layers = 1, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4};
const std::vector<std::int32_t> ids{0, 1, 2, 3, 0, 1, 4, 5};
const std::vector<float> weights{.1F, .2F, .3F, .4F, .5F, .6F, .7F, .8F};

routing_view visit_of(const std::vector<std::int32_t>& routed) {
  routing_view view;
  view.experts = routed;
  view.weights = weights;
  return view;
}

/// A plan that looked up the visit in an empty cache which holds all of it.
visit_plan looked_up() {
  pager<lru> cache({.layout = pool_layout::shared(shape, 8).value()});
  auto plan = cache.make_plan();
  EXPECT_EQ(cache.plan(visit_of(ids), plan), status::ok);
  return plan;
}

const auto everyone = [](expert_id) { return true; };

TEST(visit_groups, by_token_gives_each_group_its_tokens_ids_and_weights) {
  visit_groups groups(shape, visit_split::by_token);
  ASSERT_EQ(groups.divide(visit_of(ids), looked_up(), 2, everyone), status::ok);
  ASSERT_EQ(groups.count(), 3U);
  const auto first = groups.group(0);
  EXPECT_EQ(std::vector(first.tokens.begin(), first.tokens.end()),
            (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(std::vector(first.ids.begin(), first.ids.end()), support::expert_ids({0, 1, 0, 1}));
  EXPECT_EQ(std::vector(first.weights.begin(), first.weights.end()),
            (std::vector<float>{.1F, .2F, .5F, .6F}));
}

TEST(visit_groups, by_expert_covers_every_expert_once_within_the_room) {
  visit_groups groups(shape, visit_split::by_expert);
  ASSERT_EQ(groups.divide(visit_of(ids), looked_up(), 4, everyone), status::ok);
  ASSERT_EQ(groups.count(), 2U);
  std::multiset<expert_id> seen;
  for (std::size_t g = 0; g < groups.count(); ++g) {
    const auto part = groups.group(g);
    EXPECT_LE(part.ids.size(), 4U);
    EXPECT_EQ(part.tokens.size(), ids.size() / static_cast<std::size_t>(shape.top_k));
    seen.insert(part.ids.begin(), part.ids.end());
  }
  EXPECT_EQ(seen,
            (std::multiset<expert_id>{0_expert, 1_expert, 2_expert, 3_expert, 4_expert, 5_expert}));
}

TEST(visit_groups, what_cannot_be_divided_is_refused) {
  visit_groups by_token(shape, visit_split::by_token);
  EXPECT_EQ(by_token.divide(visit_of(ids), looked_up(), 1, everyone), status::no_victim);
  const std::vector<std::int32_t> odd{0, 1, 2};
  EXPECT_EQ(by_token.divide(visit_of(odd), looked_up(), 2, everyone), status::invalid_visit);
  visit_groups by_expert(shape, visit_split::by_expert);
  EXPECT_EQ(by_expert.divide(visit_of(ids), looked_up(), 0, everyone), status::no_victim);
}

TEST(visit_groups, an_expert_is_counted_once_in_each_visit) {
  visit_groups groups(shape, visit_split::by_token);
  for (int visit = 0; visit < 2; ++visit) {
    ASSERT_EQ(groups.divide(visit_of(ids), looked_up(), 2, everyone), status::ok);
    EXPECT_EQ(groups.counted()[3], 0);
    groups.count(3_expert);
    EXPECT_EQ(groups.counted()[3], 1);
    EXPECT_FALSE(groups.refused(3_expert));
  }
}

}  // namespace
}  // namespace visit_groups_test
