// SPDX-License-Identifier: Apache-2.0
#include "lab/curves/miss_curves.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "json_of.hpp"
#include "lab/errors.hpp"
#include "lab/replay/cache_size.hpp"
#include "lab/reports/miss_curve_report.hpp"
#include "sim_samples.hpp"

namespace hotset::miss_curves_test {
namespace {

using testing::HasSubstr;

lab::curve_set curves_of(const routing_trace& trace, const std::string& scope,
                         const std::string& method = "exact", bool per_access = false,
                         const std::string& eviction = {}) {
  const visit_sequence visits(trace, {.per_access = per_access});
  auto out = lab::measure_curves(visits, lab::parse_scope(scope), lab::curve_method::parse(method),
                                 0, eviction);
  out.name = trace.name;
  return out;
}

/// Misses of a replay, by layer in per-layer scope.
std::vector<std::uint64_t> replayed(const routing_trace& trace, const std::string& scope,
                                    std::size_t slots, const std::string& replay,
                                    const std::string& eviction) {
  const auto run = support::one_run(
      trace,
      {.eviction = eviction, .scope = scope, .slots = std::to_string(slots), .replay = replay});
  if (scope == "shared") return {run.stats.misses};
  std::vector<std::uint64_t> misses;
  for (const auto& layer : run.stats.per_layer) misses.push_back(layer.accesses - layer.hits);
  return misses;
}

void expect_what_replay_gives(const routing_trace& trace, const std::string& scope,
                              const std::string& replay, const std::string& eviction = "lru") {
  const auto curves = curves_of(trace, scope, "exact", replay == "per-access", eviction);
  const auto keys = curves.pools.front().misses.size() - 1;
  for (std::size_t slots = curves.widest; slots <= keys; ++slots) {
    const auto misses = replayed(trace, scope, slots, replay, eviction);
    ASSERT_EQ(misses.size(), curves.pools.size());
    for (std::size_t pool = 0; pool < misses.size(); ++pool)
      ASSERT_EQ(curves.pools[pool].misses[slots], static_cast<double>(misses[pool]))
          << eviction << ", " << trace.name << ", " << scope << ", " << slots << " slots, pool "
          << pool;
  }
}

// Compares one pass with a replay for every capacity from the widest union on.
TEST(miss_curves, equal_the_misses_of_replay_on_a_thousand_traces) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const support::random_shape shape{.layers = static_cast<std::int32_t>(1 + seed % 3),
                                      .experts = static_cast<std::int32_t>(5 + seed % 4),
                                      .top_k = static_cast<std::int32_t>(1 + seed % 3),
                                      .steps = 12,
                                      .most_tokens = 1 + seed % 4,
                                      .absent_one_in = seed % 5 == 0 ? 6U : 0U,
                                      .skewed = seed % 2 == 0};
    const auto trace = support::random_trace(seed, shape);
    expect_what_replay_gives(trace, seed % 2 == 0 ? "shared" : "per-layer", "event-atomic");
    if (seed % 10 == 0) expect_what_replay_gives(trace, "shared", "per-access");
    if (HasFatalFailure()) return;
  }
}

/// Ids of a token may repeat or be absent here.
routing_trace with_repeats(std::uint64_t seed) {
  support::random_source random(seed);
  auto trace = support::empty_trace(3, 7, 3);
  for (std::size_t step = 0; step < 40; ++step) {
    std::vector<std::vector<expert_id>> tokens(1 + random.below(2));
    for (auto& row : tokens)
      for (int i = 0; i < 9; ++i)
        row.push_back(random.one_in(9) ? no_expert : expert_id{random.id_below(7)});
    support::add_step(trace, tokens);
  }
  return trace;
}

