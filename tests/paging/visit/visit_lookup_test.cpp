// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/visit/visit_lookup.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::visit_lookup_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4};

struct visit_lookup_test : testing::Test {
  visit_lookup_test() {
    for (const expert_id e : {2_expert, 5_expert})
      held.hold(held.reserve_free({1_layer, e}, 0_pool));
  }
  routing_view visit(const std::vector<std::int32_t>& ids, const std::vector<float>& weights = {}) {
    ids_ = ids;
    weights_ = weights;
    routing_view view;
    view.layer = 1_layer;
    view.step = 3;
    view.experts = ids_;
    view.weights = weights_;
    return view;
  }
  residents held{pool_layout::shared(shape, 4).value()};
  visit_lookup lookup{shape, visit_split::by_token, true, false};
  visit_plan plan{shape};

 private:
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_;
};

TEST_F(visit_lookup_test, finds_the_distinct_experts_their_slots_and_the_misses) {
  lookup.begin(visit({5, 1, 2, 5, 7, 1}), held, plan);
  EXPECT_THAT(plan.experts(), ElementsAre(5, 1, 2, 7));
  EXPECT_THAT(plan.slots(), ElementsAre(held.locate({1_layer, 5_expert}), -1,
                                        held.locate({1_layer, 2_expert}), -1));
  EXPECT_THAT(lookup.misses(), ElementsAre(1, 3));
  EXPECT_THAT(plan.services(),
              ElementsAre(service::hit, service::fill, service::hit, service::fill));
  EXPECT_THAT(plan.tokens(), ElementsAre(0, 1, 2));
  EXPECT_EQ(plan.context().layer, 1);
  EXPECT_EQ(plan.context().step, 3U);
  EXPECT_THAT(std::vector(plan.draft().order.begin(), plan.draft().order.begin() + 4),
              ElementsAre(2, 0, 3, 1));
}

TEST_F(visit_lookup_test, a_visit_of_hits_has_no_misses) {
  lookup.begin(visit({2, 5}), held, plan);
  EXPECT_THAT(lookup.misses(), IsEmpty());
  EXPECT_TRUE(plan.all_hits());
  EXPECT_FALSE(plan.draft().reordered);
}

TEST_F(visit_lookup_test, ids_that_name_no_expert_are_counted_and_left_out) {
  lookup.begin(visit({-1, 2, 99, 2}), held, plan);
  EXPECT_THAT(plan.experts(), ElementsAre(2));
  EXPECT_EQ(plan.ignored_ids(), 2U);
}

TEST_F(visit_lookup_test, weights_are_summed_and_the_best_rank_is_kept) {
  lookup.begin(visit({2, 5, 5, 2}, {.75F, .25F, .5F, .5F}), held, plan);
  EXPECT_THAT(plan.draft().weights, testing::Contains(1.25));
  EXPECT_EQ(plan.draft().weights[1], .75);
  EXPECT_EQ(plan.draft().ranks[0], 0U);
  EXPECT_EQ(plan.draft().ranks[1], 0U);
}

TEST_F(visit_lookup_test, misses_can_be_dropped_and_added) {
  lookup.begin(visit({0, 1, 2, 3}), held, plan);
  std::vector<std::size_t> positions;
  lookup.keep_misses([&](std::size_t j, std::uint32_t at) {
    positions.push_back(j);
    return at != 1;
  });
  EXPECT_THAT(positions, ElementsAre(0, 1, 2));
  EXPECT_THAT(lookup.misses(), ElementsAre(0, 3));
  lookup.add_miss(2);
  lookup.sort_misses();
  EXPECT_THAT(lookup.misses(), ElementsAre(0, 2, 3));
}

TEST_F(visit_lookup_test, refuses_what_it_could_not_plan) {
  EXPECT_EQ(lookup.check(visit({0, 1}), plan), status::ok);
  EXPECT_EQ(lookup.check(visit({0, 1, 2}), plan), status::invalid_visit) << "no whole tokens";
  EXPECT_EQ(lookup.check(visit({0, 1}, {.5F}), plan), status::invalid_visit);
  EXPECT_EQ(lookup.check(visit(std::vector<std::int32_t>(10, 0)), plan), status::visit_too_large);
  auto elsewhere = visit({0, 1});
  elsewhere.layer = 2_layer;
  EXPECT_EQ(lookup.check(elsewhere, plan), status::invalid_visit);
  const visit_plan other(geometry{.layers = 1, .experts = 4, .top_k = 1});
  EXPECT_EQ(lookup.check(visit({0, 1}), other), status::invalid_argument);
}

TEST_F(visit_lookup_test, a_group_keeps_what_was_decided_of_the_whole_visit) {
  const auto view = visit({0, 1, 3, 4, -1, 6});
  lookup.begin(view, held, plan);
  plan.draft().leave_on_host(0);  // expert 0 is refused a slot
  plan.draft().count.dropped = 2;
  plan.draft().edited = true;
  lookup.keep_misses([](std::size_t, std::uint32_t at) { return at != 0; });
  ASSERT_EQ(lookup.divide(view, held, plan, 3), status::ok);
  ASSERT_EQ(lookup.groups().count(), 2U);
  lookup.begin_group(0, held, plan);
  EXPECT_THAT(plan.tokens(), ElementsAre(0, 2)) << "the third token brings one expert only";
  EXPECT_THAT(plan.experts(), ElementsAre(0, 1, 6));
  EXPECT_EQ(plan.services()[0], service::host) << "refused in all groups";
  EXPECT_THAT(lookup.misses(), ElementsAre(1, 2));
  EXPECT_EQ(plan.ignored_ids(), 1U);
  EXPECT_EQ(plan.dropped_count(), 2U);
  EXPECT_TRUE(plan.edited());
  lookup.begin_group(1, held, plan);
  EXPECT_THAT(plan.tokens(), ElementsAre(1));
  EXPECT_THAT(lookup.misses(), ElementsAre(0, 1));
  EXPECT_FALSE(plan.more());
  EXPECT_THAT(lookup.counted(plan), testing::Each(0));
  lookup.count(plan);
  EXPECT_EQ(std::ranges::count(lookup.counted(plan), 1), std::ssize(plan.experts()));
  for (const auto e : plan.experts()) EXPECT_EQ(lookup.counted(plan)[index_of(e)], 1);
}

}  // namespace
}  // namespace hotset::visit_lookup_test
