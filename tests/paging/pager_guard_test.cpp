// SPDX-License-Identifier: Apache-2.0
// Victims that a speculative fill may take under the `predicted` guard, and plans that make only some of their
// copies.

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pager_walk.hpp"
#include "random_source.hpp"

namespace hotset::pager_guard_test {
namespace {

using support::pager_walk;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

const geometry shape{.layers = 4, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4};

pool_layout shared(std::int64_t slots) { return pool_layout::shared(shape, slots).value(); }

visit_context at(step_id step, support::written_layer layer) {
  const visit_context context{.layer = layer, .step = step};
  return context;
}

struct pager_guard : testing::Test {
  /// Slots in order of eviction: (0,0) (0,1) (1,0) (1,1) (2,0) (2,1).
  static pager_walk<> six(prefetch_guard guard = prefetch_guard::predicted) {
    pager_walk w({.layout = shared(6), .guard = guard});
    for (const auto l : each<layer_id>(3)) w.visit(0, l, {0, 1});
    return w;
  }
  /// A forecast made while layer `here` runs, for the layers after it.
  template <class Walk>
  void expect(Walk& w, step_id step, support::written_layer here, std::int32_t depth,
              const std::vector<prefetch_request>& likely) {
    probabilities.assign(static_cast<std::size_t>(depth * shape.experts), 0.0F);
    for (const auto& one : likely) {
      const auto d = one.key.layer - here.id - 1;
      probabilities[static_cast<std::size_t>(d * shape.experts + number(one.key.expert))] =
          one.probability;
    }
    w.decisions.expect(at(step, here), {.probabilities = probabilities, .depth = depth});
  }
  template <class Walk>
  static std::vector<expert_key> victims(Walk& w, step_id step, support::written_layer here,
                                         const std::vector<prefetch_request>& requests) {
    std::vector<expert_key> out;
    for (const auto& f : w.prefetch(step, here, requests)) out.push_back(f.victim);
    return out;
  }
  /// Experts 0 and 1 of the first layers are read.
  template <class Walk>
  static void pin_layers(Walk& w, std::int32_t layers) {
    for (const auto l : each<layer_id>(layers))
      for (const auto e : {0_expert, 1_expert}) w.decisions.pin(w.decisions.locate({l, e}));
  }
  std::vector<float> probabilities;
};

TEST_F(pager_guard, a_victim_that_is_needed_sooner_and_as_likely_is_passed_over) {
  auto w = six();
  expect(w, 1, 0, 2, {{{1_layer, 0_expert}, 1, .5F}, {{1_layer, 1_expert}, 1, .75F}});
  pin_layers(w, 1);
  EXPECT_THAT(victims(w, 1, 0, {{{2_layer, 7_expert}, 1, .5F}}),
              ElementsAre(expert_key{2_layer, 0_expert}))
      << "the first two are read, the next two are expected a layer before";
}

TEST_F(pager_guard, a_less_likely_victim_may_go) {
  auto w = six();
  expect(w, 1, 0, 2, {{{1_layer, 0_expert}, 1, .5F}});
  pin_layers(w, 1);
  EXPECT_THAT(victims(w, 1, 0, {{{2_layer, 7_expert}, 1, .625F}}),
              ElementsAre(expert_key{1_layer, 0_expert}));
}

TEST_F(pager_guard, a_victim_of_the_same_visit_counts_and_one_of_a_later_visit_does_not) {
  for (const layer_id wanted : {2_layer, 1_layer}) {
    auto w = six();
    expect(w, 1, 0, 2, {{{2_layer, 0_expert}, 1, .5F}, {{2_layer, 1_expert}, 1, .5F}});
    pin_layers(w, 2);
    const auto gone = victims(w, 1, 0, {{{wanted, 7_expert}, 1, .5F}});
    if (wanted == 2)
      EXPECT_THAT(gone, IsEmpty());
    else
      EXPECT_THAT(gone, ElementsAre(expert_key{2_layer, 0_expert})) << "it is wanted a layer later";
    EXPECT_EQ(w.stats().refused_prefetches, wanted == 2 ? 1U : 0U);
  }
}

TEST_F(pager_guard, a_request_for_the_next_step_comes_after_all_of_this_one) {
  auto w = six();
  expect(w, 1, 0, 3, {{{2_layer, 0_expert}, 1, .5F}, {{2_layer, 1_expert}, 1, .5F}});
  pin_layers(w, 2);
  EXPECT_THAT(victims(w, 1, 0, {{{1_layer, 7_expert}, 2, .5F}}), IsEmpty());
}

TEST_F(pager_guard, if_all_are_expected_nothing_changes) {
  auto w = six();
  w.visit(1, 0, {0, 1});
  expect(w, 1, 0, 3,
         {{{1_layer, 0_expert}, 1, 1.0F},
          {{1_layer, 1_expert}, 1, 1.0F},
          {{2_layer, 0_expert}, 1, 1.0F},
          {{2_layer, 1_expert}, 1, 1.0F}});
  pin_layers(w, 1);
  const auto before = w.decisions.residents();
  ASSERT_EQ(w.decisions.plan_prefetch(
                at(1, 0), std::vector<prefetch_request>{{{3_layer, 7_expert}, 1, .5F}}, w.plan),
            status::ok);
  EXPECT_THAT(w.plan.fills(), IsEmpty());
  EXPECT_THAT(w.plan.deferred(), ElementsAre(0));
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_EQ(w.decisions.residents(), before);
  EXPECT_EQ(w.stats().refused_prefetches, 1U);
}

// A victim that one request may not evict is allowed for a likelier request after it.
TEST_F(pager_guard, each_request_is_compared_for_itself) {
  auto w = six();
  expect(w, 1, 0, 2,
         {{{1_layer, 0_expert}, 1, .5F},
          {{1_layer, 1_expert}, 1, .5F},
          {{2_layer, 0_expert}, 1, .5F},
          {{2_layer, 1_expert}, 1, .5F}});
  pin_layers(w, 1);
  const std::vector<prefetch_request> requests{{{2_layer, 6_expert}, 1, .25F},
                                               {{2_layer, 7_expert}, 1, .75F}};
  ASSERT_EQ(w.decisions.plan_prefetch(at(1, 0), requests, w.plan), status::ok);
  EXPECT_THAT(w.plan.deferred(), ElementsAre(0));
  ASSERT_THAT(w.plan.fills(), SizeIs(1));
  EXPECT_EQ(w.plan.fills()[0].key, (expert_key{2_layer, 7_expert}));
  EXPECT_EQ(w.plan.fills()[0].victim, (expert_key{1_layer, 0_expert}));
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  support::expect_consistent(w.decisions);
}

TEST_F(pager_guard, the_last_of_many_may_be_the_one_that_may_go) {
  pager_walk w({.layout = shared(24), .guard = prefetch_guard::predicted});
  for (const auto l : each<layer_id>(4))
    for (std::int32_t e = 0; e < 6; e += 2) w.visit(0, l, {e, e + 1});
  std::vector<prefetch_request> likely;
  for (const auto e : each<expert_id>(6)) {
    w.decisions.pin(w.decisions.locate({0_layer, e}));
    for (const auto l : {1_layer, 2_layer, 3_layer})
      if (l != 3 || e != 5) likely.push_back({{l, e}, 1, 1.0F});
  }
  expect(w, 1, 0, 3, likely);
  EXPECT_THAT(victims(w, 1, 0, {{{3_layer, 7_expert}, 1, .5F}}),
              ElementsAre(expert_key{3_layer, 5_expert}));
  EXPECT_THAT(victims(w, 1, 0, {{{3_layer, 6_expert}, 1, .5F}}), IsEmpty());
}

TEST_F(pager_guard, a_forecast_is_over_with_its_layers_visit) {
  for (const bool of_the_next_step : {false, true}) {
    auto w = six();
    expect(w, 1, 0, 2, {{{1_layer, 0_expert}, 1, 1.0F}, {{2_layer, 0_expert}, 1, 1.0F}});
    w.visit(1, 1, {4, 5});  // evicts (0,0) and (0,1); (1,0) was not used
    const step_id step = of_the_next_step ? 2 : 1;
    if (of_the_next_step) w.visit(2, 0, {4, 4});  // evicts (1,0)
    EXPECT_THAT(victims(w, step, of_the_next_step ? 0 : 1, {{{3_layer, 7_expert}, step, .5F}}),
                ElementsAre(of_the_next_step ? expert_key{1_layer, 1_expert}
                                             : expert_key{1_layer, 0_expert}));
    EXPECT_THAT(victims(w, step, of_the_next_step ? 0 : 1, {{{3_layer, 6_expert}, step, .5F}}),
                ElementsAre(of_the_next_step ? expert_key{2_layer, 0_expert}
                                             : expert_key{1_layer, 1_expert}))
        << "and the whole step with its own";
  }
}

TEST_F(pager_guard, a_later_forecast_of_a_layer_replaces_the_earlier_one) {
  auto w = six();
  expect(w, 1, 0, 2, {{{2_layer, 0_expert}, 1, 1.0F}});
  expect(w, 1, 1, 1, {{{2_layer, 1_expert}, 1, 1.0F}});
  pin_layers(w, 2);
  EXPECT_THAT(victims(w, 1, 1, {{{3_layer, 7_expert}, 1, .5F}}),
              ElementsAre(expert_key{2_layer, 0_expert}));
}

TEST_F(pager_guard, keys_with_a_request_are_spared_as_under_named) {
  auto w = six();
  w.prefetch(1, 0, {{{0_layer, 0_expert}, 2}});
  EXPECT_THAT(victims(w, 1, 0, {{{2_layer, 7_expert}, 1, .5F}}),
              ElementsAre(expert_key{0_layer, 1_expert}));
}

TEST_F(pager_guard, without_a_forecast_it_is_named) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    pager_walk named({.layout = shared(7), .guard = prefetch_guard::named});
    pager_walk predicted({.layout = shared(7), .guard = prefetch_guard::predicted});
    for (step_id n = 0; n < 40; ++n) {
      const auto layer = random.id_below(4);
      const std::vector<std::int32_t> ids{random.id_below(8), random.id_below(8)};
      std::vector<prefetch_request> requests;
      for (int r = 0; r < 3; ++r)
        requests.push_back({{layer_id{random.id_below(4)}, expert_id{random.id_below(8)}},
                            n / 4 + random.below(2),
                            .5F});
      for (auto* w : {&named, &predicted}) {
        w->visit(n / 4, layer, ids);
        w->arrive(w->prefetch(n / 4, layer, requests));
      }
      ASSERT_EQ(named.decisions.decision_hash(), predicted.decisions.decision_hash());
    }
    EXPECT_EQ(named.stats(), predicted.stats());
  }
}

