// SPDX-License-Identifier: Apache-2.0
// Sizes that are counted in one walk, against a pager or an engine for each.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/replay/sweep.hpp"
#include "sim_samples.hpp"

namespace counted_together_test {
namespace {

using namespace hotset;
using lab::sweep_request;
using support::random_trace;

const std::vector<std::string> policies{"lru", "fifo", "lfu", "belady"};

sweep_request asked(const std::vector<std::string>& sizes,
                    const std::vector<std::string>& evictions = policies) {
  sweep_request request;
  request.policies = support::policy_sets(evictions);
  for (const auto& text : sizes) request.sizes.push_back(lab::size_request::parse_slots(text));
  request.counts_alone = true;
  return request;
}
/// The same with a pager for each run.
sweep_request replayed(sweep_request request) {
  request.counts_alone = false;
  return request;
}

/// As far as an outcome without a link tells anything.
void expect_same_outcome(const std::optional<lab::replay_outcome>& a,
                         const std::optional<lab::replay_outcome>& b) {
  ASSERT_EQ(a.has_value(), b.has_value());
  if (!a) return;
  EXPECT_DOUBLE_EQ(a->mass.routed, b->mass.routed);
  EXPECT_EQ(a->mass.lost, b->mass.lost);
  EXPECT_EQ(a->confidence, b->confidence);
  EXPECT_EQ(a->bytes_back, b->bytes_back);
  EXPECT_EQ(a->streamed, b->streamed);
}

/// Returns how many runs were counted together.
std::uint64_t expect_counts_of_pagers(const routing_trace& trace, const sweep_request& request) {
  const auto pagers = lab::run_sweep(trace, replayed(request));
  const auto counts = lab::run_sweep(trace, request);
  EXPECT_EQ(counts.results.size(), pagers.results.size());
  EXPECT_EQ(counts.not_replayed, pagers.not_replayed);
  EXPECT_EQ(pagers.together, 0U);
  for (std::size_t i = 0; i < std::min(counts.results.size(), pagers.results.size()); ++i) {
    const auto& a = counts.results[i];
    const auto& b = pagers.results[i];
    SCOPED_TRACE(b.policies.eviction + ' ' + b.scope + ' ' + b.replay + ' ' +
                 std::to_string(b.slots));
    EXPECT_TRUE(a.stats == b.stats);
    EXPECT_EQ(a.stats.hits, b.stats.hits);
    EXPECT_EQ(a.stats.collision_misses, b.stats.collision_misses);
    EXPECT_EQ(a.stats.evictions, b.stats.evictions);
    EXPECT_EQ(a.policies.eviction, b.policies.eviction);
    EXPECT_EQ(a.scope, b.scope);
    EXPECT_EQ(a.replay, b.replay);
    EXPECT_EQ(a.size, b.size);
    EXPECT_EQ(a.slots, b.slots);
    EXPECT_EQ(a.budget_bytes, b.budget_bytes);
    EXPECT_EQ(a.notes, b.notes);
    if (a.decision_hash != 0) {
      EXPECT_EQ(a.decision_hash, b.decision_hash);
    }
    expect_same_outcome(a.outcome, b.outcome);
  }
  return counts.together;
}

/// Ids of a token may repeat here, and be absent.
routing_trace with_repeats(std::uint64_t seed) {
  support::random_source random(seed);
  auto trace = support::empty_trace(3, 10, 3);
  for (std::size_t step = 0; step < 120; ++step) {
    std::vector<std::vector<expert_id>> tokens(1 + random.below(2));
    for (auto& row : tokens)
      for (int i = 0; i < 9; ++i)
        row.push_back(random.one_in(9) ? no_expert : expert_id{random.id_below(10)});
    support::add_step(trace, tokens, random.one_in(3) ? request_class::prefill : request_class{});
  }
  return trace;
}

TEST(counted_together, decode_of_one_token) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto trace = random_trace(
        seed, {.layers = 4, .experts = 16, .top_k = 3, .steps = 300, .skewed = seed % 2 == 0});
    auto request = asked({"3", "4", "7", "12", "16", "33", "64"});
    request.scopes = {"shared", "per-layer"};
    EXPECT_EQ(expect_counts_of_pagers(trace, request), policies.size() * 14);
  }
}

TEST(counted_together, visits_of_many_tokens) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    auto trace = random_trace(seed, {.layers = 3,
                                     .experts = 20,
                                     .top_k = 2,
                                     .steps = 150,
                                     .most_tokens = 5,
                                     .absent_one_in = 7});
    trace.expert_bytes = {100, 250, 70};
    auto request = asked({"10", "11", "13", "17", "20", "45"});
    request.scopes = {"shared", "per-layer"};
    EXPECT_GE(expect_counts_of_pagers(trace, request), policies.size() * 10);
  }
}