TEST(miss_curves, of_every_policy_equal_the_misses_of_replay) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const support::random_shape shape{.layers = static_cast<std::int32_t>(1 + seed % 4),
                                      .experts = static_cast<std::int32_t>(6 + seed % 7),
                                      .top_k = static_cast<std::int32_t>(1 + seed % 3),
                                      .steps = 40,
                                      .most_tokens = 1 + seed % 5,
                                      .absent_one_in = seed % 5 == 0 ? 6U : 0U,
                                      .skewed = seed % 2 == 0};
    const auto trace = seed % 3 == 0 ? with_repeats(seed) : support::random_trace(seed, shape);
    for (const std::string eviction : {"fifo", "lfu", "belady"}) {
      expect_what_replay_gives(trace, seed % 2 == 0 ? "shared" : "per-layer", "event-atomic",
                               eviction);
      if (seed % 10 == 0) expect_what_replay_gives(trace, "shared", "per-access", eviction);
    }
    if (HasFatalFailure()) return;
  }
}

// A fifo has one bit for each of 64 sizes.
TEST(miss_curves, of_more_sizes_than_a_word_has_bits_equal_replay) {
  const auto trace =
      support::random_trace(5, {.layers = 9, .experts = 16, .steps = 60, .most_tokens = 2});
  for (const std::string eviction : {"fifo", "lfu", "belady"})
    expect_what_replay_gives(trace, "shared", "event-atomic", eviction);
}

TEST(miss_curves, of_lru_are_the_same_whether_it_is_named_or_not) {
  const auto trace = support::random_trace(6, {.layers = 2, .most_tokens = 3});
  const auto named = curves_of(trace, "shared", "exact", false, "lru");
  EXPECT_EQ(named.pools[0].misses, curves_of(trace, "shared").pools[0].misses);
  EXPECT_EQ(support::json_of(named)["eviction"], "lru");
  EXPECT_FALSE(support::json_of(curves_of(trace, "shared")).contains("eviction"));
}

TEST(miss_curves, of_a_sample_of_everything_are_exact) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto trace = support::random_trace(seed, {.layers = 3, .most_tokens = 3});
    const auto exact = curves_of(trace, "shared");
    const auto sampled = curves_of(trace, "shared", "shards:1");
    EXPECT_EQ(sampled.accesses, exact.accesses);
    EXPECT_EQ(sampled.compulsory_misses, exact.compulsory_misses);
    for (std::size_t slots = 1; slots < exact.pools[0].misses.size(); ++slots)
      ASSERT_DOUBLE_EQ(sampled.pools[0].misses[slots], exact.pools[0].misses[slots]) << slots;
  }
}

TEST(miss_curves, json_is_null_if_a_visit_does_not_fit) {
  const auto trace = support::one_layer(4, {{0, 1}, {0, 1}, {2, 1}});
  const auto json = support::json_of(curves_of(trace, "per-layer"));
  EXPECT_EQ(json["schema"], "hotset.curve/2");
  EXPECT_EQ(json["scope"], "per-layer");
  EXPECT_EQ(json["method"], "exact");
  EXPECT_EQ(json["accesses"], 6);
  EXPECT_EQ(json["compulsory_misses"], 3);
  EXPECT_EQ(json["widest"], 2);
  EXPECT_EQ(
      json["curves"].dump(),
      R"([{"layer":0,"widest":2,"misses":[null,null,3,3,3],"slot_bytes":null,"below_cycle":0}])");
  EXPECT_EQ(support::json_of(curves_of(trace, "shared"))["curves"][0]["layer"], nullptr);
}

TEST(miss_curves, csv_begins_at_the_widest_union) {
  auto curves = curves_of(support::one_layer(3, {{0, 1}, {0, 1}}), "shared");
  curves.name = "a,b";
  const std::vector<lab::curve_set> sets{curves};
  EXPECT_EQ(lab::to_csv(sets),
            "trace,scope,method,replay,layer,slots,misses,share,bytes,layers,experts,below_cycle\n"
            "\"a,b\",shared,exact,event-atomic,,2,2,0.6666666666666666,,1,3,false\n"
            "\"a,b\",shared,exact,event-atomic,,3,2,1.0,,1,3,false\n");
  auto best =
      curves_of(support::one_layer(3, {{0, 1}, {0, 1}}), "shared", "exact", false, "belady");
  best.name = "a";
  EXPECT_EQ(lab::to_csv(std::vector{best}),
            "trace,scope,eviction,method,replay,layer,slots,misses,share,bytes,layers,experts,"
            "below_cycle\n"
            "a,shared,belady,exact,event-atomic,,2,2,0.6666666666666666,,1,3,false\n"
            "a,shared,belady,exact,event-atomic,,3,2,1.0,,1,3,false\n");
}

