// SPDX-License-Identifier: Apache-2.0
// States of a plan: open, committed, aborted, refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/admission/after_n_uses.hpp"
#include "hotset/eviction/fifo.hpp"
#include "hotset/eviction/gate_score.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lfru.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/miss/compute_on_host.hpp"
#include "hotset/miss/drop.hpp"
#include "hotset/miss/substitute.hpp"
#include "hotset/policy/any/any_eviction_policy.hpp"
#include "pager_walk.hpp"
#include "random_source.hpp"

namespace hotset::pager_plan_test {
namespace {

using support::pager_walk;
using support::told_lru;
using testing::ElementsAre;
using testing::IsEmpty;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 4};

pool_layout shared(std::int64_t slots) { return pool_layout::shared(shape, slots).value(); }

TEST(pager_plan, shows_each_distinct_expert_its_slot_and_service) {
  pager_walk w({.layout = shared(4)});
  w.visit(0, 0, {0, 1});
  ASSERT_EQ(w.try_plan(1, 0, {2, 1}), status::ok);
  EXPECT_THAT(w.plan.experts(), ElementsAre(2, 1));
  EXPECT_THAT(w.plan.services(), ElementsAre(service::fill, service::hit));
  EXPECT_EQ(w.plan.slots()[1], w.decisions.locate({0_layer, 1_expert}));
  ASSERT_EQ(w.plan.fills().size(), 1U);
  const auto& f = w.plan.fills()[0];
  EXPECT_EQ(f.key, (expert_key{0_layer, 2_expert}));
  EXPECT_EQ(f.slot, w.plan.slots()[0]);
  EXPECT_EQ(f.victim, no_key);
  EXPECT_FALSE(f.speculative);
  EXPECT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_EQ(f.generation, w.decisions.slot(f.slot).generation);
}

// Hazard 3: a row names a slot before its bytes have arrived.
TEST(pager_plan, an_open_plan_publishes_nothing_and_removes_its_victim) {
  pager_walk w({.layout = shared(2)});
  w.visit(0, 0, {0, 1});
  ASSERT_EQ(w.try_plan(1, 0, {0, 2}), status::ok);
  EXPECT_EQ(w.plan.fills()[0].victim, (expert_key{0_layer, 1_expert}));
  EXPECT_THAT(w.readable(0), ElementsAre(0));
  EXPECT_EQ(w.decisions.locate({0_layer, 2_expert}), no_slot);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_THAT(w.readable(0), ElementsAre(0, 2));
}

// Hazard 2: a reused slot has a new generation, so that the end of an old copy is not taken for the new one's.
TEST(pager_plan, every_reservation_has_a_generation_of_its_own) {
  pager_walk w({.layout = shared(2)});
  w.visit(0, 0, {0, 1});
  const auto slot = w.decisions.locate({0_layer, 0_expert});
  const auto before = w.decisions.slot(slot).generation;
  w.visit(1, 0, {2, 1});
  ASSERT_EQ(w.decisions.locate({0_layer, 2_expert}), slot);
  EXPECT_GT(w.decisions.slot(slot).generation, before);
  w.decisions.failed(slot, before);  // too late to have an effect
  w.decisions.arrived(slot, before);
  EXPECT_EQ(w.decisions.locate({0_layer, 2_expert}), slot);
  EXPECT_EQ(w.stats().failed_fills, 0U);
}

// The victim's own copy may still be pending: if it fails, its key must not be found.
TEST(pager_plan, a_cancelled_reservation_keeps_the_victims_generation) {
  for (const bool speculative : {false, true}) {
    pager_walk w({.layout = shared(4)});
    w.visit(0, 0, {0, 1, 2, 3});
    const auto slot = w.decisions.locate({0_layer, 0_expert});
    const auto before = w.decisions.slot(slot).generation;
    std::uint32_t given_out = 0;
    if (speculative) {
      const std::vector<prefetch_request> wanted{{{1_layer, 5_expert}, 0}};
      ASSERT_EQ(w.decisions.plan_prefetch({}, wanted, w.plan), status::ok);
      given_out = w.plan.fills()[0].generation;
      ASSERT_EQ(w.plan.fills()[0].slot, slot);
      w.decisions.keep_first(w.plan, 0);
      ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
    } else {
      ASSERT_EQ(w.try_plan(1, 1, {4, 5}), status::ok);
      given_out = w.plan.fills()[0].generation;
      ASSERT_EQ(w.plan.fills()[0].slot, slot);
      ASSERT_EQ(w.decisions.abort(w.plan), status::ok);
    }
    ASSERT_EQ(w.decisions.locate({0_layer, 0_expert}), slot);
    EXPECT_EQ(w.decisions.slot(slot).generation, before);
    w.decisions.failed(slot, given_out);
    EXPECT_EQ(w.decisions.locate({0_layer, 0_expert}), slot) << "that copy was never made";
    ASSERT_EQ(w.try_plan(1, 1, {4, 5}), status::ok);
    EXPECT_GT(w.plan.fills()[0].generation, given_out) << "no number is given out twice";
    ASSERT_EQ(w.decisions.abort(w.plan), status::ok);
    w.decisions.failed(slot, before);
    EXPECT_EQ(w.decisions.locate({0_layer, 0_expert}), no_slot);
    support::expect_consistent(w.decisions);
  }
}

TEST(pager_plan, a_copy_that_may_have_started_keeps_its_generation) {
  for (const bool free_slot : {false, true}) {
    pager_walk w({.layout = shared(2)});
    if (!free_slot) w.visit(0, 0, {0, 1});
    ASSERT_EQ(w.try_plan(1, 1, {4, 5}), status::ok);
    const auto f = w.plan.fills()[0];
    ASSERT_EQ(w.decisions.abort(w.plan, std::vector<std::uint8_t>{1, 0}), status::ok);
    EXPECT_EQ(w.decisions.slot(f.slot).generation, f.generation);
    support::expect_consistent(w.decisions);
  }
}

TEST(pager_plan, a_victim_whose_copy_fails_while_reserved_is_not_restored) {
  for (const bool committed : {false, true}) {
    pager_walk w({.layout = shared(2)});
    w.visit(0, 0, {0, 1});
    const auto slot = w.decisions.locate({0_layer, 0_expert});
    const auto before = w.decisions.slot(slot).generation;
    ASSERT_EQ(w.try_plan(1, 1, {4, 4}), status::ok);
    ASSERT_EQ(w.plan.fills()[0].slot, slot);
    w.decisions.failed(slot, before);
    EXPECT_EQ(w.stats().failed_fills, 1U);
    ASSERT_EQ(committed ? w.decisions.commit(w.plan) : w.decisions.abort(w.plan), status::ok);
    EXPECT_EQ(w.decisions.locate({0_layer, 0_expert}), no_slot);
    EXPECT_EQ(w.decisions.locate({1_layer, 4_expert}), committed ? slot : no_slot);
    EXPECT_EQ(w.stats().evictions, 1U);
    support::expect_consistent(w.decisions);
    w.visit(2, 1, {5, 6});
  }
}

// A policy that reads tokens of top_k ids would read past the last one.
template <class Pager>
void expect_whole_tokens(typename Pager::config setup) {
  Pager pages(std::move(setup));
  auto plan = pages.make_plan();
  const std::vector<std::int32_t> ids{0, 1, 2, 3};
  const std::vector<float> weights(4, 0.5F);
  const std::vector<float> logits(16, 0.0F);
  for (std::size_t count = 0; count <= ids.size(); ++count) {
    const routing_view view{.experts = std::span(ids).first(count),
                            .weights = std::span(weights).first(count),
                            .logits = std::span(logits).first(count / 2 * 8)};
    ASSERT_EQ(pages.plan(view, plan), count % 2 == 0 ? status::ok : status::invalid_visit)
        << count << " ids";
    if (count % 2 != 0) continue;
    ASSERT_EQ(pages.commit(plan), status::ok);
  }
}
TEST(pager_plan, partial_tokens_are_refused_with_every_policy) {
  expect_whole_tokens<pager<lru>>({.layout = shared(4)});
  expect_whole_tokens<pager<gate_score>>({.layout = shared(4)});
  expect_whole_tokens<pager<lru, after_n_uses>>({.layout = shared(4)});
  expect_whole_tokens<pager<lru, always, substitute>>({.layout = shared(4)});
  expect_whole_tokens<pager<lru, always, drop>>({.layout = shared(4)});
  expect_whole_tokens<pager<lru, always, compute_on_host>>({.layout = shared(4)});
}

// Hazard 11: choosing and reserving are one operation.
TEST(pager_plan, a_second_plan_cannot_choose_the_same_victim) {
  pager_walk w({.layout = shared(2)});
  w.visit(0, 0, {0, 1});
  ASSERT_EQ(w.try_plan(1, 0, {0, 2}), status::ok);
  auto other = w.decisions.make_plan();
  const std::vector<std::int32_t> ids{3, 4};
  EXPECT_EQ(w.decisions.plan(w.view(1, 1, ids), other), status::plan_open);
  EXPECT_EQ(w.decisions.plan_next(other), status::plan_open);
  EXPECT_EQ(w.decisions.plan_prefetch({}, {}, other), status::plan_open);
  EXPECT_EQ(w.decisions.plan_warm({}, other).code, status::plan_open);
  EXPECT_EQ(w.decisions.commit(other), status::no_plan);
  EXPECT_EQ(w.decisions.abort(other), status::no_plan);
  EXPECT_EQ(w.decisions.invalidate(expert_key{0_layer, 0_expert}), status::plan_open);
  EXPECT_EQ(w.decisions.invalidate(0_layer), status::plan_open);
  EXPECT_EQ(w.decisions.set_quota(0_layer, 2), status::plan_open);
  EXPECT_EQ(w.decisions.trim({}, 0, {}), 0U);
  EXPECT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_EQ(w.decisions.plan(w.view(1, 1, ids), other), status::ok);
  EXPECT_EQ(w.decisions.commit(other), status::ok);
}

TEST(pager_plan, a_plan_ends_once) {
  pager_walk w({.layout = shared(2)});
  EXPECT_EQ(w.decisions.commit(w.plan), status::no_plan);
  EXPECT_EQ(w.decisions.abort(w.plan), status::no_plan);
  EXPECT_EQ(w.decisions.plan_next(w.plan), status::no_plan);
  ASSERT_EQ(w.try_plan(0, 0, {0, 1}), status::ok);
  EXPECT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_EQ(w.decisions.commit(w.plan), status::no_plan);
  EXPECT_EQ(w.decisions.abort(w.plan), status::no_plan);
  ASSERT_EQ(w.try_plan(1, 0, {2, 3}), status::ok);
  EXPECT_EQ(w.decisions.abort(w.plan), status::ok);
  EXPECT_EQ(w.decisions.abort(w.plan), status::no_plan);
  EXPECT_EQ(w.decisions.commit(w.plan), status::no_plan);
}

TEST(pager_plan, a_view_that_cannot_be_is_refused) {
  pager_walk w({.layout = shared(4)});
  const std::vector<std::int32_t> nine(9, 0);
  const std::vector<std::int32_t> two{0, 1};
  const std::vector<float> one_weight{1.0F};
  EXPECT_EQ(w.decisions.plan(w.view(0, 2, two), w.plan), status::invalid_visit);
  EXPECT_EQ(w.decisions.plan(w.view(0, -1, two), w.plan), status::invalid_visit);
  EXPECT_EQ(w.decisions.plan(w.view(0, 0, nine), w.plan), status::visit_too_large);
  EXPECT_EQ(w.decisions.plan(w.view(0, 0, two, one_weight), w.plan), status::invalid_visit);
  visit_plan of_another(geometry{.layers = 1, .experts = 8, .top_k = 1});
  EXPECT_EQ(w.decisions.plan(w.view(0, 0, two), of_another), status::invalid_argument);
  EXPECT_EQ(w.decisions.plan_prefetch({}, {}, of_another), status::invalid_argument);
  EXPECT_EQ(w.stats(), pager<lru>({.layout = shared(4)}).stats());
  w.visit(0, 0, {0, 1});
}

TEST(pager_plan, a_group_is_not_written_into_a_plan_of_another_shape) {
  pager_walk w({.layout = shared(2)});
  ASSERT_EQ(w.try_plan(0, 0, {0, 1, 2, 3}), status::ok);
  ASSERT_TRUE(w.plan.more());
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  visit_plan of_another(geometry{.layers = 1, .experts = 8, .top_k = 1});
  EXPECT_EQ(w.decisions.plan_next(of_another), status::invalid_argument);
  EXPECT_EQ(w.decisions.plan_next(w.plan), status::ok);
}

TEST(pager_plan, a_plan_that_was_moved_from_is_refused_by_every_call) {
  pager_walk w({.layout = shared(2)});
  ASSERT_EQ(w.try_plan(0, 0, {0, 1, 2, 3}), status::ok);
  visit_plan moved(std::move(w.plan));
  EXPECT_EQ(w.decisions.commit(w.plan), status::no_plan);
  EXPECT_EQ(w.decisions.abort(w.plan), status::no_plan);
  ASSERT_EQ(w.decisions.commit(moved), status::ok);
  EXPECT_EQ(w.decisions.plan_next(w.plan), status::invalid_argument);
  const std::vector<std::int32_t> others{0, 1};  // the split visit's ids are still needed
  EXPECT_EQ(w.decisions.plan(w.view(1, 0, others), w.plan), status::visit_unfinished);
  EXPECT_EQ(w.decisions.plan_prefetch({}, {}, w.plan), status::invalid_argument);
  ASSERT_EQ(w.decisions.plan_next(moved), status::ok);
  w.plan = std::move(moved);
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  EXPECT_EQ(w.decisions.plan(w.view(1, 0, others), moved), status::invalid_argument);
  EXPECT_EQ(w.try_plan(1, 0, {0, 1}), status::ok);
}

// Hazard 10: if there is no permitted victim, a status is returned and nothing changes.
TEST(pager_plan, no_victim_changes_nothing) {
  support::told_lru::journal journal;
  pager_walk<pager<told_lru>> w({.layout = shared(3), .eviction = {&journal}});
  w.visit(0, 0, {0, 1});
  w.visit(0, 1, {0, 1});
  for (const expert_key k : {expert_key{0_layer, 1_expert}, expert_key{1_layer, 0_expert}})
    w.decisions.pin(w.decisions.locate(k));
  const auto told = journal.lines;
  const auto stats = w.stats();
  const auto hash = w.decisions.decision_hash();
  const auto order = w.decisions.residents();
  EXPECT_EQ(w.try_plan(1, 0, {4, 5}), status::no_victim);
  EXPECT_EQ(journal.lines, told);
  EXPECT_EQ(w.stats(), stats);
  EXPECT_EQ(w.decisions.decision_hash(), hash);
  EXPECT_EQ(w.decisions.residents(), order);
  EXPECT_EQ(w.decisions.commit(w.plan), status::no_plan);
  EXPECT_EQ(w.try_plan(1, 0, {4, 1}), status::ok) << "one slot is free to go, and 1 is there";
}

template <class P>
class pager_abort : public testing::Test {};
using policies = testing::Types<lru, fifo, lfu, lfru, gate_score, least_stale>;
TYPED_TEST_SUITE(pager_abort, policies);

/// Two pagers get the same visits; one also plans others and aborts them. Both must stay equal.
TYPED_TEST(pager_abort, leaves_no_trace) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    const auto slots = static_cast<std::int64_t>(2 + random.below(6));
    pager_walk<pager<TypeParam>> plain({.layout = shared(slots)});
    pager_walk<pager<TypeParam>> other({.layout = shared(slots)});
    const auto ids = [&] {
      std::vector<expert_id> out(2 * (1 + random.below(4)));
      for (auto& id : out) id = expert_id{random.id_below(9) - 1};
      return out;
    };
    for (step_id step = 0; step < 40; ++step)
      for (const auto layer : each<layer_id>(2)) {
        const auto wanted = ids();
        if (random.one_in(2)) {
          ASSERT_EQ(other.try_plan(step + random.below(2), random.id_below(2), ids()), status::ok);
          const std::vector<std::uint8_t> none(other.plan.fills().size(), 0);
          ASSERT_EQ(other.decisions.abort(other.plan, none), status::ok);
        }
        if (random.one_in(3)) {
          const std::vector<prefetch_request> requests{
              {{0_layer, expert_id{random.id_below(8)}}, step},
              {{1_layer, expert_id{random.id_below(8)}}, step}};
          ASSERT_EQ(
              other.decisions.plan_prefetch({layer, 0_pool, step, 0, {}}, requests, other.plan),
              status::ok);
          ASSERT_EQ(other.decisions.abort(other.plan), status::ok);
        }
        support::expect_consistent(other.decisions);
        plain.visit(step, layer, wanted);
        other.visit(step, layer, wanted);
        ASSERT_EQ(plain.stats(), other.stats());
        ASSERT_EQ(plain.decisions.decision_hash(), other.decisions.decision_hash());
        ASSERT_EQ(plain.decisions.residents(), other.decisions.residents());
        for (const auto l : each<layer_id>(2))
          ASSERT_TRUE(std::ranges::equal(plain.decisions.row(l), other.decisions.row(l)));
      }
  }
}

