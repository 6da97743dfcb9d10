// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/replay.hpp"

#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/replay/registry.hpp"
#include "naive_groups.hpp"
#include "sim_samples.hpp"
#include "uses_of.hpp"

namespace replay_test {
namespace {

using namespace hotset;
using lab::replay_mode;
using support::refusal;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Three tokens through one layer: {0,1}, {2,3}, {0,2}; then one token.
routing_trace three_then_one() {
  auto trace = support::empty_trace(1, 6, 2);
  support::add_step(trace, {{0, 1}, {2, 3}, {0, 2}}, request_class::prefill);
  support::add_step(trace, {{0, 5}});
  return trace;
}

pool_layout one_pool(const visit_sequence& visits, std::int64_t slots) {
  return pool_layout::shared(visits.shape(), slots).value();
}

TEST(replay, modes_go_by_name) {
  for (const auto mode : {replay_mode::event_atomic, replay_mode::deferred, replay_mode::per_access,
                          replay_mode::expert_by_expert})
    EXPECT_EQ(lab::parse_replay_mode(lab::name_of(mode)), mode);
  EXPECT_EQ(lab::name_of(replay_mode::event_atomic), "event-atomic");
}

TEST(replay, unknown_modes_list_the_accepted_ones) {
  for (const std::string name : {"", "atomic", "event_atomic"})
    EXPECT_THAT(refusal<lab::usage_error>([&] { (void)lab::parse_replay_mode(name); }),
                testing::AllOf(testing::StartsWith("replay '" + name + "'"),
                               HasSubstr("; accepted: event-atomic, deferred, per-access, "
                                         "expert-by-expert")));
}

TEST(replay, visits_that_fit_are_numbered_in_order) {
  const visit_sequence visits(three_then_one());
  const auto events = lab::order_events(visits, one_pool(visits, 4), true);
  EXPECT_THAT(events.first, IsEmpty());
  EXPECT_EQ(events.ordinal(1), 1U);
}

// Two slots: {0,1}; {2,3}; {0,2}: three groups; the single token is event 3.
TEST(replay, each_group_of_a_split_visit_is_an_event) {
  const visit_sequence visits(three_then_one());
  const auto layout = one_pool(visits, 2);
  const auto events = lab::order_events(visits, layout, true);
  EXPECT_THAT(events.first, ElementsAre(0U, 3U));
  EXPECT_EQ(events.ordinal(1), 3U);
  EXPECT_THAT(support::uses_of(*events.future, 0), ElementsAre(0U, 2U, 3U));
  EXPECT_THAT(support::uses_of(*events.future, 2), ElementsAre(1U, 2U));
  EXPECT_THAT(support::uses_of(*events.future, 4), IsEmpty());
}

// Three slots: token 0 opens {0,1}; token 2 adds one expert, token 1 two: {0,1,2}; then {2,3}.
TEST(replay, groups_agree_with_the_greedy_rule) {
  const visit_sequence visits(three_then_one());
  const auto events = lab::order_events(visits, one_pool(visits, 3), true);
  EXPECT_THAT(events.first, ElementsAre(0U, 2U));
  EXPECT_THAT(support::uses_of(*events.future, 2), ElementsAre(0U, 1U));
  EXPECT_THAT(support::uses_of(*events.future, 0), ElementsAre(0U, 2U));
}

TEST(replay, without_splitting_a_visit_is_one_event_whatever_its_size) {
  const visit_sequence visits(three_then_one());
  const auto events = lab::order_events(visits, one_pool(visits, 2), false);
  EXPECT_THAT(events.first, IsEmpty());
  EXPECT_THAT(support::uses_of(*events.future, 2), ElementsAre(0U));
}

// Two groups of two experts: events 0 and 1 belong to the visit, in whatever order experts are grouped.
TEST(replay, split_by_expert_a_visit_uses_its_first_event_and_leaves_room) {
  const visit_sequence visits(three_then_one());
  const auto events = lab::order_events(visits, one_pool(visits, 2), true, visit_split::by_expert);
  EXPECT_THAT(events.first, ElementsAre(0U, 2U));
  EXPECT_THAT(support::uses_of(*events.future, 0), ElementsAre(0U, 2U));
  EXPECT_THAT(support::uses_of(*events.future, 2), ElementsAre(0U));
}

TEST(replay, order_events_equals_counting_by_hand) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const visit_sequence visits(
        support::random_trace(seed, {.layers = 3,
                                     .experts = 7,
                                     .steps = 12,
                                     .most_tokens = 5,
                                     .absent_one_in = seed % 2 == 0 ? 0U : 6U}));
    const auto slots = 2 + static_cast<std::int64_t>(seed % 6);
    const auto layout = seed % 3 == 0 ? one_pool(visits, slots)
                                      : pool_layout::per_layer(visits.shape(), slots).value();
    const auto k = static_cast<std::size_t>(visits.shape().top_k);
    std::map<std::size_t, std::vector<std::uint32_t>> uses;
    std::vector<std::uint64_t> first;
    std::uint32_t next = 0;
    const auto use = [&](layer_id layer, expert_id e) {
      auto& of_key = uses[visits.shape().index({layer, e})];
      if (of_key.empty() || of_key.back() != next) of_key.push_back(next);
    };
    for (std::size_t i = 0; i < visits.size(); ++i) {
      first.push_back(next);
      const auto view = visits[i];
      std::set<expert_id> all(view.experts.begin(), view.experts.end());
      all.erase(no_expert);
      if (std::ssize(all) <= slots) {
        for (const auto e : all) use(view.layer, e);
        ++next;
        continue;
      }
      for (const auto& group :
           support::naive_groups(view.experts, k, static_cast<std::size_t>(slots),
                                 [](expert_id e) { return e >= 0; })) {
        for (const std::size_t token : group)
          for (const auto e : view.experts.subspan(token * k, k))
            if (e >= 0) use(view.layer, e);
        ++next;
      }
    }
    const auto events = lab::order_events(visits, layout, true);
    for (std::size_t i = 0; i < visits.size(); ++i) ASSERT_EQ(events.ordinal(i), first[i]);
    for (std::size_t key = 0; key < visits.shape().keys(); ++key)
      ASSERT_THAT(support::uses_of(*events.future, key), testing::ElementsAreArray(uses[key]))
          << key;
  }
}

