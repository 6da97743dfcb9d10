// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/precision_placement.hpp"

#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/admission/always.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/paging/hot_set.hpp"
#include "single_uses.hpp"

namespace hotset::precision_placement_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using wish = precision_placement::wish;

geometry three_precisions() {
  geometry shape{
      .layers = 1, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4, .expert_bytes = {100}};
  shape.lower_precisions = {{50}, {25}};
  return shape;
}
const geometry shape = three_precisions();

struct precision_placement_test : testing::Test {
  static pool_layout slots(const std::vector<std::int64_t>& by_precision) {
    return pool_layout::shared_by_precision(shape, by_precision).value();
  }
  void start(const std::vector<std::int64_t>& by_precision) {
    hot.emplace(slots(by_precision), lru::config{}, always::config{});
    placer.emplace(slots(by_precision), visit.capacity());
  }
  void hold(expert_id e, precision_id precision) {
    expert_use a;
    a.key = {0_layer, e};
    a.pool = pool_id{number(precision)};
    const auto f = hot->held.reserve_free(a.key, pool_id{number(precision)});
    hot->held.hold(f);
    a.slot = f.slot;
    support::bring(hot->eviction, a);
  }
  placement place(std::vector<std::int32_t> ids) {
    routed = std::move(ids);
    routing_view view;
    view.experts = routed;
    visit.begin(view, hot->held, plan);
    for (const auto e : upgraded) {
      const auto experts = plan.experts();
      const auto at = static_cast<std::uint32_t>(std::ranges::find(experts, e) - experts.begin());
      plan.draft().write_services();
      plan.draft().services[at] = service::fill;
      visit.add_miss(at);
    }
    visit.sort_misses();
    return placer->place(*hot, visit, plan, [this](expert_id e) { return wishes[e]; });
  }
  std::map<expert_id, precision_id> given() const {
    std::map<expert_id, precision_id> out;
    for (const auto& f : plan.fills()) out[f.key.expert] = f.precision;
    return out;
  }
  std::optional<hot_set<lru, always>> hot;
  std::optional<precision_placement> placer;
  visit_lookup visit{shape, visit_split::by_token, false, false};
  visit_plan plan{shape};
  std::vector<std::int32_t> routed;
  std::vector<expert_id> upgraded;  ///< resident ones that are wanted in a better precision
  std::map<expert_id, wish> wishes;
};

TEST_F(precision_placement_test, the_heaviest_choose_first_and_the_others_go_down) {
  start({1, 1, 1});
  wishes = {{0_expert, {.1F, 0_precision}},
            {1_expert, {.9F, 0_precision}},
            {2_expert, {.5F, 0_precision}}};
  EXPECT_TRUE(place({0, 1, 2, 2}).fits);
  EXPECT_THAT(given(),
              ElementsAre(std::pair{0_expert, 2_precision}, std::pair{1_expert, 0_precision},
                          std::pair{2_expert, 1_precision}));
}

TEST_F(precision_placement_test, where_no_lower_one_has_room_a_higher_one_is_taken) {
  start({2, 1, 1});
  wishes = {{0_expert, {.9F, 2_precision}}, {1_expert, {.5F, 2_precision}}};
  EXPECT_TRUE(place({0, 1}).fits);
  EXPECT_THAT(given(),
              ElementsAre(std::pair{0_expert, 2_precision}, std::pair{1_expert, 1_precision}));
}

TEST_F(precision_placement_test, an_upgrade_that_would_be_none_uses_the_copy_there_is) {
  start({1, 1, 1});
  hold(0_expert, 1_precision);
  hold(5_expert, 0_precision);
  (void)hot->held.pin(hot->held.locate({0_layer, 5_expert}));  // no room above
  upgraded = {0_expert};
  wishes = {{0_expert, {.9F, 0_precision}}};
  EXPECT_TRUE(place({0, 0}).fits);
  EXPECT_THAT(plan.fills(), IsEmpty());
  EXPECT_TRUE(plan.all_hits());
  EXPECT_EQ(plan.services()[0], service::hit);
}

TEST_F(precision_placement_test, a_visit_that_does_not_fit_gives_up_its_upgrades_first) {
  start({1, 1, 1});
  hold(0_expert, 2_precision);
  upgraded = {0_expert};
  wishes = {{0_expert, {.9F, 0_precision}},
            {1_expert, {.5F, 0_precision}},
            {2_expert, {.4F, 0_precision}}};
  EXPECT_TRUE(place({0, 1, 2, 2}).fits);
  EXPECT_THAT(given(),
              ElementsAre(std::pair{1_expert, 0_precision}, std::pair{2_expert, 1_precision}));
  EXPECT_EQ(plan.slots()[0], hot->held.locate({0_layer, 0_expert}));
}

TEST_F(precision_placement_test, says_how_much_room_there_is_of_all_precisions) {
  start({1, 1, 1});
  hold(0_expert, 2_precision);
  const auto placed = place({0, 1, 2, 3});
  EXPECT_FALSE(placed.fits);
  EXPECT_EQ(placed.room, 3U) << "its own resident's slot among them";
  EXPECT_THAT(plan.fills(), IsEmpty());
}

}  // namespace
}  // namespace hotset::precision_placement_test
