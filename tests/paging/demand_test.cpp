// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/demand.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/paging/hot_set.hpp"
#include "pager_walk.hpp"
#include "single_uses.hpp"

namespace hotset::demand_test {
namespace {

using support::picky;
using testing::ElementsAre;
using testing::IsEmpty;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4};

template <class Admission = always>
struct demand_of {
  explicit demand_of(std::int64_t slots, typename Admission::config admission = {})
      : hot(pool_layout::shared(shape, slots).value(), {}, admission) {}
  void hold(expert_key key) {
    expert_use a;
    a.key = key;
    const auto f = hot.held.reserve_free(key, 0_pool);
    hot.held.hold(f);
    a.slot = f.slot;
    support::bring(hot.eviction, a);
  }
  void look_up(std::vector<std::int32_t> ids) {
    routed = std::move(ids);
    routing_view view;
    view.experts = routed;
    visit.begin(view, hot.held, plan);
  }
  std::vector<expert_key> victims() const {
    std::vector<expert_key> out;
    for (const auto& f : plan.fills()) out.push_back(f.victim);
    return out;
  }
  hot_set<lru, Admission> hot;
  visit_lookup visit{shape, visit_split::by_token, false, false};
  visit_plan plan{shape};
  std::vector<std::int32_t> routed;
};

TEST(demand, takes_free_slots_first_and_victims_for_the_rest) {
  demand_of<> d(3);
  d.hold({1_layer, 0_expert});
  d.hold({1_layer, 1_expert});
  d.look_up({4, 5});
  EXPECT_TRUE(demand::place(d.hot, d.visit, d.plan).fits);
  EXPECT_THAT(d.victims(), ElementsAre(no_key, expert_key{1_layer, 0_expert}));
  EXPECT_EQ(d.hot.held.row(1_layer)[0], no_slot) << "the victim is off the map";
  EXPECT_EQ(d.plan.slots()[1], d.plan.fills()[1].slot);
}

TEST(demand, never_takes_a_slot_of_the_visit_itself) {
  demand_of<> d(3);
  d.hold({0_layer, 4_expert});  // first in the order, and of the visit
  d.hold({1_layer, 0_expert});
  d.hold({1_layer, 1_expert});
  d.look_up({4, 5});
  EXPECT_TRUE(demand::place(d.hot, d.visit, d.plan).fits);
  EXPECT_THAT(d.victims(), ElementsAre(expert_key{1_layer, 0_expert}));
  EXPECT_EQ(d.hot.held.evictable().count(), 3U) << "nothing stays masked";
}

TEST(demand, says_how_much_room_there_is_where_it_does_not_suffice) {
  demand_of<> d(4);
  for (const expert_id e : {0_expert, 1_expert, 2_expert}) d.hold({0_layer, e});
  (void)d.hot.held.pin(d.hot.held.locate({0_layer, 2_expert}));
  d.look_up({0, 1, 4, 5, 6, 7});
  const auto placed = demand::place(d.hot, d.visit, d.plan);
  EXPECT_FALSE(placed.fits);
  EXPECT_EQ(placed.room, 3U) << "one is free and two are the visit's own; the fourth is read";
  EXPECT_THAT(d.plan.fills(), IsEmpty());
  EXPECT_EQ(d.hot.held.free_count(0_pool), 1U) << "nothing was reserved";
}

TEST(admission_round, leaves_what_is_refused_on_the_host) {
  demand_of<picky> d(4, {{5_expert, 6_expert}});
  d.look_up({4, 5, 6, 7});
  admission_round<picky> round(d.visit.capacity());
  round.refuse(d.hot, d.visit, d.plan, [&](std::uint32_t at) {
    expert_use a;
    a.key = {0_layer, d.plan.experts()[at]};
    return a;
  });
  EXPECT_THAT(d.visit.misses(), ElementsAre(0, 3));
  EXPECT_THAT(d.plan.services(),
              ElementsAre(service::fill, service::host, service::host, service::fill));
  EXPECT_EQ(d.plan.host_count(), 2U);
}

}  // namespace
}  // namespace hotset::demand_test