TEST_F(pager_guard, other_guards_do_not_look_at_forecasts) {
  for (const auto guard : {prefetch_guard::none, prefetch_guard::named}) {
    auto w = six(guard);
    expect(w, 1, 0, 2, {{{1_layer, 0_expert}, 1, 1.0F}});
    pin_layers(w, 1);
    EXPECT_THAT(victims(w, 1, 0, {{{2_layer, 7_expert}, 1, .5F}}),
                ElementsAre(expert_key{1_layer, 0_expert}));
  }
}

// The victim is the first in the policy's order that the rule permits, however many it does not.
TEST_F(pager_guard, agrees_with_the_rule_on_random_forecasts) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    pager_walk w({.layout = shared(24), .guard = prefetch_guard::predicted});
    for (const auto l : each<layer_id>(4))
      for (std::int32_t e = 0; e < 6; e += 2) w.visit(0, l, {e, e + 1});
    const layer_id here{random.id_below(3)};
    const auto depth = 1 + random.id_below(3 - number(here));
    std::vector<prefetch_request> likely;
    for (layer_id l = here + 1; l <= here + depth; ++l)
      for (const auto e : each<expert_id>(8))
        likely.push_back({{l, e}, 1, static_cast<float>(random.below(5)) / 4.0F});
    expect(w, 1, here, depth, likely);
    const auto chance = [&](expert_key k) {
      for (const auto& one : likely)
        if (one.key == k) return one.probability;
      return -1.0F;
    };
    std::vector<prefetch_request> requests;
    for (const auto e : {6_expert, 7_expert})
      for (const auto l : each<layer_id>(4))
        requests.push_back(
            {{l, e}, 1 + random.below(2), static_cast<float>(random.below(5)) / 4.0F});
    auto left = w.decisions.residents();
    std::vector<expert_key> wanted;
    for (const auto& r : requests) {
      const auto found = std::ranges::find_if(left, [&](expert_key k) {
        return chance(k) < r.probability || (r.for_step == 1 && k.layer > r.key.layer);
      });
      if (found == left.end()) continue;
      wanted.push_back(*found);
      left.erase(found);
    }
    EXPECT_EQ(victims(w, 1, here, requests), wanted);
    EXPECT_EQ(w.stats().refused_prefetches, requests.size() - wanted.size());
  }
}

