// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/split_replay.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "json_of.hpp"
#include "lab/errors.hpp"
#include "lab/reports/split_report.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "sim_samples.hpp"

namespace hotset::split_replay_test {
namespace {

using testing::HasSubstr;

/// Steps use `hot` of 16 experts with equal chances. If `rarely` is not 0, every `rarely`-th step uses all 16.
routing_trace few_experts(std::int32_t hot, std::uint64_t seed, std::size_t steps = 640,
                          std::size_t rarely = 0) {
  support::random_source random(seed);
  auto trace = support::empty_trace(2, 16, 2);
  trace.name = "hot-" + std::to_string(hot);
  for (std::size_t s = 0; s < steps; ++s) {
    const auto of = rarely != 0 && s % rarely == 0 ? 16 : hot;
    std::vector<expert_id> row;
    for (int layer = 0; layer < 2; ++layer) {
      const auto a = random.id_below(of);
      row.push_back(expert_id{a});
      row.push_back(expert_id{(a + 1 + random.id_below(of - 1)) % of});
    }
    support::add_step(trace, {row});
  }
  return trace;
}
/// Each request goes through `width` blocks of `distinct`.
kv_trace requests(std::size_t count, std::uint64_t width, std::uint64_t distinct,
                  std::uint64_t seed) {
  support::random_source random(seed);
  kv_trace kv;
  kv.name = "requests";
  kv.block_tokens = 16;
  for (std::size_t r = 0; r < count; ++r) {
    kv.timestamp.push_back(r);
    kv.input_length.push_back(static_cast<std::uint32_t>(width * 16));
    kv.output_length.push_back(8);
    const auto first = random.below(distinct);
    for (std::uint64_t b = 0; b < width; ++b) kv.blocks.push_back((first + b) % distinct);
    kv.block_end.push_back(kv.blocks.size());
  }
  return kv;
}

lab::split_request request_of(std::vector<lab::workflow> flows) {
  lab::split_request request;
  request.workflows = std::move(flows);
  request.control = {.limits = {.budget_bytes = 2000,
                                .slot_bytes = 100,
                                .block_bytes = 10,
                                .min_cap = 2,
                                .max_cap = 16,
                                .min_blocks = 20},
                     .seconds_per_expert_miss = 1e-3,
                     .seconds_per_kv_miss = 1e-3,
                     .max_move = 4};
  request.burst_steps = 16;
  return request;
}

const lab::split_outcome& of(const lab::split_result& result, const std::string& policy) {
  for (const auto& o : result.outcomes)
    if (o.policy == policy) return o;
  ADD_FAILURE() << policy;
  return result.outcomes.front();
}

/// One workflow of 40 bursts.
class split_replay_of_one : public testing::Test {
 protected:
  const routing_trace trace = few_experts(12, 1);
  const kv_trace kv = requests(40, 6, 90, 2);
  lab::split_request request = request_of({{"one", &trace, &kv}});

