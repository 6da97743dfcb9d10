// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/visit/visit_ledger.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "hotset/eviction/lru.hpp"
#include "hotset/paging/pager.hpp"

namespace visit_ledger_test {
namespace {

using namespace hotset;

/// Visits of one layer in steps 0, 1, 2, ... of a pager with two slots.
pager_stats after(const std::vector<std::vector<std::int32_t>>& visits) {
  const geometry shape{.layers = 1, .experts = 8, .top_k = 2};
  pager<lru> cache({.layout = pool_layout::shared(shape, 2).value()});
  auto plan = cache.make_plan();
  step_id step = 0;
  for (const auto& routed : visits) {
    routing_view view;
    view.step = step++;
    view.experts = routed;
    EXPECT_EQ(cache.plan(view, plan), status::ok);
    EXPECT_EQ(cache.commit(plan), status::ok);
  }
  return cache.stats();
}

TEST(visit_ledger, the_first_miss_of_a_key_is_compulsory_and_later_ones_are_not) {
  const auto stats = after({{0, 1}, {2, 3}, {0, 1}});
  EXPECT_EQ(stats.misses, 6U);
  EXPECT_EQ(stats.compulsory_misses, 4U);
  EXPECT_EQ(stats.evictions, 4U);
}

TEST(visit_ledger, a_step_is_free_of_misses_only_if_all_of_it_hits) {
  const auto stats = after({{0, 1}, {0, 1}, {0, 2}, {2, 0}});
  EXPECT_EQ(stats.steps, 4U);
  EXPECT_EQ(stats.steps_with_miss, 2U);
  EXPECT_EQ(stats.miss_free_steps(), 2U);
}

TEST(visit_ledger, a_miss_collides_if_its_key_left_in_the_same_step) {
  visit_ledger ledger({.layers = 1, .experts = 8, .top_k = 2});
  visit_plan plan({.layers = 1, .experts = 8, .top_k = 2});
  ledger.commit(plan);  // an empty visit of step 0
  EXPECT_EQ(ledger.step(), 0U);
  ledger.evicted({0_layer, 3_expert});
  EXPECT_EQ(ledger.stats().evictions, 1U);
  EXPECT_EQ(ledger.stats().visits, 1U);
  EXPECT_EQ(ledger.stats().steps, 1U);
}

// The step after it is 0: every key would seem to have been evicted in it.
TEST(visit_ledger, the_last_step_of_all_has_no_evictions_but_its_own) {
  constexpr step_id last = ~step_id{0};
  const geometry shape{.layers = 1, .experts = 8, .top_k = 2};
  pager<lru> pages({.layout = pool_layout::shared(shape, 2).value()});
  auto plan = pages.make_plan();
  for (const auto& routed : {std::vector<std::int32_t>{0, 1}, {2, 3}, {0, 1}}) {
    routing_view view;
    view.step = last;
    view.experts = routed;
    ASSERT_EQ(pages.plan(view, plan), status::ok);
    ASSERT_EQ(pages.commit(plan), status::ok);
  }
  EXPECT_EQ(pages.stats().compulsory_misses, 4U);
  EXPECT_EQ(pages.stats().collision_misses, 2U);
}

TEST(visit_ledger, sums_agree_with_their_parts) {
  const auto stats = after({{0, 1}, {1, 2}, {-1, 2}, {5, 5}});
  EXPECT_EQ(stats.hits + stats.misses, stats.accesses);
  EXPECT_EQ(stats.by_kind[0].accesses, stats.accesses);
  EXPECT_EQ(stats.per_layer[0].hits, stats.hits);
  EXPECT_EQ(stats.ignored_ids, 1U);
  EXPECT_EQ(stats.accesses, 6U);
}

}  // namespace
}  // namespace visit_ledger_test
