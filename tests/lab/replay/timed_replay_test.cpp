// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/timed_replay.hpp"

#include <optional>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lab/errors.hpp"
#include "lab/replay/registry.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "sim_samples.hpp"

namespace hotset::timed_replay_test {
namespace {

using lab::policy_set;
using lab::run_result;
using lab::sweep_request;
using support::refusal;
using testing::HasSubstr;

/// One byte takes one nanosecond.
lab::link_request slow_link(ticks latency = 0, std::uint64_t chunk = 0) {
  return {{1'000'000'000, latency, chunk}, "1GB/s"};
}

sweep_request request_of(std::vector<policy_set> policies, const std::string& slots) {
  return {.policies = std::move(policies), .sizes = {lab::size_request::parse_slots(slots)}};
}
std::string refused(const routing_trace& trace, const sweep_request& request) {
  return refusal<lab::usage_error>([&] { (void)lab::run_sweep(trace, request); });
}
run_result run(const routing_trace& trace, const policy_set& policies, const std::string& slots,
               std::optional<lab::link_request> link = std::nullopt,
               const lab::visit_costs& costs = {}, const std::string& precision = {}) {
  auto request = request_of({policies}, slots);
  if (link) request.links = {*link};
  request.costs = costs;
  if (!precision.empty()) request.precisions = {lab::precision_ladder::parse(precision)};
  return lab::run_sweep(trace, request).results.front();
}

/// Two layers, one expert a token; 1000 bytes an expert.
routing_trace two_steps() {
  auto trace = support::empty_trace(2, 4, 1);
  trace.expert_bytes = {1000};
  support::add_step(trace, {{0, 1}});
  support::add_step(trace, {{0, 2}});
  return trace;
}

routing_trace scored(std::uint64_t seed, double noise = 0.2) {
  return synthetic_trace({.layers = 4,
                          .experts = 16,
                          .top_k = 3,
                          .sequences = 2,
                          .prefill = 5,
                          .tokens = 30,
                          .zipf = 0.7,
                          .stickiness = 0.4,
                          .scores = true,
                          .predictor_noise = noise,
                          .expert_bytes = 4000,
                          .seed = seed})
      .value();
}

TEST(timed_replay, a_miss_stops_the_arithmetic_for_as_long_as_its_copy_takes) {
  const auto r = run(two_steps(), {}, "4", slow_link(), {.per_visit = 300});
  const auto& t = r.outcome->times;
  EXPECT_EQ(t.total, 1300U + 1300 + 300 + 1300);
  EXPECT_EQ(t.blocked, 3000U);
  EXPECT_EQ(t.link_busy, 3000U);
  EXPECT_EQ(t.sequences, 1U);
  EXPECT_EQ(t.first_token, 2600U) << "without a prompt, the first step";
  EXPECT_EQ(t.decoded, 2U);
  EXPECT_EQ(t.decoding, 4200U);
}

TEST(timed_replay, a_prefetch_runs_beside_the_arithmetic_and_may_be_late) {
  const auto r =
      run(two_steps(), {.prefetch = "noisy_oracle"}, "4", slow_link(), {.per_visit = 300});
  // The first layer's miss, then its prefetch from 1000 to 2000, 700 of it after the arithmetic; the same in step 1.
  EXPECT_EQ(r.outcome->times.total, 2300U + 1300);
  EXPECT_EQ(r.outcome->times.blocked, 1000U + 700 + 700);
  EXPECT_EQ(r.outcome->times.link_busy, 3000U);
  EXPECT_EQ(r.stats.misses, 1U);
  EXPECT_EQ(r.stats.prefetch_hits, 2U);
  EXPECT_EQ(r.stats.late_prefetches, 2U);
  EXPECT_EQ(r.stats.bytes_prefetch_used, 2000U);
  EXPECT_EQ(r.outcome->predictions.predicted, 3U) << "every visit but the first";
  EXPECT_EQ(r.outcome->predictions.predicted_and_routed, 3U);
  EXPECT_EQ(r.outcome->predictions.routed, 4U);
}

/// Writing victims back takes two nanoseconds a byte.
lab::link_request both_ways(write_back_way way, std::size_t spares = 0) {
  auto link = slow_link();
  link.write_back = way;
  link.back = link.link;
  link.back.bytes_per_second /= 2;
  link.spares = spares;
  return link;
}

TEST(timed_replay, a_victim_is_copied_back_before_its_slot_is_filled) {
  auto trace = two_steps();
  support::add_step(trace, {{0, 3}});
  support::add_step(trace, {{1, 1}});
  const auto on = [&](write_back_way way, std::size_t spares = 0) {
    return *run(trace, {}, "3", both_ways(way, spares), {.per_visit = 300}).outcome;
  };
  const auto free = on(write_back_way::none);
  const auto serial = on(write_back_way::serial);
  const auto duplex = on(write_back_way::duplex);
  // The last three of six copies each need a victim's slot.
  EXPECT_EQ(serial.bytes_back, 3000U);
  EXPECT_EQ(serial.times.back_busy, 3 * 2000U);
  EXPECT_EQ(serial.times.blocked, free.times.blocked + 3 * 2000U);
  EXPECT_EQ(duplex.times.blocked, serial.times.blocked);
  EXPECT_EQ(free.bytes_back, 0U);
  EXPECT_EQ(on(write_back_way::duplex, 3).times.blocked, free.times.blocked)
      << "a spare slot for each";
}

TEST(timed_replay, every_victim_is_copied_back_once) {
  const auto trace = scored(11);
  for (const char* ahead : {"none", "active_evict", "active_evict:release=end:tau=0.05"})
    for (const char* eviction : {"lru", "importance", "expert_map_priority"})
      for (const char* prefetch : {"no_prefetch", "next_layer_top_k"}) {
        SCOPED_TRACE(fmt::format("{} {} {}", ahead, eviction, prefetch));
        const policy_set policies{
            .eviction = eviction, .prefetch = prefetch, .pre_eviction = ahead};
        const auto r =
            run(trace, policies, "30%", both_ways(write_back_way::duplex), {.per_visit = 9000});
        EXPECT_EQ(r.stats.pre_evictions != 0, policies.pre_eviction != "none");
        // A prefetch cancelled before it began left its victim unchanged, or its copy was never made.
        EXPECT_LE(r.outcome->bytes_back, r.stats.evictions * 4000);
        if (r.stats.cancelled_prefetches == 0) {
          EXPECT_EQ(r.outcome->bytes_back, r.stats.evictions * 4000);
        }
        EXPECT_EQ(r.outcome->mass.lost, 0.0);
        EXPECT_GT(r.outcome->mass.routed, 0.0);
      }
}

TEST(timed_replay, a_prefetcher_that_knows_the_truth_hides_no_forecast_from_others) {
  const policy_set policies{.eviction = "importance",
                            .prefetch = "noisy_oracle:precision=0.5",
                            .pre_eviction = "active_evict"};
  EXPECT_GT(run(scored(15), policies, "30%").stats.pre_evictions, 0U);
}

TEST(timed_replay, slots_that_are_freed_ahead_take_the_way_back_out_of_the_wait) {
  const auto trace = scored(12, 0.0);
  policy_set policies{.eviction = "importance"};
  const auto on_demand =
      run(trace, policies, "30%", both_ways(write_back_way::duplex), {.per_visit = 20000});
  policies.pre_eviction = "active_evict";
  const auto ahead =
      run(trace, policies, "30%", both_ways(write_back_way::duplex), {.per_visit = 20000});
  EXPECT_LT(ahead.outcome->times.blocked, on_demand.outcome->times.blocked);
}

TEST(timed_replay, a_budget_of_free_slots_shortens_routing_and_reports_the_cost) {
  const auto trace = scored(13);
  policy_set policies{.eviction = "importance", .pre_eviction = "active_evict"};
  const auto fixed = run(trace, policies, "30%");
  policies.routing = "budget_top_k";
  const auto dynamic = run(trace, policies, "30%");
  policies.routing = "budget_top_k:keep_hits=true";
  const auto keeping = run(trace, policies, "30%");
  EXPECT_LT(dynamic.stats.fills, fixed.stats.fills);
  EXPECT_EQ(fixed.outcome->mass.lost, 0.0);
  EXPECT_GT(dynamic.outcome->mass.lost, 0.0);
  EXPECT_LT(keeping.outcome->mass.lost, dynamic.outcome->mass.lost);
  EXPECT_THAT(dynamic.notes, testing::Contains(HasSubstr("changes what a model computes")));
}

TEST(timed_replay, an_incomplete_request_is_refused_or_noted) {
  auto trace = scored(14);
  const auto reason = [&](const policy_set& set) {
    return refused(trace, request_of({set}, "30%"));
  };
  EXPECT_THAT(reason({.routing = "budget_top_k"}),
              HasSubstr("does nothing without slots that were freed ahead"));
  EXPECT_THAT(reason({.pre_eviction = "active_evct"}), HasSubstr("active_evict"));
  EXPECT_THAT(reason({.pre_eviction = "active_evict:tau=2"}),
              HasSubstr("active_evict tau = 2.000000, accepted: 0..1"));
  trace.predictions = {};
  trace.prediction_depth = 0;
  EXPECT_THAT(reason({.pre_eviction = "active_evict"}),
              HasSubstr("pre-eviction needs predictions 1 layer(s) ahead, and the trace has 0"));
  EXPECT_THAT(run(trace, {.eviction = "importance"}, "30%").notes,
              testing::Contains(HasSubstr("importance goes by the past alone")));
}

TEST(timed_replay, gate_latency_tokens_and_the_hosts_experts_take_their_time) {
  auto trace = support::empty_trace(1, 4, 1);
  trace.expert_bytes = {1000};
  support::add_step(trace, {{0}, {0}, {1}}, request_class::prefill);
  EXPECT_EQ(run(trace, {}, "4", slow_link(7), {.gate = 20, .per_visit = 300, .per_token = 10})
                .outcome->times.total,
            20U + 2 * 1007 + 300 + 30);
  EXPECT_EQ(run(trace, {.miss = "compute_on_host"}, "4", slow_link(),
                {.per_visit = 300, .per_host_expert = 400})
                .outcome->times.total,
            800U);
}

// The host would compute two experts. One gets the transient slot, at the price of its copy; the host computes the
// other beside the device.
TEST(timed_replay, a_transient_slot_costs_a_copy_and_spares_the_host) {
  auto trace = support::empty_trace(1, 4, 2);
  trace.expert_bytes = {1000};
  support::add_step(trace, {{0, 1}});
  support::add_step(trace, {{0, 1}});
  const auto timed = [&](std::size_t transient, ticks host) {
    return *run(trace, {.miss = "compute_on_host"}, "4", slow_link(7),
                {.per_visit = 300, .per_host_expert = host, .transient = transient})
                .outcome;
  };
  const auto none = timed(0, 400);
  EXPECT_EQ(none.times.total, 2U * 800);
  EXPECT_EQ(none.streamed, 0U);
  const auto one = timed(1, 400);
  EXPECT_EQ(one.times.total, 2U * (1007 + 300));
  EXPECT_EQ(one.times.link_busy, 2U * 1007);
  EXPECT_EQ(one.streamed, 2U);
  EXPECT_EQ(timed(1, 5000).times.total, 2U * 5000);
  EXPECT_EQ(timed(2, 5000).times.total, 2U * (2014 + 300));
}

TEST(timed_replay, the_first_token_ends_with_the_prompt_and_each_sequence_has_its_own) {
  auto trace = support::empty_trace(1, 4, 1);
  trace.expert_bytes = {1000};
  support::add_step(trace, {{0}, {0}}, request_class::prefill);
  support::add_step(trace, {{0}});
  support::add_step(trace, {{1}}, request_class::prefill);
  support::add_step(trace, {{1}});
  trace.sequence = {0, 0, 0, 1, 1};
  const auto t = run(trace, {}, "4", slow_link(), {.per_visit = 300}).outcome->times;
  EXPECT_EQ(t.sequences, 2U);
  EXPECT_EQ(t.first_token, 1300U + 1300);
  EXPECT_EQ(t.decoded, 2U);
  EXPECT_EQ(t.decoding, 600U);
}

TEST(timed_replay, a_clock_changes_no_decision) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const auto trace = scored(seed);
    for (const auto& eviction : support::plain_evictions()) {
      if (eviction == "belady_bypass") continue;
      for (const auto* admission : {"always", "budgeted"})
        for (const auto* slots : {"5", "25%", "60%"}) {
          const policy_set set{.eviction = eviction, .admission = admission};
          const auto plain = run(trace, set, slots);
          const auto timed = run(trace, set, slots, slow_link(5, 100), {.per_visit = 700});
          EXPECT_EQ(plain.decision_hash, timed.decision_hash) << eviction << ' ' << slots;
          EXPECT_EQ(plain.stats, timed.stats) << eviction << ' ' << slots;
          const bool hears =
              lab::read_policies({.eviction = eviction}).eviction->traits.wants_routes;
          EXPECT_EQ(plain.outcome.has_value(), hears) << "an engine, or a pager alone";
        }
    }
  }
}

/// Exact relations between any run's counters.
void expect_conserved(const run_result& r, const std::string& what) {
  SCOPED_TRACE(what);
  const auto& s = r.stats;
  EXPECT_EQ(s.hits + s.misses, s.accesses);
  EXPECT_EQ(s.reuse_hits() + s.prefetch_hits, s.hits);
  EXPECT_LE(s.late_prefetches, s.prefetch_hits);
  EXPECT_EQ(s.bytes_prefetched, s.bytes_prefetch_used + s.bytes_prefetch_wasted +
                                    s.bytes_prefetch_cancelled + s.bytes_prefetch_pending());
  EXPECT_EQ(s.bytes_filled, s.bytes_demand + s.bytes_prefetched - s.bytes_prefetch_cancelled);
  EXPECT_LE(s.compulsory_misses + s.collision_misses + s.precision_misses, s.misses);
  const auto served = s.bypasses + s.dropped_misses + s.substituted_misses;
  EXPECT_LE(served, s.misses);
  if (s.split_visits == 0)
    EXPECT_EQ(s.fills, s.misses - served);
  else
    EXPECT_GE(s.fills, s.misses - served);
  std::uint64_t collisions = 0;
  for (const auto& layer : s.per_layer) collisions += layer.collisions;
  EXPECT_EQ(collisions, s.collision_misses);
  ASSERT_TRUE(r.outcome);
  EXPECT_LE(r.outcome->times.blocked, r.outcome->times.total);
  EXPECT_LE(r.outcome->times.blocked, r.outcome->times.link_busy);
  const auto& q = r.outcome->queue;
  EXPECT_LE(q.issued + q.expired + q.displaced, q.added);
  EXPECT_LE(s.speculative_fills, q.issued);
}

TEST(timed_replay, counters_are_conserved_whatever_is_combined) {
  const auto trace = scored(3);
  for (const auto* eviction : {"lru", "least_stale", "gate_score"})
    for (const auto* prefetch : {"next_layer_top_k:overfetch=1.5", "score_threshold",
                                 "previous_step", "popular", "noisy_oracle:precision=0.7"})
      for (const auto* guard : {"none", "named", "predicted"})
        for (const auto* slots : {"6", "25%"})
          expect_conserved(run(trace, {eviction, "always", prefetch, guard}, slots,
                               slow_link(50, 1000), {.per_visit = 3000, .per_token = 100}),
                           fmt::format("{} {} {} {}", eviction, prefetch, guard, slots));
}

TEST(timed_replay, counters_are_conserved_with_precisions_misses_and_bent_routing) {
  const auto trace = scored(4);
  for (const auto* eviction : {"lru", "lhu", "least_stale", "furthest_layer", "popularity"})
    for (const auto* miss : {"fetch_lowest", "fetch_priority", "drop", "drop_cascade",
                             "substitute:tolerance=0.3", "compute_on_host:split=bandwidth_matched"})
      for (const auto* routing : {"router_order", "cache_aware"})
        for (const auto* slots : {"8", "40%"})
          expect_conserved(
              run(trace, {eviction, "always", "next_layer_top_k", "named", miss, routing}, slots,
                  slow_link(), {.per_visit = 3000}, "8:4"),
              fmt::format("{} {} {} {}", eviction, miss, routing, slots));
}

TEST(timed_replay, routing_that_is_not_bent_is_the_traces_own) {
  const auto trace = scored(5);
  const auto own = run(trace, {}, "25%", slow_link());
  const auto bent = run(trace, {.routing = "cache_aware:lambda=0"}, "25%", slow_link());
  EXPECT_EQ(own.decision_hash, bent.decision_hash);
  EXPECT_EQ(own.stats, bent.stats);
  const auto far = run(trace, {.routing = "cache_aware:lambda=0.5"}, "25%", slow_link());
  EXPECT_GT(far.stats.hits, own.stats.hits);
}

TEST(timed_replay, an_oracle_that_is_right_leaves_little_to_fetch) {
  const auto trace = scored(6);
  const auto r = run(trace, {.eviction = "least_stale", .prefetch = "noisy_oracle"}, "60%",
                     slow_link(), {.per_visit = 50'000});
  EXPECT_EQ(r.outcome->predictions.predicted, r.outcome->predictions.predicted_and_routed);
  EXPECT_EQ(r.stats.wasted_prefetches, 0U);
  EXPECT_LT(r.stats.misses, 20U) << "the first visit, and what found no room";
  EXPECT_THAT(r.notes, testing::Contains(HasSubstr("sees the trace's future")));
}

// WiSP: at batch 1 with a link that is never idle, prefetch cannot make decoding faster.
TEST(timed_replay, a_full_link_gains_nothing_from_prefetch) {
  const auto trace = scored(7, 0.0);
  const auto without = run(trace, {}, "30%", slow_link());
  const auto with = run(trace, {.prefetch = "next_layer_top_k"}, "30%", slow_link());
  EXPECT_GE(with.outcome->times.total, without.outcome->times.total);
}

/// An expert determines the next layer's: 0 -> 2 -> 1, 1 -> 3 -> 0.
routing_trace chained(std::size_t steps) {
  auto trace = support::empty_trace(3, 4, 1);
  trace.expert_bytes = {1000};
  for (std::size_t s = 0; s < steps; ++s)
    support::add_step(
        trace, {s % 2 == 0 ? support::expert_ids({0, 2, 1}) : support::expert_ids({1, 3, 0})});
  return trace;
}
run_result run_by_table(const routing_trace& trace, const char* prefetch,
                        const char* table = "co-activation") {
  return run(trace, {.prefetch = prefetch, .predictor = table}, "12");
}

TEST(timed_replay, a_table_learns_co_activation_during_the_replay) {
  const auto r = run_by_table(chained(10), "next_layer_top_k");
  // Each of the two chains is new once; then both layers ahead are known, and nothing else is requested.
  EXPECT_EQ(r.outcome->predictions.predicted, 8U * 2);
  EXPECT_EQ(r.outcome->predictions.predicted_and_routed, 8U * 2);
  EXPECT_EQ(r.outcome->predictions.routed, 10U * 3);
  EXPECT_TRUE(chained(1).logits.empty()) << "it needs no scores";
}

TEST(timed_replay, a_predictor_has_learnt_from_another_trace_before) {
  const auto lessons = chained(2);
  const auto trace = chained(10);
  auto request =
      request_of({{.prefetch = "next_layer_top_k", .predictor = "co-activation"},
                  {.prefetch = "next_layer_top_k", .predictor = "last-routed"},
                  {.prefetch = "next_layer_top_k", .predictor = "mixed+co-activation+last-routed"},
                  {.prefetch = "next_layer_top_k:depth=2", .predictor = "activation-matrix"}},
                 "12");
  const auto anew = lab::run_sweep(trace, request);
  request.lessons = &lessons;
  const auto taught = lab::run_sweep(trace, request);
  const auto& table = taught.results.front().outcome->predictions;
  EXPECT_EQ(table.predicted, 10U * 2) << "both chains are known from the beginning";
  EXPECT_EQ(table.predicted_and_routed, 10U * 2);
  for (std::size_t i = 0; i < request.policies.size(); ++i) {
    SCOPED_TRACE(request.policies[i].predictor);
    EXPECT_GE(taught.results[i].outcome->predictions.predicted_and_routed,
              anew.results[i].outcome->predictions.predicted_and_routed);
    EXPECT_EQ(taught.results[i].stats.accesses, anew.results[i].stats.accesses)
        << "what was learnt from is not counted";
  }
  auto wider = lessons;
  wider.experts = 5;
  request.lessons = &wider;
  EXPECT_EQ(refused(trace, request),
            wider.name + " has 3 layers of 5 experts, top-1, accepted: 3 of 4, top-1");
  request.policies = {{.prefetch = "next_layer_top_k", .predictor = "current-gate"}};
  auto scored_trace = trace;
  scored_trace.logits.assign(scored_trace.ids.size() * 4, 0.5F);
  request.lessons = &lessons;
  EXPECT_THAT(refused(scored_trace, request),
              HasSubstr("has no scores for predictor current-gate to learn from, accepted: "));
  auto wide = trace;
  wide.hidden_width = 6;
  lab::replay_front front;
  front.predictor.traits.needs_hidden = true;
  front.lessons = &lessons;
  const auto bad = lab::check_front(wide, front);
  ASSERT_TRUE(bad);
  EXPECT_THAT(bad->message, HasSubstr("has hidden states of 0 for predictor"));
  EXPECT_THAT(bad->message, HasSubstr("to learn from, accepted: of 6"));
}

// A map that was stored is found with cosine 1; nothing is stored at first, and the chains share no expert.
TEST(timed_replay, reports_the_predictors_confidence) {
  auto lessons = chained(2);
  auto trace = chained(10);
  for (auto* each : {&lessons, &trace}) each->weights.assign(each->ids.size(), 1.0F);
  auto request =
      request_of({{.prefetch = "next_layer_top_k", .predictor = "expert-map:source=weights"},
                  {.prefetch = "next_layer_top_k", .predictor = "co-activation"},
                  {}},
                 "12");
  const auto anew = lab::run_sweep(trace, request);
  ASSERT_TRUE(anew.results[0].outcome->confidence);
  EXPECT_NEAR(*anew.results[0].outcome->confidence, 0.8, 1e-6);
  EXPECT_FALSE(anew.results[1].outcome->confidence) << "it does not say";
  EXPECT_FALSE(anew.results[2].outcome) << "no policy asks";
  request.lessons = &lessons;
  const auto taught = lab::run_sweep(trace, request);
  EXPECT_NEAR(taught.results[0].outcome->confidence.value_or(0), 1.0, 1e-6)
      << "what was asked while it learnt does not count";
}

// 12 slots hold all experts that the training part used: nothing is missed, and the clock excludes that part.
TEST(timed_replay, a_cache_can_start_with_the_experts_used_most_in_training) {
  const auto lessons = chained(2);
  const auto trace = chained(10);
  auto request = request_of({{}}, "12");
  request.sizes.push_back(lab::size_request::parse_slots("2"));
  request.links = {slow_link()};
  request.costs = {.per_visit = 500};
  const auto cold = lab::run_sweep(trace, request);
  EXPECT_EQ(cold.results[0].stats.fills, 6U);
  request.lessons = &lessons;
  request.warm_start = true;
  const auto warm = lab::run_sweep(trace, request);
  EXPECT_EQ(warm.results[0].stats.fills, 0U);
  EXPECT_EQ(warm.results[0].stats.bytes_warm, 6U * 1000);
  EXPECT_EQ(warm.results[0].stats.compulsory_misses, 0U);
  EXPECT_EQ(warm.results[0].outcome->times.total, 10U * 3 * 500);
  EXPECT_EQ(warm.results[0].outcome->times.blocked, 0U);
  EXPECT_EQ(warm.results[0].outcome->times.link_busy, 0U);
  EXPECT_EQ(cold.results[0].outcome->times.total, 10U * 3 * 500 + 6U * 1000);
  EXPECT_EQ(warm.results[1].stats.bytes_warm, 2U * 1000) << "as many as there are slots";
  request.lessons = nullptr;
  EXPECT_THAT(refused(trace, request), HasSubstr("accepted: --warm-start with --learn-from TRACE"));
}

TEST(timed_replay, a_table_looks_as_far_ahead_as_it_reaches) {
  // Layer 1 routes nothing: layer 2 can be requested only at layer 0.
  auto gap = chained(10);
  for (std::size_t i = 1; i < gap.ids.size(); i += 3) gap.ids[i] = no_expert;
  const auto deep = run_by_table(gap, "next_layer_top_k:depth=2", "co-activation:reach=2");
  EXPECT_EQ(deep.outcome->predictions.predicted, 8U);
  EXPECT_EQ(deep.outcome->predictions.predicted_and_routed, 8U);
  const auto near = run_by_table(gap, "next_layer_top_k", "co-activation:reach=2");
  EXPECT_EQ(near.outcome->predictions.predicted, 0U);
  EXPECT_EQ(refusal<lab::usage_error>([] {
              (void)run_by_table(chained(2), "next_layer_top_k:depth=2", "co-activation:reach=1");
            }),
            "co_activation depth = 2, accepted: 1..1 (reach)");
}

TEST(timed_replay, a_table_predicts_visits_of_several_tokens_and_models_of_one_layer) {
  const auto trace = support::random_trace(8, {.layers = 4, .most_tokens = 5, .absent_one_in = 9});
  const auto r = run_by_table(trace, "score_threshold");
  EXPECT_GT(r.outcome->predictions.predicted_and_routed, 0U);
  EXPECT_EQ(r.stats.hits + r.stats.misses, r.stats.accesses);
  const auto flat = run_by_table(support::one_layer(12, {{0, 1}, {1, 2}}), "score_threshold");
  EXPECT_EQ(flat.outcome->predictions.predicted, 0U);
}

TEST(timed_replay, without_a_link_prefetches_arrive_at_once_and_nothing_is_timed) {
  const auto r = run(two_steps(), {.prefetch = "noisy_oracle"}, "4");
  EXPECT_EQ(r.stats.misses, 1U);
  EXPECT_EQ(r.stats.late_prefetches, 0U);
  EXPECT_EQ(r.outcome->times.total, 0U);
}

TEST(timed_replay, missing_parts_of_a_trace_are_reported_before_the_replay) {
  const auto bare = two_steps();
  const auto reason = [&](const policy_set& set, const std::string& precision = {}) {
    auto request = request_of({set}, "4");
    if (!precision.empty()) request.precisions = {lab::precision_ladder::parse(precision)};
    return refused(bare, request);
  };
  EXPECT_THAT(reason({.prefetch = "next_layer_top_k"}),
              HasSubstr("needs predictions 1 layer(s) ahead, and the trace has 0"));
  EXPECT_THAT(reason({.routing = "cache_aware"}), HasSubstr("needs the router's logits"));
  EXPECT_THAT(reason({.miss = "substitute"}), HasSubstr("needs the router's logits"));
  EXPECT_THAT(reason({.miss = "fetch_priority"}, "8:4"), HasSubstr("goes by gate weights"));
  EXPECT_THAT(reason({.miss = "fetch_lowest"}), HasSubstr("needs two or more precisions"));
  EXPECT_THAT(reason({.eviction = "lhu"}), HasSubstr("needs 2 or more precisions, and there is 1"));
  EXPECT_THAT(reason({}, "8:4"),
              HasSubstr("miss policy fetch knows one precision, and there are 2"));
  EXPECT_THAT(reason({.eviction = "belady", .miss = "fetch_lowest"}, "8:4"),
              HasSubstr("supports at most 1 precision"));
  EXPECT_THAT(reason({.eviction = "belady_bypass"}, "8:4"),
              HasSubstr("supports at most 1 precision"));
  EXPECT_THAT(reason({.eviction = "belady_bypass", .prefetch = "previous_step"}),
              HasSubstr("belady_bypass has no slots"));
  auto unknown = bare;
  unknown.expert_bytes.clear();
  EXPECT_THAT(refusal<lab::usage_error>([&] { (void)run(unknown, {}, "4", slow_link()); }),
              HasSubstr("does not say how large an expert is"));
}

TEST(timed_replay, other_replays_know_no_time) {
  for (const auto& [replay, size] :
       {std::pair(lab::replay_mode::per_access, lab::size_request::parse_slots("4")),
        {lab::replay_mode::deferred, lab::size_request::parse_budget("4000B")}})
    EXPECT_THAT(
        refused(two_steps(), {.replays = {replay}, .sizes = {size}, .links = {slow_link()}}),
        HasSubstr("accepted: event-atomic"));
}

TEST(timed_replay, a_timeline_has_every_copy_wait_and_visit) {
  std::ostringstream out;
  auto request = request_of({{.prefetch = "noisy_oracle"}}, "4");
  request.links = {slow_link()};
  request.costs.per_visit = 300;
  request.timeline = &out;
  (void)lab::run_sweep(two_steps(), request);
  const auto events = nlohmann::json::parse(out.str());
  double copied = 0, waited = 0, computed = 0;
  for (const auto& e : events) {
    if (e["ph"] != "X") continue;
    const double d = e["dur"];
    (e["tid"] != 1 ? copied : e["name"] == "wait" ? waited : computed) += d;
  }
  EXPECT_NEAR(copied, 3.0, 1e-9);
  EXPECT_NEAR(waited, 2.4, 1e-9);
  EXPECT_NEAR(computed, 1.2, 1e-9);
  request.links.push_back(slow_link());
  EXPECT_THAT(refused(two_steps(), request), HasSubstr("a timeline of 2 runs"));
}

}  // namespace
}  // namespace hotset::timed_replay_test