TEST(pager_plan, an_aborted_split_visit_is_not_in_the_statistics) {
  pager_walk w({.layout = shared(2)});
  const auto before = w.stats();
  ASSERT_EQ(w.try_plan(0, 0, {0, 1, 2, 3}), status::ok);
  ASSERT_EQ(w.plan.groups(), 2U);
  ASSERT_EQ(w.decisions.abort(w.plan), status::ok);
  EXPECT_EQ(w.stats(), before);
  w.visit(0, 0, {0, 1, 2, 3});
  EXPECT_EQ(w.stats().split_visits, 1U);
  EXPECT_EQ(w.stats().groups, 2U);
}

// Hazard 19: a started copy has overwritten its victim.
TEST(pager_plan, aborting_a_submitted_fill_frees_the_slot_and_both_keys) {
  support::told_lru::journal journal;
  pager_walk<pager<told_lru>> w({.layout = shared(3), .eviction = {&journal}});
  w.visit(0, 0, {0, 1});
  w.visit(0, 1, {7, 7});
  journal.lines.clear();
  ASSERT_EQ(w.try_plan(1, 0, {4, 5}), status::ok);  // victims: 0 and 1
  const auto slot = w.plan.fills()[0].slot;
  ASSERT_EQ(w.decisions.abort(w.plan, std::vector<std::uint8_t>{1, 0}), status::ok);
  support::expect_consistent(w.decisions);
  EXPECT_THAT(w.readable(0), ElementsAre(1))
      << "the fill that was not submitted gave its victim back";
  EXPECT_EQ(w.decisions.locate({0_layer, 4_expert}), no_slot);
  EXPECT_EQ(w.decisions.locate({0_layer, 5_expert}), no_slot);
  EXPECT_EQ(w.decisions.slot(slot).state, slot_state::free);
  EXPECT_EQ(w.stats().failed_fills, 1U);
  EXPECT_THAT(journal.lines, ElementsAre("evict 0"));
  ASSERT_EQ(w.try_plan(1, 0, {4, 1}), status::ok);
  ASSERT_EQ(w.plan.fills().size(), 1U);
  EXPECT_EQ(w.plan.fills()[0].slot, slot) << "the free slot is used first";
  EXPECT_EQ(w.plan.fills()[0].victim, no_key);
}

