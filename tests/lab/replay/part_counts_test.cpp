// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/part_counts.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/traces/synthetic/synthetic.hpp"
#include "sim_samples.hpp"

namespace hotset::part_counts_test {
namespace {

using lab::run_result;
using lab::sequence_counts;
using lab::sweep_request;
using lab::window_counts;
using testing::ElementsAre;

/// Steps of up to four tokens of three sequences.
routing_trace several_sequences(std::uint64_t seed, std::size_t steps = 130) {
  auto trace = support::random_trace(seed, {.layers = 3,
                                            .experts = 12,
                                            .top_k = 1 + static_cast<std::int32_t>(seed % 3),
                                            .steps = steps,
                                            .most_tokens = 4,
                                            .absent_one_in = 9});
  support::random_source random(seed + 100);
  for (auto& sequence : trace.sequence) sequence = static_cast<std::uint32_t>(7 * random.below(3));
  return trace;
}

run_result run(const routing_trace& trace, sweep_request request) {
  request.parts = true;
  return lab::run_sweep(trace, request).results.front();
}

void expect_windows_add_up(const run_result& run, const routing_trace& trace, std::size_t steps) {
  window_counts sum;
  std::uint64_t next = 0;
  for (const auto& window : run.windows) {
    EXPECT_EQ(window.first_step, next);
    EXPECT_LE(window.steps, run.windows.front().steps);
    next += window.steps;
    sum.tokens += window.tokens;
    sum.accesses += window.accesses;
    sum.hits += window.hits;
    sum.fills += window.fills;
  }
  EXPECT_EQ(next, steps);
  EXPECT_LE(run.windows.size(), 100U);
  EXPECT_EQ(sum.tokens, trace.tokens());
  EXPECT_EQ(sum.accesses, run.stats.accesses);
  EXPECT_EQ(sum.hits, run.stats.hits);
  EXPECT_EQ(sum.fills, run.stats.fills);
}

void expect_sequences_add_up(const run_result& run, const routing_trace& trace) {
  ASSERT_TRUE(run.by_sequence);
  sequence_counts sum;
  for (const auto& one : *run.by_sequence) {
    EXPECT_LE(one.hits, one.accesses);
    sum.tokens += one.tokens;
    sum.accesses += one.accesses;
    sum.hits += one.hits;
  }
  EXPECT_EQ(run.by_sequence->size(),
            std::set<std::uint32_t>(trace.sequence.begin(), trace.sequence.end()).size());
  EXPECT_EQ(sum.tokens, trace.tokens());
  EXPECT_EQ(sum.accesses, run.stats.accesses);
  EXPECT_EQ(sum.hits, run.stats.hits);
}

void expect_layers_add_up(const run_result& run) {
  layer_counts sum;
  for (const auto& layer : run.stats.per_layer) {
    sum.accesses += layer.accesses;
    sum.hits += layer.hits;
    sum.collisions += layer.collisions;
    sum.compulsory += layer.compulsory;
    sum.bytes_filled += layer.bytes_filled;
  }
  EXPECT_EQ(sum.accesses, run.stats.accesses);
  EXPECT_EQ(sum.hits, run.stats.hits);
  EXPECT_EQ(sum.collisions, run.stats.collision_misses);
  EXPECT_EQ(sum.compulsory, run.stats.compulsory_misses);
  EXPECT_EQ(sum.bytes_filled, run.stats.bytes_filled);
}

TEST(part_counts, add_up_to_the_totals_of_every_replay) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const auto trace = several_sequences(seed);
    for (const std::string eviction : {"lru", "lfu", "belady", "belady_bypass", "similar_steps"})
      for (const std::string scope : {"shared", "per-layer"})
        for (const std::string replay : {"event-atomic", "deferred", "per-access"})
          for (const std::string admission : {"always", "after_n_uses"}) {
            if (eviction == "belady_bypass" && (admission != "always" || replay == "deferred"))
              continue;
            SCOPED_TRACE(trace.name + ' ' + eviction + ' ' + scope + ' ' + replay + ' ' +
                         admission);
            const std::string slots = replay == "deferred" ? "20B" : "5";  // visits are split
            const auto result =
                run(trace, support::sweep_of({eviction, scope, slots, replay, admission}));
            expect_windows_add_up(result, trace, 130);
            expect_sequences_add_up(result, trace);
            expect_layers_add_up(result);
          }
  }
}

