// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/expert_engine.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/errors.hpp"
#include "lab/replay/sweep.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "sim_samples.hpp"

namespace hotset::expert_engine_test {
namespace {

using lab::policy_set;
using lab::run_result;
using lab::sweep_request;
using support::refusal;
using testing::HasSubstr;

/// One byte takes one nanosecond.
const lab::link_request slow_link{{1'000'000'000, 0, 0}, "1GB/s"};

run_result run(const routing_trace& trace, const std::string& replay, const policy_set& policies,
               const std::string& slots, const lab::visit_costs& costs = {}, bool timed = true) {
  sweep_request request;
  request.policies = {policies};
  request.replays = {lab::parse_replay_mode(replay)};
  request.sizes = {lab::size_request::parse_slots(slots)};
  if (timed) request.links = {slow_link};
  request.costs = costs;
  return lab::run_sweep(trace, request).results.front();
}
run_result by_expert(const routing_trace& trace, const policy_set& policies,
                     const std::string& slots, const lab::visit_costs& costs = {},
                     bool timed = true) {
  return run(trace, "expert-by-expert", policies, slots, costs, timed);
}

// Two slots, three experts per token. Step 0: 2 takes the slot of 0. Step 1: 0 takes the slot of 1. The same step
// then misses 1 and 2; 1 takes the slot of 2.
TEST(expert_engine, an_expert_of_a_visit_may_lose_its_slot_to_the_next) {
  auto trace = support::empty_trace(1, 4, 3);
  trace.expert_bytes = {1000};
  support::add_step(trace, {{0, 1, 2}});
  support::add_step(trace, {{0, 1, 2}});
  const auto r = by_expert(trace, {}, "2", {.per_visit = 300});
  EXPECT_EQ(r.stats.hits, 0U);
  EXPECT_EQ(r.stats.misses, 6U);
  EXPECT_EQ(r.stats.collision_misses, 2U);
  EXPECT_EQ(r.outcome->times.total, 6U * (1000 + 100));
  EXPECT_EQ(r.outcome->times.blocked, 6000U);
  EXPECT_EQ(r.replay, "expert-by-expert");
  EXPECT_THAT(r.notes, testing::Contains(HasSubstr("only to compare with SpecMD")));
}

/// Two layers of two experts per token; the first layer's weights exceed those of experts without a score.
routing_trace one_token() {
  auto trace = support::empty_trace(2, 4, 2);
  trace.expert_bytes = {1000};
  support::add_step(trace, {{0, 1, 2, 3}});
  trace.weights = {.75F, .25F, .5F, .5F};
  return trace;
}

// Three slots. Layer 0 gives 0.0 and 0.1 scores. While 0.1 is read, 1.2 takes the free slot. After 1.2 has arrived,
// 1.3 evicts it, because it has no score yet. The miss of 1.2 then evicts 1.3. An engine places both at once,
// protects pending copies and experts that are read, and so 1.2 arrives in time.
TEST(expert_engine, a_later_prefetch_may_evict_an_earlier_one) {
  policy_set policies{.eviction = "gate_score", .prefetch = "noisy_oracle", .guard = "none"};
  const lab::visit_costs costs{.gate = 500, .per_visit = 4000};
  for (const bool timed : {true, false}) {
    const auto r = by_expert(one_token(), policies, "3", costs, timed);
    EXPECT_EQ(r.stats.hits, 0U);
    EXPECT_EQ(r.stats.collision_misses, 2U);
  }
  const auto whole = run(one_token(), "event-atomic", policies, "3", costs);
  EXPECT_EQ(whole.stats.prefetch_hits, 1U);
  EXPECT_EQ(whole.stats.collision_misses, 0U);
  for (const auto* eviction : {"lru", "least_stale"}) {
    policies.eviction = eviction;
    const auto r = by_expert(one_token(), policies, "3", costs);
    EXPECT_EQ(r.stats.prefetch_hits, 2U) << eviction;
    EXPECT_EQ(r.stats.collision_misses, 0U) << eviction;
    EXPECT_EQ(r.outcome->times.blocked, 2000U) << eviction;
    EXPECT_EQ(r.outcome->times.total, 2U * (500 + 4000) + 2000) << eviction;
  }
}

// The second prefetch is placed when the first has ended, 1000 after the last lookup of layer 0. If the next layer
// comes earlier, the prefetch is dropped.
TEST(expert_engine, a_prefetch_not_placed_before_its_layer_is_a_miss) {
  const policy_set recent{.eviction = "lru", .prefetch = "noisy_oracle", .guard = "none"};
  const auto r = by_expert(one_token(), recent, "4", {.per_visit = 1000});
  EXPECT_EQ(r.stats.prefetch_hits, 1U) << "500 of its copy are over, 500 are waited for";
  EXPECT_EQ(r.stats.late_prefetches, 1U);
  EXPECT_EQ(r.stats.misses, 3U);
  EXPECT_EQ(r.outcome->queue.expired, 1U);
  EXPECT_EQ(r.outcome->times.blocked, 2000U + 500 + 1000);
}

TEST(expert_engine, weights_of_tokens_that_share_an_expert_add_up) {
  auto trace = support::empty_trace(1, 4, 1);
  trace.expert_bytes = {1000};
  support::add_step(trace, {{0}, {0}, {1}}, request_class::prefill);
  support::add_step(trace, {{2}});
  support::add_step(trace, {{0}});
  trace.weights = {.25F, .25F, .375F, 1.F, 1.F};
  const auto r = by_expert(trace, {.eviction = "gate_score"}, "2");
  EXPECT_EQ(r.stats.accesses, 4U);
  EXPECT_EQ(r.stats.hits, 1U) << "2 takes the slot of 1: .375 against .5";
}

TEST(expert_engine, one_expert_a_visit_is_event_atomic) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const auto trace = synthetic_trace({.layers = 5,
                                        .experts = 8,
                                        .top_k = 1,
                                        .sequences = 2,
                                        .tokens = 60,
                                        .zipf = 0.6,
                                        .expert_bytes = 1000,
                                        .seed = seed})
                           .value();
    for (const auto* eviction : {"lru", "lfu", "gate_score", "furthest_layer", "least_stale"}) {
      const lab::visit_costs costs{.gate = 50, .per_visit = 300, .per_token = 7};
      const auto one = by_expert(trace, {.eviction = eviction}, "9", costs);
      const auto whole = run(trace, "event-atomic", {.eviction = eviction}, "9", costs);
      EXPECT_EQ(one.stats, whole.stats) << eviction << seed;
      EXPECT_EQ(one.decision_hash, whole.decision_hash) << eviction << seed;
      EXPECT_EQ(one.outcome->times.total, whole.outcome->times.total) << eviction << seed;
      EXPECT_EQ(one.outcome->times.blocked, whole.outcome->times.blocked) << eviction << seed;
    }
  }
}

TEST(expert_engine, refuses_unsupported_replays) {
  const auto trace = one_token();
  EXPECT_THAT(refusal<lab::usage_error>([&] { (void)by_expert(trace, {.miss = "drop"}, "2"); }),
              HasSubstr("accepted: --miss fetch"));
  EXPECT_THAT(
      refusal<lab::usage_error>([&] { (void)by_expert(trace, {.eviction = "belady"}, "2"); }),
      HasSubstr("accepted: any other eviction"));
  sweep_request request;
  request.policies = {policy_set{.eviction = "lhu", .miss = "fetch_priority"}};
  request.replays = {lab::replay_mode::expert_by_expert};
  request.sizes = {lab::size_request::parse_slots("4")};
  request.precisions = {lab::precision_ladder::parse("8:4")};
  EXPECT_THAT(refusal<lab::usage_error>([&] { (void)lab::run_sweep(trace, request); }),
              HasSubstr("one precision"));
}

}  // namespace
}  // namespace hotset::expert_engine_test