TEST(counted_together, ids_that_repeat_within_a_token) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    auto request = asked({"6", "7", "8", "9", "20"});
    request.scopes = {"shared", "per-layer"};
    EXPECT_GE(expect_counts_of_pagers(with_repeats(seed), request), policies.size() * 9);
  }
}

// --- policies that order by next_use_values: a pager for each size, and one for all that values experts

const std::vector<std::string> by_values{
    "similar_steps", "two_rate", "similar_steps:rows=256:matches=3:reach=9", "two_rate:fast=5"};

/// The values are those of a layer's visits: in pools of one layer who asks for them depends on the size.
std::uint64_t expect_decisions_of_pagers(const routing_trace& trace, sweep_request request) {
  const auto counted = expect_counts_of_pagers(trace, request);
  for (const auto& run : lab::run_sweep(trace, request).results) EXPECT_NE(run.decision_hash, 0U);
  request.scopes = {"per-layer"};
  EXPECT_EQ(expect_counts_of_pagers(trace, request), 0U);
  return counted;
}

TEST(counted_together, values_of_one_token_are_shared) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto trace = random_trace(
        seed, {.layers = 4, .experts = 16, .top_k = 3, .steps = 300, .skewed = seed % 2 == 0});
    EXPECT_EQ(expect_decisions_of_pagers(trace, asked({"3", "4", "16", "33", "64"}, by_values)),
              by_values.size() * 5);
  }
}

TEST(counted_together, values_of_many_tokens_and_sequences_are_shared) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    auto trace = random_trace(seed, {.layers = 3,
                                     .experts = 20,
                                     .top_k = 2,
                                     .steps = 400,
                                     .most_tokens = 4,
                                     .absent_one_in = 7});
    for (auto& sequence : trace.sequence) sequence = static_cast<std::uint32_t>(random.below(5));
    EXPECT_GE(expect_decisions_of_pagers(trace, asked({"8", "11", "20", "45"}, by_values)),
              by_values.size() * 3);
  }
}

// Sizes are cut into parts for workers that would be idle; of one size there is nothing to cut.
TEST(counted_together, any_number_of_jobs_is_told_the_same_values) {
  const auto trace = random_trace(16, {.layers = 3, .experts = 12, .steps = 100});
  for (const unsigned jobs : {0U, 2U, 3U, 4U, 9U, 100U}) {
    SCOPED_TRACE(std::to_string(jobs) + " jobs");
    auto request = asked({"4", "6", "8", "12", "50%"}, {"similar_steps", "lru"});
    request.jobs = jobs;
    EXPECT_EQ(expect_counts_of_pagers(trace, request), 10U);
  }
}

// Of a layer's visits in a step only the first is valued.
TEST(counted_together, values_of_each_access_are_shared) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto trace =
        random_trace(seed, {.layers = 2, .experts = 12, .top_k = 3, .steps = 80, .most_tokens = 6});
    auto request = asked({"1", "2", "5", "24"}, by_values);
    request.replays = {"per-access"};
    EXPECT_EQ(expect_decisions_of_pagers(trace, request), by_values.size() * 4);
  }
}

TEST(counted_together, what_needs_an_engine_is_not_told_values) {
  const auto trace = random_trace(15, {.layers = 3, .experts = 12, .steps = 60});
  auto request = asked({"6"}, {"similar_steps"});
  for (auto& set : request.policies) set.prefetch = "previous_step";
  EXPECT_EQ(expect_counts_of_pagers(trace, request), 0U);
  EXPECT_EQ(expect_counts_of_pagers(
                trace, asked({"6"}, {"importance", "protect_hot+similar_steps", "least_stale"})),
            0U);
}

TEST(counted_together, each_access_by_itself) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto trace =
        random_trace(seed, {.layers = 2, .experts = 12, .top_k = 3, .steps = 80, .most_tokens = 6});
    auto request = asked({"1", "2", "3", "5", "8", "24"});
    request.scopes = {"shared", "per-layer"};
    request.replays = {"per-access"};
    EXPECT_GE(expect_counts_of_pagers(trace, request), policies.size() * 10);
  }
}

TEST(counted_together, sizes_that_are_equal_or_out_of_order) {
  const auto trace = random_trace(3, {.layers = 3, .experts = 8, .steps = 200});
  EXPECT_EQ(expect_counts_of_pagers(trace, asked({"9", "4", "9", "2", "4", "50%"})),
            policies.size() * 6);
}

TEST(counted_together, sizes_beyond_all_keys) {
  const auto trace = random_trace(4, {.layers = 2, .experts = 8, .steps = 100});
  (void)expect_counts_of_pagers(trace, asked({"100%", "500", "8", "1000"}));
}

TEST(counted_together, more_sizes_than_a_word_has_bits) {
  const auto trace = random_trace(5, {.layers = 6, .experts = 16, .steps = 120});
  std::vector<std::string> sizes;
  for (int slots = 2; slots < 90; ++slots) sizes.push_back(std::to_string(slots));
  EXPECT_EQ(expect_counts_of_pagers(trace, asked(sizes)), policies.size() * 88);
}