// --- plans that are only partly executed ---

TEST(pager_prefetch_plan, makes_at_most_so_many_copies_and_names_the_requests_without_one) {
  pager_walk w({.layout = shared(8)});
  w.visit(0, 0, {0, 1});
  const std::vector<prefetch_request> requests{{{1_layer, 2_expert}, 0}, {{0_layer, 1_expert}, 1},
                                               {{9_layer, 9_expert}, 0}, {{1_layer, 3_expert}, 0},
                                               {{1_layer, 2_expert}, 0}, {{1_layer, 4_expert}, 0},
                                               {{1_layer, 5_expert}, 0}};
  ASSERT_EQ(w.decisions.plan_prefetch(at(0, 0), requests, w.plan, 2), status::ok);
  ASSERT_THAT(w.plan.fills(), SizeIs(2));
  EXPECT_EQ(w.plan.request_of(0), 0U);
  EXPECT_EQ(w.plan.request_of(1), 3U);
  EXPECT_THAT(w.plan.deferred(), ElementsAre(5, 6)) << "no resident, no nothing, no repetition";
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_EQ(w.stats().refused_prefetches, 0U) << "that was the caller's limit";
  ASSERT_EQ(w.decisions.plan_prefetch(at(0, 0), requests, w.plan, 0), status::ok);
  EXPECT_THAT(w.plan.fills(), IsEmpty());
  EXPECT_THAT(w.plan.deferred(), ElementsAre(5, 6));
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
}

