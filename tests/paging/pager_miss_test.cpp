// SPDX-License-Identifier: Apache-2.0
// Misses decided by a miss policy: its inputs, and that its decisions are executed and counted.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/eviction/lfu.hpp"
#include "hotset/miss/compute_on_host.hpp"
#include "pager_walk.hpp"
#include "random_source.hpp"
#include "scripted_miss.hpp"

namespace hotset::pager_miss_test {
namespace {

using support::dropped;
using support::fetch_at;
using support::on_host;
using support::pager_walk;
using support::picky;
using support::scripted_miss;
using support::substituted;
using support::told_lru;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

using decided = pager<lru, always, scripted_miss>;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4};

pool_layout shared(std::int64_t slots) { return pool_layout::shared(shape, slots).value(); }

struct pager_miss : testing::Test {
  pager_walk<decided> walk(std::int64_t slots) {
    return pager_walk<decided>({.layout = shared(slots), .miss = {&script}});
  }
  scripted_miss::script script;
};

TEST_F(pager_miss, the_policy_gets_uses_rank_and_weight_by_first_appearance) {
  auto w = walk(8);
  w.visit(0, 0, {1, 4});
  script.asked.clear();
  script.rows.clear();
  w.visit(1, 0, {5, 1, 3, 5, -1, 3}, {.25F, .75F, .5F, .5F, .9F, .125F});
  ASSERT_THAT(script.asked, SizeIs(1));
  ASSERT_THAT(script.asked[0], SizeIs(2)) << "1 is resident";
  const auto& five = script.asked[0][0];
  EXPECT_EQ(five.expert, 5);
  EXPECT_EQ(five.uses, 2U);
  EXPECT_EQ(five.rank, 0U);
  EXPECT_EQ(five.weight, .5F) << "the largest that a token gives";
  EXPECT_EQ(five.held, miss::absent);
  const auto& three = script.asked[0][1];
  EXPECT_EQ(three.expert, 3);
  EXPECT_EQ(three.uses, 2U);
  EXPECT_EQ(three.rank, 0U);
  EXPECT_EQ(three.weight, .5F);
  std::vector<slot_id> before(8, no_slot);
  before[1] = 0_slot;
  before[4] = 1_slot;
  EXPECT_EQ(script.rows[0], before) << "what was resident before the visit";
}

TEST_F(pager_miss, the_rank_is_the_best_and_a_visit_without_weights_weighs_one) {
  auto w = walk(8);
  w.visit(0, 0, {1, 4, 4, 1, 2, 6});
  ASSERT_THAT(script.asked[0], SizeIs(4));
  EXPECT_EQ(script.asked[0][1].rank, 0U) << "4, ranked 1 by the first token and 0 by the second";
  EXPECT_EQ(script.asked[0][3].rank, 1U);
  EXPECT_EQ(script.asked[0][3].weight, 1.0F);
}

TEST_F(pager_miss, a_visit_of_hits_asks_no_policy_and_is_observed) {
  auto w = walk(4);
  w.visit(0, 0, {1, 4}, {.5F, .5F});
  w.visit(1, 0, {4, 1}, {.75F, .25F});
  EXPECT_THAT(script.asked, SizeIs(1));
  EXPECT_THAT(script.observed, ElementsAre(ElementsAre(.5F, .5F), ElementsAre(.75F, .25F)));
}

TEST_F(pager_miss, weights_are_observed_once_per_visit_and_only_at_its_commit) {
  auto w = walk(3);
  const std::vector<std::int32_t> ids{0, 1, 2, 3, 4, 5};
  const std::vector<float> weights{.1F, .2F, .3F, .4F, .5F, .6F};
  ASSERT_EQ(w.decisions.plan(w.view(0, 0, ids, weights), w.plan), status::ok);
  ASSERT_GT(w.plan.groups(), 1U);
  ASSERT_EQ(w.decisions.abort(w.plan), status::ok);
  EXPECT_THAT(script.observed, IsEmpty());
  w.visit(0, 0, ids, weights);
  EXPECT_THAT(script.observed, ElementsAre(weights));
  ASSERT_EQ(w.try_plan(1, 1, {0, 1}), status::ok);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_THAT(script.observed, ElementsAre(weights, IsEmpty())) << "an engine without weights";
}

TEST_F(pager_miss, a_dropped_expert_leaves_no_place_and_takes_no_slot) {
  support::told_lru::journal journal;
  pager_walk<pager<told_lru, always, scripted_miss>> w(
      {.layout = shared(4), .eviction = {&journal}, .miss = {&script}});
  w.visit(0, 0, {0, 1});
  journal.lines.clear();
  script.decisions = {{5_expert, dropped}};
  ASSERT_EQ(w.try_plan(1, 0, {5, 0, 1, 5, 6, 5}), status::ok);
  EXPECT_THAT(w.plan.routed(), ElementsAre(-1, 0, 1, -1, 6, -1));
  EXPECT_THAT(w.plan.experts(), ElementsAre(0, 1, 6));
  EXPECT_THAT(w.plan.services(), ElementsAre(service::hit, service::hit, service::fill));
  EXPECT_EQ(w.plan.host_count(), 0U);
  ASSERT_THAT(w.plan.fills(), SizeIs(1));
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  support::expect_consistent(w.decisions);
  EXPECT_THAT(journal.lines, ElementsAre("step 1 layer 0", "hit 0", "hit 1", "fill 6"));
  EXPECT_EQ(w.decisions.locate({0_layer, 5_expert}), no_slot);
  const auto s = w.stats();
  EXPECT_EQ(s.accesses, 2U + 4);
  EXPECT_EQ(s.misses, 2U + 2) << "it was routed and it was not there";
  EXPECT_EQ(s.dropped_misses, 1U);
  EXPECT_EQ(s.fills, 3U);
  EXPECT_EQ(s.ignored_ids, 0U) << "what a policy took out is no id without an expert";
}

// An engine may read two visits at once.
TEST_F(pager_miss, the_ids_of_a_plan_stay_while_another_visit_is_planned) {
  auto w = walk(4);
  auto other = w.decisions.make_plan();
  script.decisions = {{5_expert, dropped}};
  ASSERT_EQ(w.try_plan(0, 0, {5, 0}), status::ok);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  script.decisions = {{6_expert, dropped}};
  const std::vector<std::int32_t> ids{1, 6};
  ASSERT_EQ(w.decisions.plan(w.view(0, 1, ids), other), status::ok);
  ASSERT_EQ(w.decisions.commit(other), status::ok);
  EXPECT_THAT(w.plan.routed(), ElementsAre(-1, 0));
  EXPECT_THAT(other.routed(), ElementsAre(1, -1));
}

TEST_F(pager_miss, a_policy_that_drops_is_given_no_unknown_id) {
  pager_walk<decided> w({.layout = shared(4), .miss = {&script}, .refuse_unknown_ids = false});
  script.decisions = {{5_expert, dropped}};
  ASSERT_EQ(w.try_plan(0, 0, {5, 99, 0, -7}), status::ok);
  EXPECT_THAT(w.plan.routed(), ElementsAre(-1, -1, 0, -1));
  EXPECT_EQ(w.plan.ignored_ids(), 2U);
}

// The visit's other experts are hits and are served as hits.
TEST_F(pager_miss, hits_beside_a_dropped_expert_stay_hits) {
  support::told_lru::journal journal;
  pager_walk<pager<told_lru, always, scripted_miss>> w(
      {.layout = shared(4), .eviction = {&journal}, .miss = {&script}});
  w.visit(0, 0, {0, 1});
  journal.lines.clear();
  script.decisions = {{5_expert, dropped}};
  w.visit(1, 0, {5, 0, 1, 0});
  EXPECT_THAT(w.plan.services(), ElementsAre(service::hit, service::hit));
  EXPECT_THAT(w.plan.fills(), IsEmpty());
  EXPECT_THAT(journal.lines, ElementsAre("step 1 layer 0", "hit 1", "hit 0"));
  EXPECT_EQ(w.stats().steps_with_miss, 2U);
}

TEST_F(pager_miss, a_fully_dropped_visit_counts_its_misses) {
  auto w = walk(4);
  script.decisions = {{5_expert, dropped}, {6_expert, dropped}};
  w.visit(0, 0, {5, 6, 6, 5});
  EXPECT_THAT(w.plan.experts(), IsEmpty());
  EXPECT_THAT(w.plan.routed(), ElementsAre(-1, -1, -1, -1));
  const auto s = w.stats();
  EXPECT_EQ(s.visits, 1U);
  EXPECT_EQ(s.steps, 1U);
  EXPECT_EQ(s.steps_with_miss, 1U);
  EXPECT_EQ(s.accesses, 2U);
  EXPECT_EQ(s.misses, 2U);
  EXPECT_EQ(s.compulsory_misses, 2U);
  EXPECT_EQ(s.dropped_misses, 2U);
  EXPECT_EQ(s.fills, 0U);
  w.visit(1, 0, {5, 6});
  EXPECT_EQ(w.stats().compulsory_misses, 2U) << "their first use was the dropped one";
  EXPECT_EQ(w.stats().capacity_misses(), 2U);
}

TEST_F(pager_miss, an_aborted_visit_has_dropped_nothing) {
  auto w = walk(4);
  script.decisions = {{5_expert, dropped}};
  ASSERT_EQ(w.try_plan(0, 0, {5, 1}), status::ok);
  ASSERT_EQ(w.decisions.abort(w.plan), status::ok);
  EXPECT_EQ(w.stats().dropped_misses, 0U);
  script.decisions.clear();
  w.visit(0, 0, {5, 1});
  EXPECT_EQ(w.stats().compulsory_misses, 2U) << "5 was not used before";
  EXPECT_FALSE(w.plan.edited());
  EXPECT_THAT(w.plan.routed(), ElementsAre(5, 1)) << "the routed ids are the router's";
}

TEST_F(pager_miss, substitutes_are_hits_and_are_not_evicted_by_their_visit) {
  support::told_lru::journal journal;
  pager_walk<pager<told_lru, always, scripted_miss>> w(
      {.layout = shared(3), .eviction = {&journal}, .miss = {&script}});
  w.visit(0, 0, {0, 1, 2, 2});
  journal.lines.clear();
  script.decisions = {{5_expert, substituted}};
  script.stand_ins = {{5_expert, 0_expert}};
  ASSERT_EQ(w.try_plan(1, 0, {5, 1, 6, 5}), status::ok);
  EXPECT_THAT(w.plan.routed(), ElementsAre(0, 1, 6, 0));
  EXPECT_THAT(w.plan.experts(), ElementsAre(0, 1, 6));
  EXPECT_THAT(w.plan.services(), ElementsAre(service::hit, service::hit, service::fill));
  ASSERT_THAT(w.plan.fills(), SizeIs(1));
  EXPECT_EQ(w.plan.fills()[0].victim, (expert_key{0_layer, 2_expert}))
      << "0 is older, and stands in";
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_THAT(journal.lines, ElementsAre("step 1 layer 0", "evict 2", "hit 1", "fill 6", "hit 0"));
  const auto s = w.stats();
  EXPECT_EQ(s.accesses, 3U + 3) << "of the router's experts";
  EXPECT_EQ(s.misses, 3U + 2);
  EXPECT_EQ(s.substituted_misses, 1U);
  EXPECT_EQ(s.fills, 4U);
  for (const auto slot : w.plan.slots()) w.decisions.pin(slot);
  EXPECT_EQ(w.decisions.invalidate(expert_key{0_layer, 0_expert}), status::busy)
      << "a substitute can be pinned";
}

TEST_F(pager_miss, a_late_prefetched_copy_can_be_a_substitute) {
  auto w = walk(5);
  w.visit(0, 0, {0, 1});
  const auto fills = w.prefetch(0, 0, {{{0_layer, 3_expert}, 1}});
  script.decisions = {{5_expert, substituted}};
  script.stand_ins = {{5_expert, 3_expert}};
  w.visit(1, 0, {5, 1});
  EXPECT_THAT(w.plan.late_slots(), ElementsAre(fills[0].slot));
  EXPECT_EQ(w.stats().late_prefetches, 1U);
}

// A policy with on_visit gets slots; an expert that stays on the host has none.
TEST_F(pager_miss, an_expert_left_on_the_host_has_no_slot_and_is_a_bypass) {
  support::told_lru::journal journal;
  pager_walk<pager<told_lru, always, scripted_miss>> told(
      {.layout = shared(4), .eviction = {&journal}, .miss = {&script}});
  auto plain = walk(4);
  script.decisions = {{5_expert, on_host}};
  told.visit(0, 0, {5, 1});
  EXPECT_THAT(told.plan.services(), ElementsAre(service::host, service::fill));
  EXPECT_EQ(told.plan.slots()[0], no_slot);
  EXPECT_EQ(told.plan.host_count(), 1U);
  EXPECT_FALSE(told.plan.all_hits());
  EXPECT_FALSE(told.plan.edited()) << "all places stand";
  EXPECT_THAT(told.plan.routed(), ElementsAre(5, 1));
  EXPECT_THAT(journal.lines, ElementsAre("step 0 layer 0", "fill 1", "bypass 5"));
  EXPECT_EQ(told.stats().bypasses, 1U);
  told.visit(1, 0, {5, 1});
  EXPECT_EQ(told.stats().compulsory_misses, 2U) << "5 was used on the host";

  plain.visit(0, 0, {5, 1});
  plain.visit(1, 0, {5, 1});
  EXPECT_EQ(plain.stats(), told.stats());
  EXPECT_THAT(plain.decisions.residents(), ElementsAre(expert_key{0_layer, 1_expert}));
}

TEST_F(pager_miss, a_visit_left_fully_on_the_host_evicts_nothing) {
  pager_walk<pager<lfu, always, compute_on_host>> w({.layout = shared(2)});
  w.visit(0, 0, {0, 1});
  EXPECT_EQ(w.plan.host_count(), 2U);
  EXPECT_THAT(w.placed(0), IsEmpty());
  EXPECT_EQ(w.stats().bypasses, 2U);
  EXPECT_EQ(w.stats().fills, 0U);
}

TEST_F(pager_miss, admission_judges_the_experts_that_the_policy_fetches) {
  pager_walk<pager<lru, picky, scripted_miss>> w(
      {.layout = shared(4), .admission = {{1_expert, 6_expert}}, .miss = {&script}});
  script.decisions = {{5_expert, on_host}, {6_expert, dropped}};
  w.visit(0, 0, {5, 1, 2, 6});
  EXPECT_THAT(w.plan.experts(), ElementsAre(5, 1, 2));
  EXPECT_THAT(w.plan.services(), ElementsAre(service::host, service::host, service::fill));
  EXPECT_EQ(w.plan.host_count(), 2U);
  EXPECT_EQ(w.stats().bypasses, 2U) << "one by each of the two";
  EXPECT_EQ(w.stats().dropped_misses, 1U);
  EXPECT_EQ(w.stats().fills, 1U);
}

TEST_F(pager_miss, decisions_hold_in_every_group_of_a_split_visit) {
  auto w = walk(2);
  script.decisions = {{5_expert, dropped}, {6_expert, on_host}, {7_expert, substituted}};
  w.visit(0, 0, {0, 1});
  script.stand_ins = {{7_expert, 0_expert}};
  script.asked.clear();
  // 0 and 1 are resident; 2, 3, 4 do not fit beside them.
  ASSERT_EQ(w.try_plan(1, 0, {2, 5, 3, 6, 4, 5, 7, 6}), status::ok);
  const std::vector<std::int32_t> routed{2, -1, 3, 6, 4, -1, 0, 6};
  std::set<std::uint32_t> tokens;
  std::size_t fills = 0;
  std::size_t groups = 0;
  do {
    ++groups;
    EXPECT_THAT(w.plan.routed(), testing::ElementsAreArray(routed));
    for (std::size_t i = 0; i < w.plan.experts().size(); ++i) {
      const auto e = w.plan.experts()[i];
      EXPECT_NE(e, 5);
      EXPECT_NE(e, 7);
      EXPECT_EQ(w.plan.services()[i] == service::host, e == 6);
      EXPECT_EQ(w.plan.slots()[i] == no_slot, e == 6);
    }
    for (const auto t : w.plan.tokens()) EXPECT_TRUE(tokens.insert(t).second);
    fills += w.plan.fills().size();
  } while (w.next_group());
  EXPECT_EQ(groups, 2U);
  EXPECT_EQ(tokens, (std::set<std::uint32_t>{0, 1, 2, 3}));
  EXPECT_THAT(script.asked, SizeIs(1)) << "a visit is decided once";
  const auto s = w.stats();
  EXPECT_EQ(s.misses, 2U + 6);
  EXPECT_EQ(s.bypasses, 1U);
  EXPECT_EQ(s.dropped_misses, 1U);
  EXPECT_EQ(s.substituted_misses, 1U);
  EXPECT_EQ(s.fills, 2U + fills);
}

TEST_F(pager_miss, a_policy_that_cannot_work_is_refused_by_name) {
  const auto none = decided::create({.layout = shared(4), .miss = {}});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message, "scripted_miss has no script, accepted: one");
  const geometry two{
      .layers = 1, .experts = 8, .top_k = 2, .expert_bytes = {10}, .lower_precisions = {{4}}};
  const auto flat =
      decided::create({.layout = pool_layout::shared(two, 4).value(), .miss = {&script}});
  ASSERT_FALSE(flat.has_value());
  EXPECT_EQ(
      flat.error().message,
      "the layout has 1 precisions and the experts have 2, accepted: pools for each precision");
  const std::vector<std::int64_t> slots{2, 2};
  const auto ladder =
      pager<lru>::create({.layout = pool_layout::shared_by_precision(two, slots).value()});
  ASSERT_FALSE(ladder.has_value());
  EXPECT_EQ(
      ladder.error().message,
      "the layout has 2 precisions and the miss policy fetches everything, accepted: 1 precision");
}