TEST(miss_curves, sizes_below_the_cycle_of_a_token_are_marked) {
  const auto trace = support::random_trace(1, {.layers = 4, .experts = 16, .most_tokens = 1});
  ASSERT_EQ(trace.top_k, 2);
  auto shared = curves_of(trace, "shared");
  shared.cycle = lab::token_cycle(trace, cache_scope::shared);
  const auto json = support::json_of(shared);
  EXPECT_EQ(json["cycle"], 4 * 2);
  EXPECT_EQ(json["curves"][0]["below_cycle"], 8) << "0 to 7 slots";
  const auto csv = lab::to_csv(std::vector{shared});
  EXPECT_THAT(csv, testing::ContainsRegex(",,7,[^\n]*,true\n"));
  EXPECT_THAT(csv, testing::ContainsRegex(",,8,[^\n]*,false\n"));
  EXPECT_THAT(lab::to_table(shared), HasSubstr("below 8 slots, one token's cycle, "));
  auto layers = curves_of(trace, "per-layer");
  layers.cycle = lab::token_cycle(trace, cache_scope::per_layer);
  EXPECT_EQ(support::json_of(layers)["cycle"], 2);
  EXPECT_THAT(lab::to_table(layers), testing::Not(HasSubstr("cycle")));
}

TEST(miss_curves, a_table_marks_sizes_without_a_value) {
  const auto text =
      lab::to_table(curves_of(support::one_layer(8, {{0, 1, 2}, {0, 1, 3}}), "shared"));
  EXPECT_THAT(text, HasSubstr("6 accesses, 4 first sights"));
  EXPECT_THAT(text, HasSubstr("   12.5      1       -       -\n"));
  EXPECT_THAT(text, HasSubstr("   50.0      4       4   33.33\n"));
  EXPECT_THAT(text, HasSubstr("-: fewer slots than the widest visit needs, 3"));
}

TEST(miss_curves, methods_have_names) {
  EXPECT_TRUE(lab::curve_method::parse("exact").is_exact());
  EXPECT_EQ(lab::curve_method::parse("shards:0.25").rate, 0.25);
  EXPECT_EQ(lab::curve_method::parse("shards:8192").most_keys, 8192U);
  EXPECT_EQ(lab::curve_method::parse("shards:8192").rate, 1);
  EXPECT_EQ(lab::curve_method::parse("shards:1").most_keys, 0U);
  for (const auto* text : {"", "shards", "shards:", "shards:0", "shards:-1", "shards:1.5",
                           "shards:x", "shards:8k", "shards:nan", "shards:inf", "Exact"})
    EXPECT_THAT(support::refusal<lab::usage_error>([&] { (void)lab::curve_method::parse(text); }),
                HasSubstr("accepted: exact, shards:0.01"))
        << text;
}

TEST(miss_curves, a_layer_is_too_small_for_a_sample) {
  EXPECT_THAT(support::refusal<lab::usage_error>([] {
                (void)curves_of(support::one_layer(4, {{0, 1}}), "per-layer", "shards:0.5");
              }),
              HasSubstr("accepted: exact, or shards in the shared scope"));
}

TEST(miss_curves, only_lru_is_measured_by_a_sample_and_four_policies_at_all) {
  const auto refused = [](const std::string& method, const std::string& eviction) {
    return support::refusal<lab::usage_error>([&] {
      (void)curves_of(support::one_layer(4, {{0, 1}}), "shared", method, false, eviction);
    });
  };
  EXPECT_THAT(refused("shards:0.5", "lfu"), HasSubstr("shards:0.5 of lfu, accepted: exact"));
  EXPECT_THAT(refused("exact", "least_stale"), HasSubstr("accepted: lru, fifo, lfu, belady"));
}

}  // namespace
}  // namespace hotset::miss_curves_test
