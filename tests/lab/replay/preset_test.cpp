// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/preset.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "json_of.hpp"
#include "lab/errors.hpp"
#include "lab/replay/registry.hpp"
#include "lab/replay/sweep.hpp"
#include "lab/reports/sweep_report.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "sim_samples.hpp"

namespace hotset::preset_test {
namespace {

using testing::HasSubstr;

std::vector<std::string> words_of(const std::vector<lab::policy_set>& sets) {
  std::vector<std::string> words;
  for (const auto& s : sets)
    words.push_back(fmt::format("{}/{}/{}/{}/{}/{}/{}", s.preset, s.routing, s.miss, s.guard,
                                s.prefetch, s.admission, s.eviction));
  return words;
}

// SpecMD, Table 1.
TEST(preset, the_configurations_of_table_1) {
  for (const std::string words :
       {"specmd-1/router_order/fetch/none/next_layer_top_k/always/lru",
        "specmd-2/router_order/substitute/none/score_threshold/always/gate_score",
        "specmd-3/router_order/fetch_priority/none/next_layer_top_k/always/lhu",
        "specmd-4/cache_aware/fetch/none/no_prefetch/always/lru",
        "specmd-5/router_order/fetch/none/score_threshold/always/least_stale"})
    EXPECT_THAT(words_of({lab::make_preset(words.substr(0, words.find('/')))}),
                testing::ElementsAre(words));
}

// SpecMD, Table 2: the systems, also with another eviction policy.
TEST(preset, systems_have_their_own_names_and_take_least_stale) {
  for (const auto& [system, config] :
       std::vector<std::pair<std::string, std::string>>{{"eliseev-23", "specmd-1"},
                                                        {"zhu-25", "specmd-2"},
                                                        {"hobbit-24", "specmd-3"},
                                                        {"mixture-cache-25", "specmd-4"}}) {
    auto expected = lab::make_preset(config);
    expected.preset = system;
    EXPECT_EQ(words_of({lab::make_preset(system)}), words_of({expected}));
    expected.preset = system + "+least_stale";
    expected.eviction = "least_stale";
    EXPECT_EQ(words_of({lab::make_preset(expected.preset)}), words_of({expected}));
  }
}

TEST(preset, every_name_is_made_of_policies_that_exist) {
  for (const auto& name : lab::preset_names()) {
    auto set = lab::make_preset(name);
    if (set.predictor == "learned-gate") set.predictor = "recorded";  // it is made with its weights
    EXPECT_NO_THROW((void)lab::read_policies(set)) << name;
  }
}

// The compared systems of fMoE's and ActiveEvict's papers.
TEST(preset, the_systems_that_are_compared) {
  EXPECT_THAT(lab::system_names(),
              testing::ElementsAre("on-demand", "deepspeed", "brainstorm", "mixtral-offloading",
                                   "promoe", "moe-infinity", "fmoe", "active-evict"));
  for (const auto& name : lab::system_names()) {
    const auto set = lab::make_preset(name);
    EXPECT_EQ(set.miss, "fetch") << name;
    EXPECT_EQ(set.routing, "router_order") << name;
    EXPECT_EQ(set.preset, name);
  }
  EXPECT_EQ(lab::make_preset("fmoe").predictor, "expert-map");
  EXPECT_EQ(lab::make_preset("fmoe").eviction, "expert_map_priority");
  EXPECT_EQ(lab::make_preset("active-evict").pre_eviction, "active_evict");
  // ProMoE predicts at one stride; MoE-Infinity's predictor discounts by distance, so its queue must not.
  EXPECT_EQ(lab::make_preset("promoe").prefetch, "next_layer_top_k:depth=3:from=3");
  EXPECT_EQ(lab::make_preset("moe-infinity").predictor, "activation-matrix");
  EXPECT_EQ(lab::make_preset("moe-infinity").prefetch, "next_layer_top_k:depth=1000");
  EXPECT_EQ(lab::make_preset("moe-infinity").prefetch_order, "greatest");
  EXPECT_EQ(lab::make_preset("mixtral-offloading").prefetch,
            lab::make_preset("eliseev-23").prefetch);
  const auto all = lab::all_systems("a.gate");
  ASSERT_EQ(all.size(), 9U);
  EXPECT_EQ(all.back().eviction, "belady");
  EXPECT_EQ(all.back().prefetch, "no_prefetch");
  EXPECT_EQ(all[4].predictor, "learned-gate:weights=a.gate");
  EXPECT_EQ(lab::all_systems()[4].predictor, "learned-gate");
}

// An oracle with the accuracy of ActiveEvict's Table 2. It sees the future, so it is not compared with online
// policies.
TEST(preset, moe_apex_is_an_oracle_of_stated_accuracy) {
  const auto set = lab::make_preset("moe-apex");
  EXPECT_EQ(set.prefetch, "noisy_oracle:precision=0.889:recall=0.909");
  EXPECT_EQ(set.eviction, "lru");
  EXPECT_EQ(set.guard, "none");
  EXPECT_EQ(lab::read_policies(set).prefetch.needs, forecast_need::truth);
  EXPECT_THAT(lab::system_names(), testing::Not(testing::Contains("moe-apex")));
  EXPECT_THAT(lab::preset_names(), testing::Contains("moe-apex"));
  const auto of_llama_moe = lab::combine_policies(
      {.presets = {"moe-apex"}, .prefetches = {"noisy_oracle:precision=0.886:recall=0.934"}});
  ASSERT_EQ(of_llama_moe.size(), 1U);
  EXPECT_EQ(of_llama_moe.front().prefetch, "noisy_oracle:precision=0.886:recall=0.934");
}

// A system that the trace has too little data for is reported; the others are replayed as if they were alone.
TEST(preset, a_field_is_compared_as_far_as_the_trace_allows) {
  auto trace = synthetic_trace({.layers = 6,
                                .experts = 16,
                                .top_k = 2,
                                .sequences = 3,
                                .prefill = 4,
                                .tokens = 40,
                                .zipf = 0.8,
                                .stickiness = 0.3,
                                .scores = true,
                                .predictor_noise = 0.1,
                                .expert_bytes = 1'000'000,
                                .seed = 4})
                   .value();
  lab::sweep_request request;
  request.policies = lab::all_systems();
  request.sizes = {lab::size_request::parse_slots("25%"), lab::size_request::parse_slots("50%")};
  request.links = {{{5'000'000'000, 10'000, 1U << 20U}, "5GB/s"}};
  EXPECT_THROW((void)lab::run_sweep(trace, request), lab::usage_error) << "promoe has no weights";
  request.leaves_out = true;
  const auto all = lab::run_sweep(trace, request);
  ASSERT_EQ(all.results.size(), 2U * 8);
  EXPECT_THAT(all.not_replayed,
              testing::ElementsAre(HasSubstr("promoe: learned_gate weights = none")));
  for (const auto& run : all.results) {
    auto alone = request;
    alone.leaves_out = false;
    alone.sizes = {lab::size_request::parse_slots(std::to_string(run.slots))};
    alone.policies = {run.policies};
    const auto again = lab::run_sweep(trace, alone).results.front();
    EXPECT_EQ(again.decision_hash, run.decision_hash) << run.policies.preset;
    EXPECT_EQ(again.outcome->times.total, run.outcome->times.total) << run.policies.preset;
    EXPECT_EQ(again.stats.accesses, run.stats.accesses);
  }
  trace.predictions = {};
  trace.prediction_depth = 0;
  trace.probabilities = {};
  trace.logits = {};
  const auto few = lab::run_sweep(trace, request);
  EXPECT_THAT(few.not_replayed,
              testing::ElementsAre(HasSubstr("active-evict: pre-eviction needs predictions"),
                                   HasSubstr("fmoe: prefetch policy cumulative_probability by"),
                                   HasSubstr("mixtral-offloading: prefetch policy next_layer"),
                                   HasSubstr("promoe: ")));
  EXPECT_EQ(few.results.size(), 2U * 5);
  const auto table = lab::to_table(few);
  EXPECT_THAT(table, HasSubstr("not replayed: fmoe: "));
  EXPECT_EQ(support::json_of(few)["not_replayed"].size(), 4U);
  EXPECT_FALSE(support::json_of(all)["results"].empty());
}

TEST(preset, an_unknown_name_lists_the_known_ones) {
  for (const auto* name : {"specmd-6", "", "specmd-1+lru", "+least_stale"})
    EXPECT_THAT(support::refusal<lab::usage_error>([&] { (void)lab::make_preset(name); }),
                testing::AllOf(HasSubstr("specmd-5"), HasSubstr("mixture-cache-25"),
                               HasSubstr("+least_stale")));
}

// SpecMD's Table 2 at 5 % of the 16-bit bytes, on a busy link. If Least-Stale replaces an eviction that does not know
// layers, first tokens come 8 to 25 % sooner. Its order is the cause: as FIFO by layer, or as LRU, it gains nothing.
// Times are the simulated clock's.
TEST(preset, least_stale_brings_first_tokens_sooner_and_only_in_its_own_order) {
  const auto trace = synthetic_trace({.layers = 16,
                                      .experts = 64,
                                      .top_k = 8,
                                      .sequences = 8,
                                      .prefill = 32,
                                      .tokens = 8,
                                      .zipf = 0.6,
                                      .stickiness = 0.3,
                                      .scores = true,
                                      .predictor_noise = 0.1,
                                      .expert_bytes = 3'000'000,
                                      .seed = 1})
                         .value();
  const auto run = [&](const std::string& preset, const std::string& eviction = {}) {
    lab::sweep_request request;
    request.policies = {lab::make_preset(preset)};
    if (!eviction.empty()) request.policies.front().eviction = eviction;
    request.sizes = {lab::size_request::parse_slots("5%@16:4")};
    request.links = {{{5'000'000'000, 10'000, 1U << 20U}, "5GB/s"}};
    request.costs = {.per_visit = 100'000, .per_token = 5'000};
    return lab::run_sweep(trace, request).results.front();
  };
  for (const std::string system : {"eliseev-23", "mixture-cache-25"}) {
    SCOPED_TRACE(system);
    const auto own = run(system);
    const auto dropped = run(system + "+least_stale");
    const auto first_token = [](const lab::run_result& r) {
      return static_cast<double>(r.outcome->times.first_token);
    };
    EXPECT_LT(first_token(dropped), 0.92 * first_token(own));
    EXPECT_LT(2 * dropped.stats.collision_misses, own.stats.collision_misses);
    for (const auto* other : {"least_stale:order=layer", "least_stale:order=stale",
                              "least_stale:order=last_access", "lru"})
      EXPECT_GT(first_token(run(system, other)), 0.97 * first_token(own)) << other;
  }
}

TEST(preset, lists_are_combined_on_top_of_each_preset) {
  EXPECT_THAT(words_of(lab::combine_policies({})),
              testing::ElementsAre("/router_order/fetch/named/no_prefetch/always/lru"));
  EXPECT_THAT(words_of(lab::combine_policies({}, lab::make_preset("specmd-4"))),
              testing::ElementsAre("specmd-4/cache_aware/fetch/none/no_prefetch/always/lru"));
  const lab::policy_lists two{
      .presets = {"specmd-4", "hobbit-24"}, .evictions = {"fifo", "lfu"}, .misses = {"drop"}};
  EXPECT_THAT(words_of(lab::combine_policies(two)),
              testing::ElementsAre("specmd-4/cache_aware/drop/none/no_prefetch/always/fifo",
                                   "specmd-4/cache_aware/drop/none/no_prefetch/always/lfu",
                                   "hobbit-24/router_order/drop/none/next_layer_top_k/always/fifo",
                                   "hobbit-24/router_order/drop/none/next_layer_top_k/always/lfu"));
  // A preset sets everything: the plain options are not used.
  lab::policy_set plain;
  plain.eviction = "fifo";
  EXPECT_THAT(words_of(lab::combine_policies({.presets = {"specmd-1"}}, plain)),
              testing::ElementsAre("specmd-1/router_order/fetch/none/next_layer_top_k/always/lru"));
}

TEST(preset, lists_nest_from_routing_to_eviction) {
  const lab::policy_lists all{.evictions = {"e1", "e2"},
                              .admissions = {"a1", "a2"},
                              .prefetches = {"p1", "p2"},
                              .guards = {"g1", "g2"},
                              .misses = {"m1", "m2"},
                              .routings = {"r1", "r2"}};
  const auto words = words_of(lab::combine_policies(all));
  ASSERT_EQ(words.size(), 64U);
  EXPECT_TRUE(std::is_sorted(words.begin(), words.end()));
  EXPECT_EQ(std::adjacent_find(words.begin(), words.end()), words.end());
  EXPECT_THROW((void)lab::combine_policies({.presets = {"specmd-1", "specmd-9"}}),
               lab::usage_error);
}

}  // namespace
}  // namespace hotset::preset_test