TEST_F(pager_miss, is_exact_only_if_the_policy_is) {
  EXPECT_TRUE((pager<lru>({.layout = shared(4)}).is_exact()));
  EXPECT_TRUE((pager<lru, always, compute_on_host>({.layout = shared(4)}).is_exact()));
  EXPECT_FALSE(decided({.layout = shared(4), .miss = {&script}}).is_exact());
}

// A policy that always fetches gives the same decisions as no policy.
TEST_F(pager_miss, fetching_everything_equals_a_pager_without_a_miss_policy) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    const auto slots = 2 + random.id_below(6);
    auto asked = walk(slots);
    pager_walk plain({.layout = shared(slots)});
    for (step_id step = 0; step < 40; ++step) {
      const auto layer = random.id_below(2);
      std::vector<expert_id> ids(2 * (1 + random.below(4)));
      for (auto& id : ids) id = expert_id{random.id_below(9) - 1};
      ASSERT_EQ(asked.visit(step / 3, layer, ids), plain.visit(step / 3, layer, ids));
    }
    EXPECT_EQ(asked.stats(), plain.stats());
    EXPECT_EQ(asked.decisions.decision_hash(), plain.decisions.decision_hash());
  }
}

// Every miss has one cause and one kind of service.
TEST_F(pager_miss, causes_and_services_add_up_to_the_misses) {
  const miss_decision choices[]{fetch_at(0_precision), dropped, on_host, substituted};
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    auto w = walk(2 + random.id_below(5));
    std::uint64_t refills = 0;
    std::set<expert_key> used;
    std::uint64_t first_uses = 0;
    for (step_id n = 0; n < 60; ++n) {
      const layer_id layer{random.id_below(2)};
      const auto readable = w.readable(layer);
      script.decisions.clear();
      for (const auto e : each<expert_id>(8)) {
        const auto& choice = choices[random.below(readable.empty() ? 3 : 4)];
        script.decisions[e] = choice;
        if (!readable.empty()) script.stand_ins[e] = *readable.begin();
      }
      std::vector<expert_id> ids(2 * (1 + random.below(4)));
      for (auto& id : ids) id = expert_id{random.id_below(9) - 1};
      std::set<expert_id> wanted;
      for (const auto e : std::set<expert_id>(ids.begin(), ids.end())) {
        if (e < 0) continue;
        const bool missing = readable.count(e) == 0;
        if (missing && script.decisions[e].action == miss_action::fetch) wanted.insert(e);
        first_uses += missing && used.count({layer, e}) == 0 ? 1U : 0U;
      }
      for (const auto e : ids)
        if (e >= 0) used.insert({layer, e});
      const auto collisions = w.stats().collision_misses;
      const auto compulsory = w.stats().compulsory_misses;
      refills += w.visit(n, layer, ids) - wanted.size();
      ASSERT_EQ(w.stats().collision_misses, collisions) << "a step is one visit here";
      ASSERT_GE(w.stats().compulsory_misses, compulsory);
      const auto s = w.stats();
      ASSERT_EQ(s.fills - refills + s.bypasses + s.dropped_misses + s.substituted_misses, s.misses);
      ASSERT_EQ(s.precision_misses, 0U);
      ASSERT_EQ(s.compulsory_misses, first_uses);
      ASSERT_LE(s.compulsory_misses + s.collision_misses, s.misses);
      ASSERT_EQ(s.hits + s.misses, s.accesses);
    }
    EXPECT_GT(w.stats().dropped_misses, 0U);
    EXPECT_GT(w.stats().substituted_misses, 0U);
    EXPECT_GT(w.stats().bypasses, 0U);
  }
}

}  // namespace
}  // namespace hotset::pager_miss_test