  /// Cost of a burst from the simulator's own replays of both streams.
  [[nodiscard]] double replayed_seconds(std::uint64_t cap) const {
    const auto experts =
        support::one_run(trace, {.scope = "per-layer", .slots = std::to_string(cap)});
    const auto room = (2000 - cap * 100) / 10;
    const auto cached = support::one_run(*block_accesses(kv), {.slots = std::to_string(room)});
    return 1e-3 * static_cast<double>(experts.stats.misses + cached.stats.misses) / 40;
  }
};

// Compares reuse distances with replays.
TEST_F(split_replay_of_one, a_fixed_split_costs_the_misses_of_both_replays) {
  request.warmup = 0;
  const auto result = lab::simulate_split(request);
  ASSERT_EQ(result.size(), 1U);
  EXPECT_EQ(result[0].bursts, 40U);
  for (const char* policy : {"best-fixed", "50-50", "flux-prop"}) {
    const auto& o = of(result[0], policy);
    EXPECT_NEAR(o.seconds, replayed_seconds(o.cap), 1e-10) << policy;
  }
}

// Replayed pools and reuse distances agree if nothing moves.
TEST_F(split_replay_of_one, a_controller_that_never_moves_has_its_splits_cost) {
  request.control.limits.min_cap = 9;
  request.control.limits.max_cap = 9;
  const auto result = lab::simulate_split(request);
  EXPECT_EQ(of(result[0], "mv-wsa").moves, 0U);
  EXPECT_GT(of(result[0], "mv-wsa").seconds, 0);
  EXPECT_NEAR(of(result[0], "mv-wsa").seconds, of(result[0], "best-fixed").seconds, 1e-12);
}

// Replays every cap: none is better than the reported best.
TEST_F(split_replay_of_one, the_best_fixed_split_is_the_best_of_all) {
  request.warmup = 0;
  const auto result = lab::simulate_split(request);
  double least = 0;
  std::uint64_t best = 0;
  for (std::uint64_t cap = 2; cap <= 16; ++cap) {
    const auto seconds = replayed_seconds(cap);
    if (best != 0 && seconds >= least) continue;
    least = seconds;
    best = cap;
  }
  EXPECT_GT(best, 2U);  // in between: neither stream decides alone
  EXPECT_LT(best, 16U);
  for (const char* policy : {"oracle", "best-fixed"}) {
    EXPECT_EQ(of(result[0], policy).cap, best);
    EXPECT_NEAR(of(result[0], policy).seconds, least, 1e-12);
  }
}

// WiSP, Table 5: within a few per cent of each workflow's own optimum; no fixed prior is good for both.
TEST(split_replay, the_controller_is_close_to_each_workflows_optimum) {
  const auto expert_heavy = few_experts(14, 1, 2560);
  const auto kv_light = requests(160, 4, 70, 2);
  const auto expert_light = few_experts(6, 3, 2560, 8);  // a working set with a long tail
  const auto kv_heavy = requests(160, 12, 140, 4);
  auto request =
      request_of({{"experts", &expert_heavy, &kv_light}, {"kv", &expert_light, &kv_heavy}});
  request.control.seconds_per_kv_miss = 2e-3;
  request.control.decay = 0.9;
  request.warmup = 32;
  const auto results = lab::simulate_split(request);
  ASSERT_EQ(results.size(), 3U);
  const auto over = [&](std::size_t i, const char* policy) {
    return of(results[i], policy).seconds / of(results[i], "oracle").seconds - 1;
  };
  for (std::size_t i = 0; i < 2; ++i) EXPECT_LE(over(i, "mv-wsa"), 0.05) << results[i].name;
  for (const char* prior : {"50-50", "flux-prop"})
    EXPECT_GT(std::max(over(0, prior), over(1, prior)), 0.05) << prior;
  EXPECT_EQ(results[2].name, "experts > kv");
  // Across the shift no single split is right.
  EXPECT_GT(over(2, "best-fixed"), 0.05);
  EXPECT_LT(of(results[2], "mv-wsa").seconds, of(results[2], "best-fixed").seconds);
}

// WiSP 3.4: the controller starts at the best split for a short representative trace, here the warm-up.
TEST(split_replay, the_controller_begins_at_the_configurators_split) {
  const auto trace = few_experts(4, 3);
  const auto kv = requests(40, 12, 120, 4);
  auto request = request_of({{"kv", &trace, &kv}});
  request.warmup = 0;
  const auto blind = lab::simulate_split(request);
  EXPECT_EQ(of(blind[0], "mv-wsa").caps.front(), request.control.split().largest_cap());
  request.warmup = 20;
  const auto informed = lab::simulate_split(request);
  EXPECT_EQ(of(informed[0], "mv-wsa").caps.front(), of(informed[0], "best-fixed").cap);
  EXPECT_LT(of(informed[0], "mv-wsa").caps.front(), of(blind[0], "mv-wsa").caps.front());
}

TEST_F(split_replay_of_one, json_and_table_have_the_results) {
  const auto results = lab::simulate_split(request);
  const auto json = support::json_of(results);
  EXPECT_EQ(json["schema"], "hotset.split/1");
  EXPECT_EQ(json["results"][0]["name"], "one");
  EXPECT_EQ(json["results"][0]["bursts"], results[0].bursts);
  const auto table = lab::to_table(results);
  ASSERT_EQ(json["results"][0]["outcomes"].size(), 5U);
  std::size_t i = 0;
  for (const char* policy : {"oracle", "best-fixed", "mv-wsa", "50-50", "flux-prop"}) {
    const auto& outcome = of(results[0], policy);
    const auto& row = json["results"][0]["outcomes"][i++];
    EXPECT_EQ(row["policy"], policy);
    EXPECT_EQ(row["cap"], outcome.cap);
    EXPECT_EQ(row["moves"], outcome.moves);
    EXPECT_EQ(row["caps"], outcome.caps);
    EXPECT_EQ(row["seconds_per_burst"], outcome.seconds);
    EXPECT_EQ(row["over_oracle"], outcome.seconds / results[0].outcomes[0].seconds - 1);
    const auto line = table.find('\n' + std::string(policy)) + 1;
    ASSERT_NE(line, 0U) << policy;
    char milliseconds[32];
    (void)std::snprintf(milliseconds, sizeof milliseconds, "%.3f", 1e3 * outcome.seconds);
    EXPECT_THAT(table.substr(line, table.find('\n', line) - line), HasSubstr(milliseconds));
  }
  EXPECT_EQ(of(results[0], "mv-wsa").caps.size(), 40U);  // a burst each
}

// An oracle cost of zero is not a denominator.
TEST(split_replay, an_oracle_that_pays_nothing_is_not_divided_by) {
  const auto trace = few_experts(8, 1, 200);
  const auto kv = requests(5, 4, 20, 2);  // they repeat
  auto results = lab::simulate_split(request_of({{"one", &trace, &kv}}));
  ASSERT_EQ(of(results[0], "oracle").seconds, 0);
  results[0].outcomes[3].seconds = 1;
  const auto json = support::json_of(results);
  EXPECT_EQ(json["results"][0]["outcomes"][1]["over_oracle"], 0);
  EXPECT_TRUE(json["results"][0]["outcomes"][3]["over_oracle"].is_null());
  EXPECT_THAT(lab::to_table(results), testing::Not(HasSubstr("nan")));
}

TEST_F(split_replay_of_one, refuses_invalid_values) {
  const auto why = [&](auto change) {
    auto changed = request;
    change(changed);
    return support::refusal<lab::usage_error>([&] { (void)lab::simulate_split(changed); });
  };
  EXPECT_THAT(why([](auto& r) { r.workflows.clear(); }), HasSubstr("no workflow"));
  EXPECT_THAT(why([](auto& r) { r.burst_steps = 0; }), HasSubstr("a burst of 0 steps"));
  EXPECT_THAT(why([](auto& r) { r.warmup = 1000; }), HasSubstr("all of them warm-up"));
  EXPECT_THAT(why([](auto& r) { r.control.grid = 0; }), HasSubstr("grid = 0"));
  const auto other = support::random_trace(1, {});
  EXPECT_THAT(why([&](auto& r) {
                r.workflows.push_back({"other", &other, &kv});
              }),
              HasSubstr("accepted: 2 x 16, top-2, as one"));
  request.control.limits.budget_bytes = 399;
  EXPECT_THAT(support::refusal<lab::infeasible_error>([&] { (void)lab::simulate_split(request); }),
              HasSubstr("accepted: 400 bytes or more"));
}

}  // namespace
}  // namespace hotset::split_replay_test
