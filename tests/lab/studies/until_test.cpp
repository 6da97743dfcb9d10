// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/until.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim_samples.hpp"

namespace until_test {
namespace {

using namespace hotset;
using lab::until_target;
using support::one_run;
using support::refusal;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using measure = until_target::measure;

std::vector<until_target> targets_of(const std::vector<std::string>& texts) {
  std::vector<until_target> out;
  for (const auto& text : texts) out.push_back(until_target::parse(text));
  return out;
}
lab::sweep_result until(const routing_trace& trace, const lab::sweep_request& request,
                        const std::vector<std::string>& texts) {
  return lab::run_until(trace, request, targets_of(texts));
}
lab::sweep_request of(const std::string& eviction, cache_scope scope = cache_scope::shared) {
  lab::sweep_request request;
  request.policies = support::policy_sets({eviction});
  request.scopes = {scope};
  return request;
}

/// The target's value in a cache of so many slots; nothing if they are too few for a visit.
std::optional<double> value_at(const routing_trace& trace, lab::sweep_request request,
                               const std::string& target, std::size_t slots) {
  if (slots == 0) return std::nullopt;
  request.sizes = {lab::size_request::parse_slots(std::to_string(slots))};
  try {
    return until_target::parse(target).value_of(lab::run_sweep(trace, request).results.front());
  } catch (const lab::infeasible_error&) {
    return std::nullopt;
  }
}

/// Compares every result with replays of its size, of the next smaller one and, if `all`, of all smaller ones from
/// `widest` on.
void expect_fewest(const routing_trace& trace, const lab::sweep_request& request,
                   const std::string& text, bool all) {
  SCOPED_TRACE(trace.name + ' ' + request.policies[0].eviction + ' ' + text);
  const auto target = until_target::parse(text);
  const auto sweep = until(trace, request, {text});
  ASSERT_EQ(sweep.results.size(), 1U);
  const auto& run = sweep.results[0];
  const auto slots = std::stoul(run.size);
  EXPECT_EQ(run.found->target, text);
  EXPECT_EQ(run.found->reached, value_at(trace, request, text, slots));
  EXPECT_TRUE(target.reached_by(run.found->reached));
  EXPECT_EQ(run.found->next_smaller, value_at(trace, request, text, slots - 1));
  EXPECT_FALSE(target.reached_by(run.found->next_smaller));
  const auto widest = visit_sequence(trace).widest_union();
  for (std::size_t fewer = widest; all && fewer < slots; ++fewer)
    ASSERT_FALSE(target.reached_by(value_at(trace, request, text, fewer))) << fewer;
}

TEST(until, finds_the_fewest_slots_as_replays_of_every_size_do) {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const auto trace =
        support::random_trace(seed, {.layers = static_cast<std::int32_t>(1 + seed % 3),
                                     .experts = 9,
                                     .steps = 30,
                                     .most_tokens = 1 + seed % 3,
                                     .skewed = seed % 2 == 0});
    const auto scope = seed % 4 < 2 ? cache_scope::shared : cache_scope::per_layer;
    for (const std::string eviction : {"lru", "fifo", "lfu", "belady"})
      for (const std::string text : {"hit=5%", "hit=31.4%", "hit=60%"})
        expect_fewest(trace, of(eviction, scope), text, true);
    for (const std::string eviction : {"similar_steps", "lfru", "belady_bypass"})
      expect_fewest(trace, of(eviction, scope), "hit=45%", false);
    if (HasFailure()) return;
  }
}

TEST(until, finds_the_fewest_slots_for_a_time_per_token) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const auto trace = support::random_trace(seed, {.layers = 2, .experts = 9, .steps = 30});
    auto request = of(seed % 2 == 0 ? "lru" : "lfru");
    request.links = {{.link = {.bytes_per_second = 1'000'000}, .text = "1MB/s"}};
    request.costs.per_visit = 300;
    for (const std::string text : {"tpot=3us", "tpot=1.8us"})
      expect_fewest(trace, request, text, false);
    if (HasFailure()) return;
  }
}

/// Belady's anomaly: 3 slots hit 3 times, 4 slots twice, 5 slots 7 times. Eight experts lead a bisection to 5 slots.
routing_trace anomaly() {
  return support::one_layer(8, {{0}, {1}, {2}, {3}, {0}, {1}, {4}, {0}, {1}, {2}, {3}, {4}});
}

TEST(until, of_fifo_is_exact_although_its_misses_rise_with_slots) {
  const auto found = until(anomaly(), of("fifo"), {"hit=25%"}).results.at(0);
  EXPECT_EQ(found.slots, 3U);
  EXPECT_THAT(found.notes, IsEmpty());
}

TEST(until, says_if_fewer_slots_may_do) {
  auto request = of("fifo");
  request.links = {{.link = {.bytes_per_second = 1'000'000}, .text = "1MB/s"}};
  const auto found = until(anomaly(), request, {"hit=25%"}).results.at(0);
  EXPECT_EQ(found.slots, 5U);
  EXPECT_DOUBLE_EQ(*found.found->next_smaller, 2.0 / 12);
  EXPECT_THAT(found.notes, Contains(HasSubstr("found by bisection")));
}

