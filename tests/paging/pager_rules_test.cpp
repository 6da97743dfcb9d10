// SPDX-License-Identifier: Apache-2.0
// The five rules of the event-atomic visit, each checked by hand.

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/admission/always.hpp"
#include "hotset/eviction/gate_score.hpp"
#include "hotset/eviction/lfu.hpp"
#include "pager_walk.hpp"

namespace hotset::pager_rules_test {
namespace {

using support::pager_walk;
using support::told_lru;
using testing::ElementsAre;
using testing::IsEmpty;

pool_layout shared(std::int64_t slots, std::int32_t layers = 1, std::int32_t tokens = 4) {
  return pool_layout::shared(
             {.layers = layers, .experts = 8, .top_k = 2, .max_tokens_per_visit = tokens}, slots)
      .value();
}

TEST(pager_rules, the_event_atomic_toy_trace_has_12_hits_and_18_misses) {
  const geometry shape{.layers = 3, .experts = 4, .top_k = 2};
  pager_walk w({.layout = pool_layout::per_layer(shape, 2).value()});
  const std::vector<std::vector<std::int32_t>> steps{{0, 1}, {0, 2}, {0, 1}, {0, 3}, {0, 1}};
  for (step_id step = 0; step < steps.size(); ++step)
    for (const auto layer : each<layer_id>(3)) {
      const auto before = w.stats();
      w.visit(step, layer, steps[step]);
      EXPECT_EQ(w.stats().hits - before.hits, step == 0 ? 0U : 1U);
      EXPECT_EQ(w.stats().misses - before.misses, step == 0 ? 2U : 1U);
    }
  EXPECT_EQ(w.stats().accesses, 30U);
  EXPECT_EQ(w.stats().hits, 12U);
  EXPECT_EQ(w.stats().misses, 18U);
  EXPECT_EQ(w.stats().fills, 18U);
  EXPECT_EQ(w.stats().compulsory_misses, 12U);
  EXPECT_EQ(w.stats().collision_misses, 0U);
  EXPECT_EQ(w.stats().evictions, 12U);
  EXPECT_EQ(w.stats().steps, 5U);
  EXPECT_EQ(w.stats().miss_free_steps(), 0U);
}

// Rule 1; hazards 5 (duplicate ids) and 6 (ids out of range).
TEST(pager_rules, ids_are_deduplicated_and_invalid_ids_are_counted) {
  pager_walk w({.layout = shared(4), .refuse_unknown_ids = false});
  constexpr auto lowest = std::numeric_limits<std::int32_t>::min();
  w.visit(0, 0, {3, 3, -1, 3, 8, 5, lowest, 3});
  EXPECT_THAT(w.plan.experts(), ElementsAre(3, 5));
  EXPECT_EQ(w.plan.fills().size(), 2U);
  EXPECT_NE(w.plan.slots()[0], w.plan.slots()[1]) << "no two experts share a slot";
  EXPECT_EQ(w.plan.ignored_ids(), 3U);
  EXPECT_EQ(w.stats().ignored_ids, 3U);
  EXPECT_EQ(w.stats().accesses, 2U);
}

// Hazard 6: a kernel indexes the row with ids of routed().
TEST(pager_rules, an_id_that_is_no_expert_is_minus_one_for_the_kernel) {
  constexpr auto lowest = std::numeric_limits<std::int32_t>::min();
  constexpr auto highest = std::numeric_limits<std::int32_t>::max();
  pager_walk w({.layout = shared(8), .refuse_unknown_ids = false});
  w.visit(0, 0, {3, 8, lowest, 5, -1, highest});
  EXPECT_THAT(w.plan.routed(), ElementsAre(3, -1, -1, 5, -1, -1));
  EXPECT_FALSE(w.plan.edited()) << "no miss policy changed them";
  EXPECT_EQ(w.plan.ignored_ids(), 4U);
  w.visit(1, 0, {3, 5, -1, 5});
  EXPECT_THAT(w.plan.routed(), ElementsAre(3, 5, -1, 5)) << "the view's own again";
}
TEST(pager_rules, an_id_that_is_no_expert_is_minus_one_in_every_group) {
  pager_walk w({.layout = shared(2), .refuse_unknown_ids = false});
  ASSERT_EQ(w.try_plan(0, 0, {0, 1, 2, 99, 3, 4}), status::ok);
  ASSERT_EQ(w.plan.groups(), 3U);
  for (std::size_t group = 0; group < 3; ++group) {
    const auto planned = group == 0 ? status::ok : w.decisions.plan_next(w.plan);
    ASSERT_EQ(planned, status::ok);
    EXPECT_THAT(w.plan.routed(), ElementsAre(0, 1, 2, -1, 3, 4));
    EXPECT_EQ(w.plan.ignored_ids(), 1U);
    ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  }
}
TEST(pager_rules, a_pager_that_checks_ids_refuses_an_unknown_one_without_effect) {
  pager_walk w({.layout = shared(4), .refuse_unknown_ids = true});
  w.visit(0, 0, {0, 1});
  const auto hash = w.decisions.decision_hash();
  for (const auto unknown : {8, 1000000, -2, std::numeric_limits<std::int32_t>::min()}) {
    EXPECT_EQ(w.try_plan(1, 0, {2, unknown}), status::invalid_visit) << unknown;
    EXPECT_EQ(w.decisions.decision_hash(), hash);
    EXPECT_EQ(w.stats().accesses, 2U);
  }
  w.visit(1, 0, {2, -1});
  EXPECT_EQ(w.stats().ignored_ids, 1U);
}
TEST(pager_rules, ids_are_checked_if_preconditions_are) {
  EXPECT_EQ(pager<lru>::config{}.refuse_unknown_ids, HOTSET_CHECKS != 0);
}

// Rule 2: judged access by access, 2 would evict 0 before the lookup of 0.
TEST(pager_rules, a_hit_is_residency_before_the_visit) {
  pager_walk w({.layout = shared(2)});
  w.visit(0, 0, {0, 1});
  w.visit(1, 0, {2, 0});
  EXPECT_EQ(w.stats().hits, 1U);
  EXPECT_EQ(w.stats().misses, 3U);
  EXPECT_THAT(w.readable(0), ElementsAre(0, 2));
}

// Rule 3, hazard 1: the least recent slot belongs to the visit itself.
TEST(pager_rules, a_visit_never_evicts_its_own_experts) {
  pager_walk w({.layout = shared(3)});
  w.visit(0, 0, {0, 1});
  w.visit(1, 0, {2, 1});
  w.visit(2, 0, {3, 0});  // order is 0, 2, 1; 0 is needed now
  EXPECT_EQ(w.plan.fills()[0].victim, (expert_key{0_layer, 2_expert}));
  EXPECT_THAT(w.readable(0), ElementsAre(0, 1, 3));
}

// Rule 4: the visit's own uses do not affect the choice; lfu would keep 1 if it counted this visit first.
TEST(pager_rules, victims_are_chosen_on_the_state_before_the_visit) {
  pager_walk<pager<lfu>> w({.layout = shared(3)});
  w.visit(0, 0, {0, 0});
  w.visit(1, 0, {0, 1});
  w.visit(2, 0, {2, 2});
  // Counts: 0 twice, 1 once, 2 once and later. A visit of {3, 4} needs two slots: 1, then 2.
  ASSERT_EQ(w.try_plan(3, 0, {3, 4}), status::ok);
  EXPECT_EQ(w.plan.fills()[0].victim, (expert_key{0_layer, 1_expert}));
  EXPECT_EQ(w.plan.fills()[1].victim, (expert_key{0_layer, 2_expert}));
}

// Rule 4: pinned and filling slots are no victims.
TEST(pager_rules, pinned_and_filling_slots_are_no_victims) {
  pager_walk w({.layout = shared(5, 2)});
  w.visit(0, 0, {0, 1});
  w.visit(0, 1, {0, 1});
  w.decisions.pin(w.decisions.locate({0_layer, 0_expert}));
  w.prefetch(0, 1, {{{0_layer, 7_expert}, 1}});
  w.visit(1, 0, {2, 3});  // would have taken (0,0) and (0,1)
  EXPECT_THAT(w.readable(0), ElementsAre(0, 2, 3));
  EXPECT_THAT(w.placed(0), ElementsAre(0, 2, 3, 7));
  EXPECT_THAT(w.readable(1), ElementsAre(1));
}

// Rule 5: the last appearance counts, hits and misses interleaved.
TEST(pager_rules, recency_follows_the_last_appearance_in_routed_order) {
  support::told_lru::journal journal;
  pager_walk<pager<told_lru>> w({.layout = shared(4), .eviction = {&journal}});
  w.visit(0, 0, {0, 1});
  journal.lines.clear();
  w.visit(1, 0, {1, 2, 0, 3, 1, 2});
  EXPECT_THAT(journal.lines, ElementsAre("step 1 layer 0", "hit 0", "fill 3", "hit 1", "fill 2"));
  EXPECT_THAT(w.decisions.residents(),
              ElementsAre(expert_key{0_layer, 0_expert}, expert_key{0_layer, 3_expert},
                          expert_key{0_layer, 1_expert}, expert_key{0_layer, 2_expert}));
}

TEST(pager_rules, recording_hits_before_misses_would_choose_another_victim) {
  pager_walk w({.layout = shared(3)});
  w.visit(0, 0, {0, 1});
  w.visit(1, 0, {2, 0});  // interleaved: 1, 2, 0. Hits first: 1, 0, 2.
  w.visit(2, 0, {3, 1});  // takes 2, not 0
  EXPECT_THAT(w.readable(0), ElementsAre(0, 1, 3));
}

TEST(pager_rules, evictions_are_notified_before_uses) {
  support::told_lru::journal journal;
  pager_walk<pager<told_lru>> w({.layout = shared(2), .eviction = {&journal}});
  w.visit(0, 0, {0, 1});
  journal.lines.clear();
  w.visit(1, 0, {1, 5});
  EXPECT_THAT(journal.lines, ElementsAre("step 1 layer 0", "evict 0", "hit 1", "fill 5"));
}

/// Records the uses that it is notified of.
struct noting : always {
  struct config {
    std::vector<expert_use>* uses = nullptr;
    [[nodiscard]] validation validate() const { return std::nullopt; }
  };
  static constexpr admission_traits traits{};
  noting(const pool_layout& layout, const config& options) : always(layout), to(options.uses) {}
  void on_use(const expert_use& a, bool, bool) noexcept { to->push_back(a); }
  std::vector<expert_use>* to;
};
TEST(pager_rules, admission_gets_each_use_with_its_weight_and_slot) {
  std::vector<expert_use> told;
  pager<gate_score, noting> pages({.layout = shared(4), .admission = {&told}});
  auto plan = pages.make_plan();
  const std::vector<std::int32_t> ids{0, 1, 1, 2};
  const std::vector<float> weights{.5F, .25F, .75F, .125F};
  const auto use = [](const visit_group&) {};
  ASSERT_EQ(pages.serve({.step = 7, .experts = ids, .weights = weights}, plan, use), status::ok);
  ASSERT_EQ(told.size(), 3U);
  EXPECT_EQ(told[1].key, (expert_key{0_layer, 1_expert}));
  EXPECT_EQ(told[1].weight, 1.0);
  EXPECT_EQ(told[1].step, 7U);
  EXPECT_EQ(told[1].slot, pages.locate({0_layer, 1_expert}));
}

TEST(pager_rules, a_visit_that_routes_nothing_is_a_visit) {
  pager_walk w({.layout = shared(2)});
  w.visit(0, 0, {});
  w.visit(1, 0, {-1, -1});
  EXPECT_EQ(w.stats().visits, 2U);
  EXPECT_EQ(w.stats().accesses, 0U);
  EXPECT_EQ(w.stats().ignored_ids, 2U);
  EXPECT_EQ(w.stats().miss_free_steps(), 2U);
  EXPECT_THAT(w.plan.experts(), IsEmpty());
}

// Hazard 4: an absent expert reads slot 0.
TEST(pager_rules, rows_are_minus_one_for_everything_absent) {
  pager_walk w({.layout = shared(2, 3)});
  for (const auto l : each<layer_id>(3)) EXPECT_THAT(w.readable(l), IsEmpty());
  w.visit(0, 1, {6, 7});
  EXPECT_THAT(w.decisions.row(1_layer),
              ElementsAre(-1, -1, -1, -1, -1, -1, testing::Ge(0), testing::Ge(0)));
  w.visit(0, 2, {0, 1});
  EXPECT_THAT(w.readable(1), IsEmpty());
}

}  // namespace
}  // namespace hotset::pager_rules_test