TEST(pager_prefetch_plan, keep_first_gives_the_other_victims_back) {
  pager_walk w({.layout = shared(6)});
  for (const auto l : each<layer_id>(2)) w.visit(0, l, {0, 1});
  const auto residents = w.decisions.residents();
  const std::vector<prefetch_request> requests{{{2_layer, 2_expert}, 0},
                                               {{2_layer, 3_expert}, 0},
                                               {{2_layer, 4_expert}, 0},
                                               {{2_layer, 5_expert}, 0},
                                               {{2_layer, 6_expert}, 0}};
  ASSERT_EQ(w.decisions.plan_prefetch(at(0, 0), requests, w.plan), status::ok);
  ASSERT_THAT(w.plan.fills(), SizeIs(4)) << "two free slots and two victims";
  EXPECT_THAT(w.plan.deferred(), ElementsAre(4));
  const auto first = w.plan.fills()[0];
  w.decisions.keep_first(w.plan, 9);
  EXPECT_THAT(w.plan.fills(), SizeIs(4));
  w.decisions.keep_first(w.plan, 1);
  ASSERT_THAT(w.plan.fills(), SizeIs(1));
  EXPECT_EQ(w.plan.fills()[0].slot, first.slot);
  EXPECT_THAT(w.plan.deferred(), ElementsAre(1, 2, 3, 4));
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  support::expect_consistent(w.decisions);
  EXPECT_EQ(w.decisions.residents(), residents) << "the victims are back, in their old places";
  EXPECT_EQ(w.stats().evictions, 0U);
  EXPECT_EQ(w.stats().speculative_fills, 1U);
  EXPECT_EQ(w.decisions.locate({2_layer, 2_expert}), first.slot);
  const auto again = w.prefetch(0, 0, {{{2_layer, 3_expert}, 0}});
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].victim, no_key) << "the free slot that was given back";
}

TEST(pager_prefetch_plan, keep_first_leaves_other_plans_alone) {
  pager_walk w({.layout = shared(4)});
  w.decisions.keep_first(w.plan, 0);  // no plan is open
  ASSERT_EQ(w.try_plan(0, 0, {0, 1}), status::ok);
  w.decisions.keep_first(w.plan, 0);
  EXPECT_THAT(w.plan.fills(), SizeIs(2)) << "a visit needs all of its copies";
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  support::expect_consistent(w.decisions);
}

