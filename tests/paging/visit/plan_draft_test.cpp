// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/visit/plan_draft.hpp"

#include <gtest/gtest.h>

namespace hotset::plan_draft_test {
namespace {

const geometry shape{.layers = 2, .experts = 8, .top_k = 3};

TEST(plan_draft, has_room_for_a_visits_distinct_experts) {
  EXPECT_EQ(plan_draft(shape).capacity, 3U);
  EXPECT_EQ(plan_draft::capacity_for(
                geometry{.layers = 2, .experts = 8, .top_k = 3, .max_tokens_per_visit = 5}),
            8U);
}

TEST(plan_draft, an_expert_that_is_left_on_the_host_makes_the_others_hits_by_name) {
  plan_draft draft(shape);
  draft.count.distinct = 3;
  draft.slots = {4_slot, 5_slot, 6_slot};
  draft.services = {service::fill, service::fill, service::fill};  // of an earlier visit
  draft.leave_on_host(1);
  EXPECT_FALSE(draft.all_hits);
  EXPECT_EQ(draft.services[0], service::hit);
  EXPECT_EQ(draft.services[1], service::host);
  EXPECT_EQ(draft.services[2], service::hit);
  EXPECT_EQ(draft.slots[1], no_slot);
  EXPECT_EQ(draft.count.host, 1U);
}

TEST(plan_draft, services_are_written_once) {
  plan_draft draft(shape);
  draft.count.distinct = 2;
  draft.write_services();
  draft.services[0] = service::fill;
  draft.write_services();
  EXPECT_EQ(draft.services[0], service::fill);
}

TEST(plan_draft, keeps_nothing_of_the_visit_before_when_it_is_reset) {
  plan_draft draft(shape);
  draft.count.fills = 2;
  draft.count.groups = 3;
  draft.all_hits = false;
  draft.reordered = draft.expert_wise = draft.speculative = draft.judged = draft.edited = true;
  draft.reset();
  EXPECT_EQ(draft.count.fills, 0U);
  EXPECT_EQ(draft.count.groups, 1U);
  EXPECT_TRUE(draft.all_hits);
  EXPECT_FALSE(draft.reordered || draft.expert_wise || draft.speculative || draft.judged ||
               draft.edited);
}

}  // namespace
}  // namespace hotset::plan_draft_test