TEST(pager_plan, a_submitted_fill_of_a_free_slot_gives_the_slot_back) {
  pager_walk w({.layout = shared(3)});
  ASSERT_EQ(w.try_plan(0, 0, {4, 5}), status::ok);
  ASSERT_EQ(w.decisions.abort(w.plan, std::vector<std::uint8_t>{1, 1}), status::ok);
  EXPECT_EQ(w.stats().evictions, 0U);
  w.visit(0, 0, {0, 1});
  w.visit(1, 0, {2, 1});
  EXPECT_EQ(w.stats().evictions, 0U) << "all three slots are there";
}

TEST(pager_plan, abort_wants_an_entry_for_every_fill) {
  pager_walk w({.layout = shared(3)});
  ASSERT_EQ(w.try_plan(0, 0, {4, 5}), status::ok);
  EXPECT_EQ(w.decisions.abort(w.plan, std::vector<std::uint8_t>{1}), status::invalid_argument);
  EXPECT_EQ(w.decisions.commit(w.plan), status::ok) << "the plan is still open";
}

TEST(pager_plan, abort_of_all_but_a_submitted_fill_takes_back_in_reverse_order) {
  pager_walk w({.layout = shared(8)});
  ASSERT_EQ(w.try_plan(0, 0, {0, 1, 2, 3}), status::ok);
  const std::vector<slot_id> first(w.plan.slots().begin(), w.plan.slots().end());
  ASSERT_EQ(w.decisions.abort(w.plan), status::ok);
  ASSERT_EQ(w.try_plan(0, 0, {0, 1, 2, 3}), status::ok);
  EXPECT_TRUE(std::ranges::equal(w.plan.slots(), first));
}

