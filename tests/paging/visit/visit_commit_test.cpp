// SPDX-License-Identifier: Apache-2.0
// The part alone; the order in which policies are told is that of pager_rules_test.cpp.
#include "hotset/paging/visit/visit_commit.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/paging/miss_decisions.hpp"
#include "pager_walk.hpp"

namespace hotset::visit_commit_test {
namespace {

using support::told_lru;
using testing::ElementsAre;

const geometry shape{.layers = 1, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4};

struct visit_commit_test : testing::Test {
  using set = hot_set<told_lru, always>;
  using commits = visit_commit<set, miss_decisions<fetch>>;

  void serve(std::vector<std::int32_t> ids, std::vector<float> weights = {}) {
    routed_ = std::move(ids);
    weights_ = std::move(weights);
    routing_view view;
    view.step = ++step_;
    view.experts = routed_;
    view.weights = weights_;
    visit.begin(view, hot.held, plan);
    if (!visit.misses().empty()) {
      ASSERT_TRUE(demand::place(hot, visit, plan).fits);
    }
    journal.lines.clear();
    commits::run(hot, visit, events, plan);
  }
  told_lru::journal journal;
  set hot{pool_layout::shared(shape, 4).value(), {&journal}, {}};
  visit_lookup visit{shape, visit_split::by_token, true, false};
  visit_events events{shape, 4};
  visit_plan plan{shape};

 private:
  step_id step_ = 0;
  std::vector<std::int32_t> routed_;
  std::vector<float> weights_;
};

TEST_F(visit_commit_test, copies_get_their_slots_and_policies_are_told_in_routed_order) {
  serve({3, 1});
  EXPECT_THAT(journal.lines, ElementsAre("step 1 layer 0", "fill 3", "fill 1"));
  EXPECT_NE(hot.held.row(0_layer)[3], no_slot);
  serve({1, 5});
  EXPECT_THAT(journal.lines, ElementsAre("step 2 layer 0", "hit 1", "fill 5"));
}

TEST_F(visit_commit_test, an_expert_that_comes_twice_is_told_of_where_it_came_last) {
  serve({3, 1, 3, 2});
  EXPECT_THAT(journal.lines, ElementsAre("step 1 layer 0", "fill 1", "fill 3", "fill 2"));
}

TEST_F(visit_commit_test, victims_are_told_of_before_what_takes_their_slots) {
  serve({0, 1, 2, 3});
  serve({4, 5});
  EXPECT_THAT(journal.lines,
              ElementsAre("step 2 layer 0", "evict 0", "evict 1", "fill 4", "fill 5"));
  EXPECT_EQ(hot.ledger.totals.evictions, 2U);
}

TEST_F(visit_commit_test, weights_and_ranks_are_told_to_who_asks) {
  serve({0, 1, 1, 2}, {.5F, .25F, .75F, .125F});
  const auto a = commits::describe(hot.held, plan.draft(), 1);
  EXPECT_EQ(a.key, (expert_key{0_layer, 1_expert}));
  EXPECT_EQ(a.weight, 1.0);
  EXPECT_EQ(a.rank, 0U);
  EXPECT_EQ(a.slot, hot.held.locate({0_layer, 1_expert}));
}

}  // namespace
}  // namespace hotset::visit_commit_test
