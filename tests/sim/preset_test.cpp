// SPDX-License-Identifier: Apache-2.0
#include "hotset/sim/preset.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/sim/dimensions.hpp"
#include "hotset/sim/errors.hpp"
#include "hotset/sim/sweep.hpp"
#include "hotset/trace/synthetic.hpp"
#include "sim_samples.hpp"

namespace hotset {
namespace {

using testing::HasSubstr;

// SpecMD, Table 1.
TEST(preset, the_configurations_of_table_1) {
  const auto is = [](const char* name, const char* prefetch, const char* eviction, const char* miss,
                     const char* routing) {
    const auto set = sim::make_preset(name);
    EXPECT_EQ(set.prefetch, prefetch) << name;
    EXPECT_EQ(set.eviction, eviction) << name;
    EXPECT_EQ(set.miss, miss) << name;
    EXPECT_EQ(set.routing, routing) << name;
    EXPECT_EQ(set.guard, "none") << name;
    EXPECT_EQ(set.admission, "always") << name;
    EXPECT_EQ(set.preset, name);
  };
  is("specmd-1", "next_layer_top_k", "lru", "fetch", "router_order");
  is("specmd-2", "score_threshold", "gate_score", "substitute", "router_order");
  is("specmd-3", "next_layer_top_k", "lhu", "fetch_priority", "router_order");
  is("specmd-4", "no_prefetch", "lru", "fetch", "cache_aware");
  is("specmd-5", "score_threshold", "least_stale", "fetch", "router_order");
}

// SpecMD, Table 2: the systems, and with another eviction policy dropped in.
TEST(preset, systems_have_their_own_names_and_take_least_stale) {
  for (const auto& [system, config] :
       std::vector<std::pair<std::string, std::string>>{{"eliseev-23", "specmd-1"},
                                                        {"zhu-25", "specmd-2"},
                                                        {"hobbit-24", "specmd-3"},
                                                        {"mixture-cache-25", "specmd-4"}}) {
    auto one = sim::make_preset(system);
    const auto other = sim::make_preset(config);
    EXPECT_EQ(one.eviction, other.eviction);
    EXPECT_EQ(one.prefetch, other.prefetch);
    EXPECT_EQ(one.miss, other.miss);
    EXPECT_EQ(one.routing, other.routing);
    const auto dropped = sim::make_preset(system + "+least_stale");
    EXPECT_EQ(dropped.eviction, "least_stale");
    EXPECT_EQ(dropped.prefetch, one.prefetch);
    EXPECT_EQ(dropped.preset, system + "+least_stale");
  }
}

TEST(preset, every_name_is_made_of_policies_that_exist) {
  for (const auto& name : sim::preset_names()) {
    const auto set = sim::make_preset(name);
    EXPECT_NO_THROW(sim::check_policies(set.eviction, set.admission)) << name;
    EXPECT_NO_THROW((void)sim::make_prefetch(set.prefetch)) << name;
    EXPECT_NO_THROW((void)sim::make_miss(set.miss)) << name;
    EXPECT_NO_THROW((void)sim::make_routing(set.routing)) << name;
  }
}

TEST(preset, an_unknown_name_lists_the_known_ones) {
  for (const auto* name : {"specmd-6", "", "specmd-1+lru", "+least_stale"})
    EXPECT_THAT(support::refusal<sim::usage_error>([&] { (void)sim::make_preset(name); }),
                testing::AllOf(HasSubstr("specmd-5"), HasSubstr("mixture-cache-25"),
                               HasSubstr("+least_stale")));
}

// SpecMD's Table 2: first tokens come 8 to 25 % sooner where Least-Stale replaces the eviction of a system that does
// not know layers, at 5 % of the 16-bit bytes and on a busy link. Its order is what does it: as FIFO by layer, or as
// LRU, nothing is gained. Times are the simulated clock's.
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
    sim::sweep_request request;
    request.policies = {sim::make_preset(preset)};
    if (!eviction.empty()) request.policies.front().eviction = eviction;
    request.sizes = {sim::size_request::parse_slots("5%@16:4")};
    request.links = {{{5'000'000'000, 10'000, 1U << 20U}, "5GB/s"}};
    request.costs = {.per_visit = 100'000, .per_token = 5'000};
    return sim::run_sweep(trace, request).results.front();
  };
  for (const std::string system : {"eliseev-23", "mixture-cache-25"}) {
    SCOPED_TRACE(system);
    const auto own = run(system);
    const auto dropped = run(system + "+least_stale");
    const auto first_token = [](const sim::run_result& r) {
      return static_cast<double>(r.outcome->times.first_token);
    };
    EXPECT_LT(first_token(dropped), 0.92 * first_token(own));
    EXPECT_LT(2 * dropped.stats.collision_misses, own.stats.collision_misses);
    for (const auto* other : {"least_stale:order=layer", "least_stale:order=last_access", "lru"})
      EXPECT_GT(first_token(run(system, other)), 0.97 * first_token(own)) << other;
  }
}

std::vector<std::string> words_of(const std::vector<sim::policy_set>& sets) {
  std::vector<std::string> words;
  for (const auto& s : sets)
    words.push_back(fmt::format("{}/{}/{}/{}/{}/{}/{}", s.preset, s.routing, s.miss, s.guard,
                                s.prefetch, s.admission, s.eviction));
  return words;
}

TEST(preset, lists_are_combined_on_top_of_each_preset) {
  EXPECT_THAT(words_of(sim::combine_policies({})),
              testing::ElementsAre("/router_order/fetch/named/no_prefetch/always/lru"));
  EXPECT_THAT(words_of(sim::combine_policies({}, sim::make_preset("specmd-4"))),
              testing::ElementsAre("specmd-4/cache_aware/fetch/none/no_prefetch/always/lru"));
  const sim::policy_lists two{
      .presets = {"specmd-4", "hobbit-24"}, .evictions = {"fifo", "lfu"}, .misses = {"drop"}};
  EXPECT_THAT(words_of(sim::combine_policies(two)),
              testing::ElementsAre("specmd-4/cache_aware/drop/none/no_prefetch/always/fifo",
                                   "specmd-4/cache_aware/drop/none/no_prefetch/always/lfu",
                                   "hobbit-24/router_order/drop/none/next_layer_top_k/always/fifo",
                                   "hobbit-24/router_order/drop/none/next_layer_top_k/always/lfu"));
  // A preset says all: what else would be plain is not asked.
  sim::policy_set plain;
  plain.eviction = "fifo";
  EXPECT_THAT(words_of(sim::combine_policies({.presets = {"specmd-1"}}, plain)),
              testing::ElementsAre("specmd-1/router_order/fetch/none/next_layer_top_k/always/lru"));
}

TEST(preset, lists_nest_from_routing_to_eviction) {
  const sim::policy_lists all{{},           {"e1", "e2"}, {"a1", "a2"}, {"p1", "p2"},
                              {"g1", "g2"}, {"m1", "m2"}, {"r1", "r2"}};
  const auto words = words_of(sim::combine_policies(all));
  ASSERT_EQ(words.size(), 64U);
  EXPECT_TRUE(std::is_sorted(words.begin(), words.end()));
  EXPECT_EQ(std::adjacent_find(words.begin(), words.end()), words.end());
  EXPECT_THROW((void)sim::combine_policies({.presets = {"specmd-1", "specmd-9"}}),
               sim::usage_error);
}

}  // namespace
}  // namespace hotset