// Hazard 21: two pagers share no state.
TEST(pager_plan, two_pagers_side_by_side_do_not_influence_each_other) {
  pager_walk alone({.layout = shared(3)});
  pager_walk a({.layout = shared(3)});
  pager_walk b({.layout = shared(3)});
  support::random_source random(5);
  for (step_id step = 0; step < 100; ++step) {
    const std::vector<std::int32_t> ids{random.id_below(8), random.id_below(8)};
    const std::vector<std::int32_t> others{random.id_below(8), random.id_below(8)};
    alone.visit(step, 0, ids);
    b.visit(step * 3, 1, others);
    a.visit(step, 0, ids);
  }
  EXPECT_EQ(a.stats(), alone.stats());
  EXPECT_EQ(a.decisions.decision_hash(), alone.decisions.decision_hash());
}

TEST(pager_plan, a_configuration_that_cannot_work_is_refused) {
  EXPECT_FALSE(pager<lru>::create({.layout = {}}).has_value());
  const auto bad = pager<lfu>::create({.layout = shared(3), .eviction = {.ageing_period = 0}});
  EXPECT_EQ(bad.has_value(), !lfu::config{.ageing_period = 0}.validate().has_value());
  EXPECT_THROW(pager<lru>({.layout = {}}), invalid_config);
}