// Bytes are divided by layer: of two budgets, none need be the larger one in every pool.
TEST(counted_together, pools_of_unequal_layers) {
  auto trace = random_trace(6, {.layers = 3, .experts = 10, .steps = 150});
  trace.expert_bytes = {100, 300, 700};
  auto request = asked({"6"});
  request.scopes = {"shared", "per-layer"};
  request.size_classes = true;
  for (const auto* budget : {"5000B", "6000B", "9000B"})
    request.sizes.push_back(lab::size_request::parse_budget(budget));
  EXPECT_GT(expect_counts_of_pagers(trace, request), 0U);
}

TEST(counted_together, any_number_of_jobs_gives_the_same) {
  const auto trace = random_trace(7, {.layers = 3, .experts = 12, .steps = 100, .most_tokens = 2});
  auto request = asked({"4", "8", "50%"}, {"lru", "fifo", "least_stale", "lfu", "belady"});
  request.jobs = 3;
  EXPECT_EQ(expect_counts_of_pagers(trace, request), policies.size() * 3);
}

TEST(counted_together, long_steps_that_are_cut) {
  const auto trace = random_trace(8, {.layers = 3, .experts = 12, .steps = 60, .most_tokens = 6});
  auto request = asked({"4", "8", "50%"});
  request.max_tokens = 2;
  EXPECT_EQ(expect_counts_of_pagers(trace, request), policies.size() * 3);
}

TEST(counted_together, a_size_that_splits_visits_is_replayed) {
  const auto trace = random_trace(9, {.layers = 2, .experts = 12, .steps = 60, .most_tokens = 6});
  EXPECT_EQ(expect_counts_of_pagers(trace, asked({"4", "12", "13"})), policies.size() * 2);
}

TEST(counted_together, what_is_no_plain_pager_is_replayed) {
  const auto trace = random_trace(10, {.layers = 3, .experts = 12, .steps = 60});
  const auto none = [&](const sweep_request& request) {
    EXPECT_EQ(expect_counts_of_pagers(trace, request), 0U);
  };
  none(asked({"4"}, {"least_stale", "lfu:history=resident", "lfu:ageing_period=9",
                     "lfu:history=whole", "eviction.belady"}));
  auto request = asked({"4"});
  request.policies = support::policy_sets(policies, {"budgeted"});
  none(request);
  request = asked({"4"});
  request.replays = {"deferred"};
  none(request);
  request = asked({"4"});
  request.split = visit_split::by_expert;
  none(request);
  request = asked({"4"});
  for (auto& set : request.policies) set.guard = "none";
  none(request);
}

TEST(counted_together, decisions_that_are_logged_come_from_pagers) {
  const auto trace = random_trace(11, {.layers = 2, .experts = 8, .steps = 40});
  auto request = asked({"4"}, {"lru"});
  std::ostringstream log;
  request.decisions = &log;
  EXPECT_NE(lab::run_sweep(trace, request).results.front().decision_hash, 0U);
  EXPECT_FALSE(log.str().empty());
}

TEST(counted_together, what_cannot_be_done_is_refused_in_its_turn) {
  const auto trace = random_trace(12, {.layers = 2, .experts = 8, .steps = 40});
  const auto refused = [&](const sweep_request& request) {
    return support::refusal<lab::infeasible_error>([&] { (void)lab::run_sweep(trace, request); });
  };
  const auto request = asked({"4", "1", "6"});
  EXPECT_EQ(refused(request), refused(replayed(request)));
}

TEST(counted_together, what_is_left_out_is_told_as_it_was) {
  auto trace = random_trace(14, {.layers = 2, .experts = 8, .steps = 40});
  trace.expert_bytes.clear();
  auto request = asked({"4"});
  request.sizes.push_back(lab::size_request::parse_budget("900B"));
  request.leaves_out = true;
  EXPECT_EQ(expect_counts_of_pagers(trace, request), policies.size());
  EXPECT_FALSE(lab::run_sweep(trace, request).not_replayed.empty());
}

TEST(counted_together, progress_counts_every_size) {
  auto request = asked({"4", "6", "8"}, {"lru", "fifo"});
  std::vector<std::uint64_t> seen, totals;
  request.progress = [&](std::uint64_t done, std::uint64_t total) {
    seen.push_back(done);
    totals.push_back(total);
  };
  const auto result =
      lab::run_sweep(random_trace(13, {.layers = 3, .experts = 8, .steps = 50}), request);
  EXPECT_THAT(totals, testing::Each(6 * result.visits));
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), 6 * result.visits);
  EXPECT_GT(seen.size(), 6U);
}

}  // namespace
}  // namespace counted_together_test