// A plan has room for every request that was considered, even if none of the copies is made.
TEST(pager_prefetch_plan, keep_first_has_room_for_every_request_that_was_looked_at) {
  const geometry small{.layers = 1, .experts = 32, .top_k = 2, .max_tokens_per_visit = 2};
  pager_walk w({.layout = pool_layout::shared(small, 20).value()});
  ASSERT_EQ(w.plan.capacity(), 4U);
  std::vector<prefetch_request> requests;
  for (const auto e : each<expert_id>(20)) requests.push_back({{0_layer, e}, 0});
  ASSERT_EQ(w.decisions.plan_prefetch(at(0, 0), requests, w.plan, 3), status::ok);
  ASSERT_THAT(w.plan.fills(), SizeIs(3));
  ASSERT_THAT(w.plan.deferred(), ElementsAre(3, 4, 5, 6));
  w.decisions.keep_first(w.plan, 0);
  EXPECT_THAT(w.plan.deferred(), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  support::expect_consistent(w.decisions);
  EXPECT_EQ(w.stats().speculative_fills, 0U);
}

TEST(pager_prefetch_plan, abort_gives_all_victims_back) {
  pager_walk w({.layout = shared(6)});
  for (const auto l : each<layer_id>(3)) w.visit(0, l, {0, 1});
  const auto residents = w.decisions.residents();
  ASSERT_EQ(w.decisions.plan_prefetch(
                at(0, 0),
                std::vector<prefetch_request>{{{3_layer, 2_expert}, 0}, {{3_layer, 3_expert}, 0}},
                w.plan),
            status::ok);
  ASSERT_THAT(w.plan.fills(), SizeIs(2));
  EXPECT_THAT(w.placed(0), IsEmpty());
  ASSERT_EQ(w.decisions.abort(w.plan), status::ok);
  support::expect_consistent(w.decisions);
  EXPECT_EQ(w.decisions.residents(), residents);
}

// --- cancelled copies ---

TEST(pager_cancelled, a_copy_that_never_began_leaves_a_free_slot_and_is_not_wasted) {
  pager_walk w({.layout = shared(6)});
  const auto fills = w.prefetch(0, 0, {{{1_layer, 5_expert}, 0}});
  w.decisions.cancelled(fills[0].slot, fills[0].generation);
  support::expect_consistent(w.decisions);
  EXPECT_EQ(w.decisions.locate({1_layer, 5_expert}), no_slot);
  auto s = w.stats();
  EXPECT_EQ(s.cancelled_prefetches, 1U);
  EXPECT_EQ(s.wasted_prefetches, 0U);
  EXPECT_EQ(s.bytes_prefetched, 1U);
  EXPECT_EQ(s.bytes_prefetch_cancelled, 1U);
  EXPECT_EQ(s.bytes_prefetch_pending(), 0U);
  w.decisions.cancelled(fills[0].slot, fills[0].generation);
  EXPECT_EQ(w.stats(), s) << "once";
}

TEST(pager_cancelled, arrived_copies_and_reused_slots_stay) {
  pager_walk w({.layout = shared(6)});
  const auto fills = w.prefetch(0, 0, {{{1_layer, 5_expert}, 0}, {{1_layer, 6_expert}, 0}});
  w.decisions.arrived(fills[0].slot, fills[0].generation);
  w.decisions.cancelled(fills[0].slot, fills[0].generation);
  w.decisions.cancelled(fills[1].slot, fills[1].generation + 1);
  EXPECT_THAT(w.placed(1), ElementsAre(5, 6));
  EXPECT_EQ(w.stats().cancelled_prefetches, 0U);
}

TEST(pager_cancelled, a_warm_copy_is_no_prefetch) {
  pager_walk w({.layout = shared(6)});
  const std::vector<expert_key> keys{{0_layer, 1_expert}};
  ASSERT_EQ(w.decisions.plan_warm(keys, w.plan).code, status::ok);
  const auto f = w.plan.fills()[0];
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  w.decisions.cancelled(f.slot, f.generation);
  support::expect_consistent(w.decisions);
  EXPECT_THAT(w.placed(0), IsEmpty());
  EXPECT_EQ(w.stats().cancelled_prefetches, 0U);
  EXPECT_EQ(w.stats().bytes_prefetch_cancelled, 0U);
  EXPECT_EQ(w.stats().bytes_warm, 0U);
  EXPECT_EQ(w.stats().bytes_filled, 0U);
}

}  // namespace
}  // namespace hotset::pager_guard_test