// Hazard 7: the warning contains the required number of slots.
TEST(pager_plan, warns_of_a_pool_below_one_tokens_cycle_with_the_number) {
  const geometry deep{.layers = 5, .experts = 8, .top_k = 2};
  const auto warning = pager<lru>({.layout = pool_layout::shared(deep, 8).value()}).warning();
  ASSERT_TRUE(warning);
  EXPECT_THAT(*warning, testing::HasSubstr("use at least 9"));
  EXPECT_FALSE(pager<lru>({.layout = pool_layout::shared(deep, 9).value()}).warning());
  EXPECT_FALSE(pager<lru>({.layout = pool_layout::per_layer(deep, 2).value()}).warning());
}

TEST(pager_plan, the_warning_is_right) {
  const geometry deep{.layers = 5, .experts = 8, .top_k = 2};
  for (const auto& [slots, some_hit] : {std::pair{8, false}, std::pair{10, true}}) {
    pager_walk w({.layout = pool_layout::shared(deep, slots).value()});
    for (step_id step = 0; step < 20; ++step)
      for (const auto l : each<layer_id>(5)) w.visit(step, l, {number(l), number(l) + 1});
    EXPECT_EQ(w.stats().hits != 0, some_hit) << slots;
  }
}

TEST(pager_plan, only_a_split_by_expert_is_not_exact) {
  EXPECT_TRUE(pager<lru>({.layout = shared(3)}).is_exact());
  EXPECT_FALSE(pager<lru>({.layout = shared(3), .split = visit_split::by_expert}).is_exact());
}

}  // namespace
}  // namespace hotset::pager_plan_test
