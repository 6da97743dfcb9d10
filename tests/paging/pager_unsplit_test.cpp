// SPDX-License-Identifier: Apache-2.0
// Visits that do not fit and may not be divided: refused, or partly left on the host.

#include <algorithm>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/eviction/lru.hpp"
#include "hotset/miss/fetch_lowest.hpp"
#include "pager_walk.hpp"
#include "random_source.hpp"

namespace hotset::pager_unsplit_test {
namespace {

using support::pager_walk;
using support::picky;
using support::told_lru;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 6};

pool_layout shared(std::int64_t slots) { return pool_layout::shared(shape, slots).value(); }

TEST(pager_unsplit, a_visit_that_does_not_fit_is_refused_without_effect) {
  told_lru::journal told;
  pager_walk<pager<told_lru>> w(
      {.layout = shared(3), .eviction = {&told}, .split = visit_split::refuse});
  w.visit(0, 0, {0, 1});
  const auto hash = w.decisions.decision_hash();
  const auto before = w.decisions.residents();
  const auto lines = told.lines;
  ASSERT_EQ(w.try_plan(1, 0, {0, 1, 2, 3}), status::does_not_fit);
  EXPECT_EQ(w.decisions.commit(w.plan), status::no_plan);
  EXPECT_EQ(w.decisions.plan_next(w.plan), status::no_plan);
  EXPECT_EQ(w.decisions.decision_hash(), hash);
  EXPECT_EQ(w.decisions.residents(), before);
  EXPECT_EQ(told.lines, lines);
  EXPECT_EQ(w.stats().visits, 1U);
  EXPECT_EQ(w.stats().misses, 2U);
  support::expect_consistent(w.decisions);
  // Half of the visit is served.
  w.visit(1, 0, {0, 1});
  w.visit(1, 0, {2, 3});
  EXPECT_EQ(w.stats().visits, 3U);
  EXPECT_EQ(w.stats().split_visits, 0U);
}

TEST(pager_unsplit, a_visit_that_fits_is_served_as_usual) {
  for (const auto split : {visit_split::refuse, visit_split::leave_rest}) {
    pager_walk w({.layout = shared(4), .split = split});
    EXPECT_EQ(w.visit(0, 0, {0, 1, 2, 3, 1, 2}), 4U);
    EXPECT_EQ(w.plan.host_count(), 0U);
    EXPECT_TRUE(w.decisions.is_exact());
    w.visit(1, 0, {3, 2, 1, 0});
    EXPECT_EQ(w.stats().hits, 4U);
  }
}

TEST(pager_unsplit, slots_that_somebody_reads_are_no_room) {
  pager_walk w({.layout = shared(4), .split = visit_split::refuse});
  w.visit(0, 1, {6, 7});
  const auto pin = w.decisions.pin(w.decisions.locate({1_layer, 6_expert}));
  EXPECT_EQ(w.try_plan(1, 0, {0, 1, 2, 3}), status::does_not_fit);
  w.decisions.unpin(pin);
  EXPECT_EQ(w.try_plan(1, 0, {0, 1, 2, 3}), status::ok);
}

TEST(pager_unsplit, the_rest_that_the_fewest_places_name_stays_on_the_host) {
  pager_walk w({.layout = shared(3), .split = visit_split::leave_rest});
  ASSERT_EQ(w.try_plan(0, 0, {0, 1, 2, 1, 3, 2}), status::ok);
  EXPECT_THAT(w.plan.experts(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(w.plan.services(),
              ElementsAre(service::fill, service::fill, service::fill, service::host))
      << "of those that are named once the later one";
  EXPECT_EQ(w.plan.slots()[3], no_slot);
  EXPECT_EQ(w.plan.groups(), 1U);
  EXPECT_FALSE(w.plan.more());
  EXPECT_THAT(w.plan.tokens(), ElementsAre(0, 1, 2));
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  support::expect_consistent(w.decisions);
  const auto s = w.stats();
  EXPECT_EQ(s.misses, 4U);
  EXPECT_EQ(s.fills, 3U);
  EXPECT_EQ(s.bypasses, 1U);
  EXPECT_EQ(s.split_visits, 0U);
}

TEST(pager_unsplit, residents_of_the_visit_are_no_victims_of_its_rest) {
  told_lru::journal told;
  pager_walk<pager<told_lru>> w(
      {.layout = shared(3), .eviction = {&told}, .split = visit_split::leave_rest});
  w.visit(0, 0, {4, 5});
  told.lines.clear();
  w.visit(1, 0, {0, 1, 5, 1, 4, 2});
  EXPECT_THAT(w.plan.experts(), ElementsAre(0, 1, 5, 4, 2));
  EXPECT_THAT(w.plan.services(),
              ElementsAre(service::host, service::fill, service::hit, service::hit, service::host));
  EXPECT_THAT(told.lines,
              ElementsAre("step 1 layer 0", "hit 5", "fill 1", "hit 4", "bypass 0", "bypass 2"))
      << "slots in the order of last use, then what has none";
}

TEST(pager_unsplit, with_no_slot_to_be_had_all_misses_stay_on_the_host) {
  pager_walk w({.layout = shared(2), .split = visit_split::leave_rest});
  w.visit(0, 0, {0, 1});
  std::vector<slot_pin> pins;
  for (const auto s : each<slot_id>(2)) pins.push_back(w.decisions.pin(s));
  ASSERT_EQ(w.try_plan(1, 0, {0, 5, 6, 7}), status::ok);
  EXPECT_THAT(w.plan.services(),
              ElementsAre(service::hit, service::host, service::host, service::host));
  EXPECT_THAT(w.plan.fills(), IsEmpty());
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  for (const auto pin : pins) w.decisions.unpin(pin);
  support::expect_consistent(w.decisions);
}

TEST(pager_unsplit, refused_experts_are_not_counted_as_the_rest) {
  pager_walk<pager<lru, picky>> w(
      {.layout = shared(2), .admission = {{7_expert}}, .split = visit_split::leave_rest});
  w.visit(0, 0, {0, 7, 1, 0, 2, 1});
  EXPECT_THAT(w.plan.services(),
              ElementsAre(service::fill, service::host, service::fill, service::host));
  EXPECT_EQ(w.stats().bypasses, 2U);
  EXPECT_EQ(w.stats().misses, 4U);
}

TEST(pager_unsplit, low_copies_are_used_as_they_are_before_anything_stays_on_the_host) {
  auto of_two = shape;
  of_two.expert_bytes = {40};
  of_two.lower_precisions = {{20}};
  const auto layout =
      pool_layout::shared_by_precision(of_two, std::vector<std::int64_t>{1, 2}).value();
  pager_walk<pager<lru, always, fetch_lowest>> w(
      {.layout = layout, .split = visit_split::leave_rest});
  ASSERT_EQ(w.try_plan(0, 0, {0, 1, 2, 3}), status::ok);
  EXPECT_EQ(w.plan.host_count(), 1U);
  EXPECT_EQ(w.plan.fills().size(), 3U);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  ASSERT_EQ(w.try_plan(1, 0, {0, 1, 2, 4}), status::ok);
  EXPECT_EQ(w.plan.host_count(), 1U);
  EXPECT_THAT(w.plan.fills(), IsEmpty());
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  support::expect_consistent(w.decisions);
}

// The rule without optimisation, over random visits.
TEST(pager_unsplit, the_most_used_experts_that_fit_are_filled) {
  support::random_source random(7);
  pager_walk w({.layout = shared(5), .split = visit_split::leave_rest});
  std::size_t left_anything = 0;
  for (step_id step = 0; step < 2000; ++step) {
    std::vector<std::int32_t> ids(2 * (1 + random.below(6)));
    for (auto& id : ids) id = static_cast<std::int32_t>(random.below(8));
    std::map<expert_id, int> uses;
    for (const auto id : ids) ++uses[expert_id{id}];
    const auto layer = static_cast<layer_id>(random.below(2));
    const auto resident = w.placed(layer);
    w.visit(step, layer, ids);
    int least_filled = 100;
    int most_left = 0;
    std::size_t hits = 0;
    std::size_t fills = 0;
    for (std::size_t i = 0; i < w.plan.experts().size(); ++i) {
      const auto e = w.plan.experts()[i];
      switch (w.plan.services()[i]) {
        case service::hit: ++hits; break;
        case service::fill:
          least_filled = std::min(least_filled, uses[e]);
          ++fills;
          break;
        case service::host: most_left = std::max(most_left, uses[e]); break;
      }
      ASSERT_EQ(w.plan.services()[i] == service::hit, resident.contains(e));
    }
    ASSERT_LE(most_left, least_filled);
    ASSERT_EQ(fills, std::min(uses.size() - hits, 5 - hits));
    left_anything += most_left > 0 ? 1U : 0U;
  }
  EXPECT_GT(left_anything, 500U);
}

}  // namespace
}  // namespace hotset::pager_unsplit_test