TEST(replay, groups_of_the_pager_are_the_events) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    auto trace = support::random_trace(seed, {.experts = 9, .steps = 20, .most_tokens = 6});
    support::add_step(trace, {{0, 1, 0, 1}});  // ends with visits of one event
    trace.weights.clear();
    const visit_sequence visits(trace);
    const auto layout = one_pool(visits, 4);
    const auto first = lab::order_events(visits, layout, true).first;
    std::uint64_t groups = 0, split = 0;
    for (std::size_t i = 1; i < first.size(); ++i) {
      const auto count = first[i] - first[i - 1];
      groups += count > 1 ? count : 0;
      split += count > 1 ? 1U : 0U;
    }
    auto pager = lab::make_pager({"lru", "always", layout});
    lab::replay(visits, {}, pager);
    EXPECT_EQ(pager.stats().groups, groups);
    EXPECT_EQ(pager.stats().split_visits, split);
  }
}

// {0 1}, then {2 3}: the oldest is evicted. The running visit stays, above the budget.
TEST(replay, a_budget_holds_after_each_visit_unless_the_visit_alone_exceeds_it) {
  const visit_sequence visits(support::one_layer(6, {{0, 1}, {2, 3}, {0, 1}}));
  const auto layout = one_pool(visits, 6);
  const auto hits = [&](std::uint64_t bytes) {
    auto pager = lab::make_pager({"lru", "always", layout});
    const std::vector budget{bytes};
    lab::replay(visits, {}, pager, nullptr, budget);
    EXPECT_LE(pager.stats().fills - pager.stats().evictions, std::max<std::uint64_t>(bytes, 2));
    return pager.stats().hits;
  };
  EXPECT_EQ(hits(1), 0U);
  EXPECT_EQ(hits(3), 1U);
  EXPECT_EQ(hits(4), 2U) << "a budget for everything evicts nothing";
}

TEST(replay, a_visit_that_fails_is_named) {
  const visit_sequence visits(support::random_trace(4, {.layers = 2, .steps = 5}));
  const visit_sequence first_layer(support::random_trace(4, {.layers = 1, .steps = 5}));
  auto pager = lab::make_pager({"lru", "always", one_pool(first_layer, 4)});
  const auto message = refusal<lab::infeasible_error>([&] { lab::replay(visits, {}, pager); });
  EXPECT_THAT(message, HasSubstr("visit 1 (step 0, layer 1): "));
  EXPECT_THAT(message, HasSubstr(std::string(describe(status::invalid_visit))));
}

}  // namespace
}  // namespace replay_test