TEST(until, of_a_size_that_no_visit_fits_in_has_no_next_smaller_value) {
  const auto trace = support::one_layer(4, {{0, 1}, {0, 1}, {0, 1}});
  const auto found = until(trace, of("lru"), {"hit=60%"}).results.at(0);
  EXPECT_EQ(found.slots, 2U);
  EXPECT_EQ(found.found->next_smaller, std::nullopt);
  EXPECT_THAT(found.notes, IsEmpty());
}

// 9 of 10 accesses hit, and 999 of 1000: shares whose binary fractions are not exact.
TEST(until, a_share_that_is_met_exactly_is_reached) {
  std::vector<support::token_row> rows(1000, {0});
  EXPECT_EQ(until(support::one_layer(3, rows), of("lru"), {"hit=99.9%"}).results[0].slots, 1U);
  rows.resize(10, {0});
  EXPECT_EQ(until(support::one_layer(3, rows), of("lru"), {"hit=90%"}).results[0].slots, 1U);
}

TEST(until, gives_a_row_for_each_target_and_setting_whatever_the_jobs) {
  const auto trace = support::random_trace(3, {.layers = 3, .experts = 12, .most_tokens = 2});
  lab::sweep_request request;
  request.policies = support::policy_sets({"lru", "lfru"});
  request.scopes = {cache_scope::shared, cache_scope::per_layer};
  const auto rows_of = [&](unsigned jobs) {
    request.jobs = jobs;
    std::vector<std::tuple<std::string, std::string, std::string, std::uint64_t>> rows;
    for (const auto& run : until(trace, request, {"hit=20%", "hit=40%"}).results)
      rows.emplace_back(run.found->target, run.scope, run.policies.eviction, run.slots);
    return rows;
  };
  const auto rows = rows_of(1);
  ASSERT_EQ(rows.size(), 8U);
  EXPECT_EQ(std::get<0>(rows[3]), "hit=20%");
  EXPECT_EQ(std::get<1>(rows[2]), "per-layer");
  EXPECT_EQ(std::get<2>(rows[1]), "lfru");
  EXPECT_EQ(rows_of(3), rows);
}

TEST(until, a_target_out_of_reach_is_named_with_the_nearest_one) {
  const auto trace = anomaly();
  const auto why =
      "hit=80%: lru, shared scope, 8 slots for all experts: 5 of 12 accesses miss, 5 of them on a "
      "first use; accepted: hit=58.33% or less";
  EXPECT_EQ(refusal<lab::infeasible_error>([&] { (void)until(trace, of("lru"), {"hit=80%"}); }),
            why);
  const auto some = until(trace, of("lru"), {"hit=80%", "hit=58.33%"});
  ASSERT_EQ(some.results.size(), 1U);
  EXPECT_EQ(some.results[0].slots, 5U);
  EXPECT_THAT(some.not_replayed, ElementsAre(why));
  auto timed = of("lru");
  timed.links = {{.link = {.bytes_per_second = 1'000'000}, .text = "1MB/s"}};
  timed.costs.per_visit = 300;
  EXPECT_THAT(refusal<lab::infeasible_error>([&] { (void)until(trace, timed, {"tpot=100ns"}); }),
              HasSubstr("a token takes 0.001 ms; accepted: tpot=0.001ms or more"));
}

TEST(until, refuses_what_cannot_be_measured) {
  EXPECT_THAT(refusal<lab::usage_error>([&] { (void)until(anomaly(), of("lru"), {"tpot=1ms"}); }),
              HasSubstr("needs the speed of the link, accepted: --link 25GB/s"));
  auto deferred = of("lru");
  deferred.replays = {lab::replay_mode::deferred};
  EXPECT_THAT(refusal<lab::usage_error>([&] { (void)until(anomaly(), deferred, {"hit=1%"}); }),
              HasSubstr("accepted: other replays"));
  auto prompt = support::empty_trace(1, 4, 1);
  support::add_step(prompt, {{0}, {1}}, request_class::prefill);
  auto timed = of("lru");
  timed.links = {{.link = {.bytes_per_second = 1'000'000}, .text = "1MB/s"}};
  EXPECT_THAT(refusal<lab::usage_error>([&] { (void)until(prompt, timed, {"tpot=1ms"}); }),
              HasSubstr("2 accesses and no decode rows, accepted: traces of decoding"));
}

TEST(until, targets_are_strict) {
  EXPECT_EQ(until_target::parse("hit=12.5%").bound, 0.125);
  EXPECT_EQ(until_target::parse("tpot=20ms").of, measure::tpot);
  EXPECT_DOUBLE_EQ(until_target::parse("tpot=20ms").bound, 0.02);
  for (const auto* text :
       {"", "hit", "hit=", "hit=90", "hit=0%", "hit=101%", "hit=90%%", "hit=nan%", "hit=1e1%",
        "tpot=20", "tpot=0ms", "tpot=-1ms", "ttft=1s", "90%"})
    EXPECT_THAT(refusal<lab::usage_error>([&] { (void)until_target::parse(text); }),
                HasSubstr("accepted: hit=90% (at most 100%), tpot=20ms"))
        << text;
}

}  // namespace
}  // namespace until_test
