// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/miss_decisions.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/admission/always.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/miss/fetch.hpp"
#include "hotset/paging/hot_set.hpp"
#include "scripted_miss.hpp"

namespace hotset::miss_decisions_test {
namespace {

using support::scripted_miss;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

const geometry shape{.layers = 1, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4};

struct miss_decisions_test : testing::Test {
  miss_decisions_test() {
    for (const expert_id e : {0_expert, 1_expert})
      hot.held.hold(hot.held.reserve_free({0_layer, e}, 0_pool));
  }
  const routing_view& decide(std::vector<std::int32_t> ids) {
    routed = std::move(ids);
    view.experts = routed;
    visit.begin(view, hot.held, plan);
    return decisions.decide(hot, visit, view, plan);
  }
  pool_layout layout = pool_layout::shared(shape, 4).value();
  scripted_miss::script script;
  hot_set<lru, always> hot{layout, {}, {}};
  visit_lookup visit{shape, visit_split::by_token, false, false};
  miss_decisions<scripted_miss> decisions{layout, {&script}, visit};
  visit_plan plan{shape};
  routing_view view;
  std::vector<std::int32_t> routed;
};

TEST_F(miss_decisions_test, asks_about_what_is_absent_and_about_nothing_else) {
  (void)decide({0, 5, 6, 5});
  ASSERT_THAT(script.asked, SizeIs(1));
  ASSERT_THAT(script.asked[0], SizeIs(2));
  EXPECT_EQ(script.asked[0][0].expert, 5);
  EXPECT_EQ(script.asked[0][0].uses, 2U);
  EXPECT_EQ(script.asked[0][0].rank, 1U);
  EXPECT_EQ(script.asked[0][1].expert, 6);
  EXPECT_TRUE(plan.judged());
  EXPECT_FALSE(plan.edited());
  (void)decide({0, 1});
  EXPECT_THAT(script.asked, SizeIs(1)) << "a visit of hits";
  EXPECT_FALSE(plan.judged());
}

TEST_F(miss_decisions_test, what_it_drops_and_replaces_is_looked_up_no_more) {
  script.decisions = {{5_expert, support::dropped}, {6_expert, support::substituted}};
  script.stand_ins = {{6_expert, 1_expert}};
  const auto& left = decide({0, 5, 6, 0});
  EXPECT_THAT(left.experts, ElementsAre(0, -1, 1, 0));
  EXPECT_THAT(plan.routed(), ElementsAre(0, -1, 1, 0));
  EXPECT_THAT(plan.experts(), ElementsAre(0, 1));
  EXPECT_THAT(visit.misses(), IsEmpty());
  EXPECT_TRUE(plan.all_hits());
  EXPECT_TRUE(plan.edited());
  EXPECT_EQ(plan.dropped_count(), 1U);
  EXPECT_EQ(plan.substituted_count(), 1U);
}

TEST_F(miss_decisions_test, what_it_leaves_on_the_host_takes_no_slot) {
  script.decisions = {{5_expert, support::on_host}};
  (void)decide({5, 6});
  EXPECT_THAT(visit.misses(), ElementsAre(1));
  EXPECT_EQ(plan.services()[0], service::host);
  EXPECT_TRUE(decisions.place(hot, visit, plan).fits);
  EXPECT_THAT(plan.fills(), SizeIs(1));
}

TEST_F(miss_decisions_test, hears_of_the_weights_once_when_the_visit_is_committed) {
  const std::vector<float> weights{.75F, .25F};
  view.weights = weights;
  (void)decide({5, 6});
  EXPECT_THAT(script.observed, IsEmpty());
  decisions.settle(hot.ledger, plan);
  ASSERT_THAT(script.observed, SizeIs(1));
  EXPECT_THAT(script.observed[0], ElementsAre(.75F, .25F));
  plan.draft().count.group = 1;
  decisions.settle(hot.ledger, plan);
  EXPECT_THAT(script.observed, SizeIs(1)) << "later groups are of the same visit";
}

TEST_F(miss_decisions_test, a_layout_of_other_precisions_is_refused) {
  geometry two = shape;
  two.expert_bytes = {100};
  two.lower_precisions = {{25}};
  const auto one_pool = pool_layout::shared(two, 4).value();
  ASSERT_TRUE(miss_decisions<scripted_miss>::check(one_pool).has_value());
  EXPECT_EQ(miss_decisions<scripted_miss>::check(one_pool)->message,
            "a layout of 1 precisions for experts of 2, accepted: pools for each");
  const std::vector<std::int64_t> both{2, 2};
  const auto two_pools = pool_layout::shared_by_precision(two, both).value();
  EXPECT_FALSE(miss_decisions<scripted_miss>::check(two_pools).has_value());
  ASSERT_TRUE(miss_decisions<fetch>::check(two_pools).has_value());
  EXPECT_FALSE(miss_decisions<fetch>::check(layout).has_value());
}

TEST_F(miss_decisions_test, a_policy_that_fetches_everything_leaves_the_visit_as_it_is) {
  miss_decisions<fetch> all(layout, {}, visit);
  routed = {5, 6};
  view.experts = routed;
  visit.begin(view, hot.held, plan);
  EXPECT_EQ(&all.decide(hot, visit, view, plan), &view);
  EXPECT_THAT(visit.misses(), SizeIs(2));
  EXPECT_FALSE(plan.judged());
  EXPECT_TRUE(all.place(hot, visit, plan).fits);
}

}  // namespace
}  // namespace hotset::miss_decisions_test