TEST(part_counts, add_up_with_a_clock_prefetches_and_policies_that_change_the_visit) {
  const auto trace = synthetic_trace({.layers = 4,
                                      .experts = 16,
                                      .top_k = 3,
                                      .sequences = 4,
                                      .prefill = 5,
                                      .tokens = 40,
                                      .zipf = 0.7,
                                      .scores = true,
                                      .predictor_noise = 0.2,
                                      .expert_bytes = 4000,
                                      .seed = 5})
                         .value();
  const lab::policy_set prefetching{.prefetch = "next_layer_top_k"};
  const lab::policy_set freeing{.pre_eviction = "active_evict:release=gate"};
  const lab::policy_set dropping{.miss = "drop"};
  const lab::policy_set rerouting{.routing = "cache_aware"};
  for (const auto& policies : {lab::policy_set{}, prefetching, freeing, dropping, rerouting})
    for (const auto scope : {cache_scope::shared, cache_scope::per_layer}) {
      SCOPED_TRACE(policies.prefetch + ' ' + policies.pre_eviction + ' ' + policies.miss + ' ' +
                   policies.routing);
      sweep_request request;
      request.policies = {policies};
      request.scopes = {scope};
      request.sizes = {lab::size_request::parse_slots("50%")};
      request.links = {{{1'000'000'000, 0, 0}, "1GB/s"}};
      const auto result = run(trace, request);
      ASSERT_TRUE(result.outcome);
      expect_windows_add_up(result, trace, result.stats.steps);
      expect_sequences_add_up(result, trace);
      expect_layers_add_up(result);
    }
}

TEST(part_counts, are_windows_of_equal_numbers_of_steps) {
  const auto at = [](std::size_t steps) {
    return run(several_sequences(1, steps), support::sweep_of({})).windows;
  };
  EXPECT_EQ(at(1).size(), 1U);
  EXPECT_EQ(at(100).size(), 100U);
  const auto windows = at(250);
  ASSERT_EQ(windows.size(), 84U);
  EXPECT_EQ(windows[0].steps, 3U);
  EXPECT_EQ(windows[83].first_step, 249U);
  EXPECT_EQ(windows[83].steps, 1U);
}

// Both sequences use expert 1 in the first step; the access is that of the first one.
TEST(part_counts, an_expert_of_two_sequences_counts_for_the_first) {
  auto trace = support::empty_trace(1, 4, 2);
  support::add_step(trace, {{0, 1}, {1, 2}});
  support::add_step(trace, {{3, 1}});
  trace.sequence = {5, 4, 4};
  const auto result = run(trace, support::sweep_of({"lru", "shared", "4"}));
  EXPECT_THAT(*result.by_sequence,
              ElementsAre(sequence_counts{5, 1, 2, 0}, sequence_counts{4, 2, 3, 1}));
  EXPECT_THAT(result.windows,
              ElementsAre(window_counts{0, 1, 2, 3, 0, 3}, window_counts{1, 1, 1, 2, 1, 1}));
}

TEST(part_counts, a_thousand_sequences_are_listed) {
  auto trace = support::random_trace(1, {.steps = 1500});
  for (std::size_t t = 0; t < trace.tokens(); ++t)
    trace.sequence[t] = static_cast<std::uint32_t>(9999 - t);
  const auto result = run(trace, support::sweep_of({}));
  ASSERT_EQ(result.by_sequence->size(), 1000U);
  EXPECT_EQ(result.by_sequence->front().sequence, 9999U);
  EXPECT_EQ(result.by_sequence->back().sequence, 9000U);
}

TEST(part_counts, sequences_are_not_counted_where_a_visit_does_not_decide_its_hits) {
  const auto trace = several_sequences(2);
  EXPECT_FALSE(
      run(trace, support::sweep_of({"lru", "shared", "6", "expert-by-expert"})).by_sequence);
  auto sized = trace;
  sized.expert_bytes = {1000};
  auto request = support::sweep_of({"lru", "shared", "100%"});
  request.precisions = {lab::precision_ladder::parse("8:4")};
  request.policies.front().miss = "fetch_priority";
  const auto result = run(sized, request);
  EXPECT_FALSE(result.by_sequence);
  expect_windows_add_up(result, sized, 130);
}

TEST(part_counts, nothing_is_counted_unless_asked_and_decisions_stay) {
  const auto trace = several_sequences(3);
  const auto plain = support::one_run(trace, {});
  EXPECT_TRUE(plain.windows.empty());
  EXPECT_FALSE(plain.by_sequence);
  const auto counted = run(trace, support::sweep_of({}));
  EXPECT_EQ(counted.stats, plain.stats);
  EXPECT_EQ(counted.decision_hash, plain.decision_hash);
}

TEST(part_counts, a_layer_has_slots_if_it_shares_its_pool_with_no_other) {
  const auto trace = several_sequences(1);
  EXPECT_THAT(support::one_run(trace, {"lru", "per-layer", "5"}).layer_slots, ElementsAre(5, 5, 5));
  EXPECT_THAT(support::one_run(trace, {"lru", "shared", "5"}).layer_slots,
              testing::Each(std::nullopt));
}

}  // namespace
}  // namespace hotset::part_counts_test
