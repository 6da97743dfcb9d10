// SPDX-License-Identifier: Apache-2.0
// The part alone; what pagers make of it is in pager_prefetch_test.cpp and pager_guard_test.cpp.
#include "hotset/paging/speculation.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/admission/always.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/hot_set.hpp"
#include "single_uses.hpp"

namespace hotset::speculation_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

const geometry shape{.layers = 3, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4};

struct speculation_test : testing::Test {
  explicit speculation_test(std::int64_t slots = 5)
      : hot(pool_layout::shared(shape, slots).value(), {}, {}) {}
  void hold(expert_key key) {
    expert_use a;
    a.key = key;
    const auto f = hot.held.reserve_free(key, 0_pool);
    hot.held.hold(f);
    a.slot = f.slot;
    support::bring(hot.eviction, a);
  }
  std::size_t plan_for(const std::vector<prefetch_request>& requests,
                       const speculation::terms& how = {}) {
    return part.plan(hot, {}, requests, how, plan);
  }
  std::vector<expert_key> keys() const {
    std::vector<expert_key> out;
    for (const auto& f : plan.fills()) out.push_back(f.key);
    return out;
  }
  hot_set<lru, always> hot;
  speculation part{shape, prefetch_guard::named, 8};
  visit_plan plan{shape};
};

TEST_F(speculation_test, leaves_a_token_room_and_defers_the_rest) {
  EXPECT_EQ(plan_for({{{1_layer, 0_expert}, 1, 1},
                      {{1_layer, 1_expert}, 1, 1},
                      {{1_layer, 2_expert}, 1, 1},
                      {{1_layer, 3_expert}, 1, 1}}),
            4U);
  EXPECT_THAT(keys(), ElementsAre(expert_key{1_layer, 0_expert}, expert_key{1_layer, 1_expert},
                                  expert_key{1_layer, 2_expert}));
  EXPECT_THAT(plan.deferred(), ElementsAre(3));
}

TEST_F(speculation_test, the_slots_of_a_divided_visit_are_not_to_be_had) {
  EXPECT_EQ(plan_for({{{1_layer, 0_expert}, 1, 1}}, {.divided = 0_layer}), 1U);
  EXPECT_THAT(keys(), IsEmpty());
  EXPECT_THAT(plan.deferred(), ElementsAre(0));
}

TEST_F(speculation_test, what_is_resident_is_noted_and_spared) {
  for (const auto e : each<expert_id>(5)) hold({0_layer, e});
  plan_for({{{0_layer, 0_expert}, 1, 1}, {{1_layer, 0_expert}, 1, 1}});
  ASSERT_THAT(plan.fills(), SizeIs(1));
  EXPECT_EQ(plan.fills()[0].victim, (expert_key{0_layer, 1_expert}))
      << "the first one was asked for";
  speculation::commit(hot, plan);
  EXPECT_EQ(hot.requests.slots().size(), 2U);
  EXPECT_EQ(hot.held.evictable().count(), 4U) << "nothing stays masked";
}

TEST_F(speculation_test, only_the_first_copies_are_made_and_the_victims_of_the_others_stay) {
  for (const auto e : each<expert_id>(5)) hold({0_layer, e});
  plan_for({{{1_layer, 0_expert}, 1, 1}, {{1_layer, 1_expert}, 1, 1}});
  speculation::keep_first(hot, plan, 1);
  EXPECT_THAT(keys(), ElementsAre(expert_key{1_layer, 0_expert}));
  EXPECT_THAT(plan.deferred(), ElementsAre(1));
  EXPECT_NE(hot.held.locate({0_layer, 1_expert}), no_slot);
}

TEST_F(speculation_test, a_start_takes_free_slots_only_and_is_no_prediction) {
  for (const auto e : each<expert_id>(4)) hold({0_layer, e});
  const std::vector<expert_key> known{{2_layer, 0_expert}, {2_layer, 1_expert}};
  EXPECT_EQ(part.plan(hot, {}, part.start_with(known), {.evicts = false}, plan), 2U);
  EXPECT_THAT(keys(), ElementsAre(expert_key{2_layer, 0_expert}));
  EXPECT_FALSE(plan.fills()[0].speculative);
  speculation::commit(hot, plan);
  EXPECT_EQ(hot.held.unused_prefetches(), 0U);
  EXPECT_EQ(hot.ledger.totals.bytes_prefetched, 0U);
  EXPECT_EQ(hot.ledger.totals.refused_prefetches, 0U);
}

TEST_F(speculation_test, a_visit_that_uses_a_late_copy_waits_for_it_and_ends_its_request) {
  plan_for({{{1_layer, 0_expert}, 1, 1}});
  speculation::commit(hot, plan);
  const auto slot = hot.held.locate({1_layer, 0_expert});
  auto& draft = plan.draft();
  draft.reset();
  draft.context.layer = 1_layer;
  draft.context.step = 1;
  draft.count.distinct = 1;
  draft.slots[0] = slot;
  speculation::meet(hot, plan);
  EXPECT_THAT(plan.late_slots(), ElementsAre(slot));
  EXPECT_EQ(hot.held.row(1_layer)[0], slot);
  EXPECT_EQ(hot.ledger.totals.late_prefetches, 1U);
  EXPECT_EQ(hot.ledger.totals.prefetch_hits, 1U);
  EXPECT_TRUE(hot.requests.empty());
  EXPECT_FALSE(hot.speculating());
}

}  // namespace
}  // namespace hotset::speculation_test
