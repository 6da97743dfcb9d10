// SPDX-License-Identifier: Apache-2.0
/// The decision log through run_sweep: every line is JSON, and replaying the lines reproduces the residency.

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lab/replay/sweep.hpp"
#include "sim_samples.hpp"

namespace decision_log_test {
namespace {

using namespace hotset;
using key = std::pair<int, int>;

std::vector<nlohmann::json> lines_of(const std::string& text) {
  std::vector<nlohmann::json> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

struct logged {
  lab::sweep_result sweep;
  std::vector<nlohmann::json> lines;
};
logged log_of(const routing_trace& trace, lab::sweep_request request) {
  std::ostringstream out;
  request.decisions = &out;
  auto sweep = lab::run_sweep(trace, request);
  return {std::move(sweep), lines_of(out.str())};
}

/// A cache that follows the log, and checks that each line is possible.
class follower {
 public:
  explicit follower(std::uint64_t slots) : slots_(slots) {}

  void follow(const nlohmann::json& line) {
    const int layer = line["layer"];
    if (line.value("group", 0) == 0) accesses += line["hits"].size();
    for (const auto& e : line["hits"]) EXPECT_EQ(resident.count({layer, e}), 1U) << line;
    for (const auto& e : line["host"]) EXPECT_EQ(resident.count({layer, e}), 0U) << line;
    bypasses += line["host"].size();
    for (const auto& f : line["fills"]) {
      const int slot = f["slot"];
      if (f.contains("victim")) {
        const key victim{f["victim"][0], f["victim"][1]};
        EXPECT_EQ(resident.at(victim), slot) << line;
        leave(victim);
      }
      EXPECT_TRUE(used.insert(slot).second) << "slot " << slot << " is in use: " << line;
      EXPECT_TRUE(resident.emplace(key{layer, f["expert"]}, slot).second) << line;
      ++fills;
    }
    EXPECT_LE(resident.size(), slots_);
  }

  std::map<key, int> resident;
  std::set<int> used;
  std::uint64_t fills = 0, evictions = 0, bypasses = 0, accesses = 0;

 private:
  void leave(key k) {
    ASSERT_EQ(resident.count(k), 1U);
    used.erase(resident.at(k));
    resident.erase(k);
    ++evictions;
  }
  std::uint64_t slots_;
};

routing_trace sample() {
  return support::random_trace(
      1, {.layers = 3, .experts = 10, .steps = 40, .most_tokens = 4, .absent_one_in = 9});
}

TEST(decision_log, following_the_lines_gives_the_residency_again) {
  for (const std::string eviction :
       {"lru", "lfu", "belady", "least_stale", "protect_hot:uses=2+lru"})
    for (const std::string scope : {"shared", "per-layer"})
      for (const std::string admission : {"always", "budgeted:fills_per_visit=1"}) {
        SCOPED_TRACE(eviction + ' ' + scope + ' ' + admission);
        const auto log =
            log_of(sample(), support::sweep_of({eviction, scope, "4", "event-atomic", admission}));
        const auto& run = log.sweep.results.front();
        follower cache(run.slots);
        for (const auto& line : log.lines) cache.follow(line);
        EXPECT_EQ(cache.fills, run.stats.fills);
        EXPECT_EQ(cache.evictions, run.stats.evictions);
        EXPECT_EQ(cache.resident.size(), run.stats.fills - run.stats.evictions);
        EXPECT_EQ(log.lines.size(), run.stats.visits - run.stats.split_visits + run.stats.groups);
      }
}

TEST(decision_log, hits_of_whole_visits_are_all_hits) {
  const auto trace = support::random_trace(2, {.layers = 2, .experts = 8, .steps = 40});
  const auto log = log_of(trace, support::sweep_of({"lru", "shared", "6", "event-atomic",
                                                    "budgeted:fills_per_visit=1"}));
  follower cache(6);
  for (const auto& line : log.lines) cache.follow(line);
  EXPECT_EQ(cache.accesses, log.sweep.results.front().stats.hits);
  EXPECT_EQ(cache.bypasses, log.sweep.results.front().stats.bypasses);
}

TEST(decision_log, a_deferred_replay_has_none) {
  EXPECT_THROW((void)log_of(sample(), support::sweep_of({"lru", "shared", "6B", "deferred"})),
               lab::usage_error);
}

TEST(decision_log, lines_carry_the_number_of_their_run_event_step_and_layer) {
  auto request = support::sweep_of({"lru", "shared", "100%"});
  request.policies = support::policy_sets({"lru", "fifo"});
  request.jobs = 2;
  const auto trace = support::random_trace(3, {.layers = 2, .steps = 5});
  const auto log = log_of(trace, request);
  ASSERT_EQ(log.lines.size(), 20U);
  for (std::size_t i = 0; i < log.lines.size(); ++i) {
    EXPECT_EQ(log.lines[i]["run"], i / 10) << "runs do not mingle";
    EXPECT_EQ(log.lines[i]["event"], i % 10);
    EXPECT_EQ(log.lines[i]["step"], i % 10 / 2);
    EXPECT_EQ(log.lines[i]["layer"], i % 2);
    EXPECT_FALSE(log.lines[i].contains("group"));
  }
}

TEST(decision_log, groups_are_numbered_within_their_visit) {
  auto trace = support::empty_trace(1, 6, 2);
  support::add_step(trace, {{0, 1}, {2, 3}, {0, 2}}, request_class::prefill);
  const auto log = log_of(trace, support::sweep_of({"lru", "shared", "2"}));
  ASSERT_EQ(log.lines.size(), 3U);
  for (std::size_t g = 0; g < 3; ++g) EXPECT_EQ(log.lines[g]["group"], g);
  EXPECT_EQ(log.lines[2]["hits"], nlohmann::json({2})) << "brought by the group before";
  ASSERT_EQ(log.lines[2]["fills"].size(), 1U);
  EXPECT_EQ(log.lines[2]["fills"][0]["expert"], 0) << "given up in between";
  EXPECT_EQ(log.lines[2]["fills"][0]["victim"], nlohmann::json({0, 3}));
}

TEST(decision_log, a_log_changes_no_result) {
  auto request = support::sweep_of({"lru", "shared", "5"});
  auto evictions = support::plain_evictions();
  std::erase(evictions, "belady_bypass");  // it has no slots to tell of
  request.policies = support::policy_sets(evictions);
  const auto log = log_of(sample(), request);
  const auto silent = lab::run_sweep(sample(), request);
  for (std::size_t i = 0; i < silent.results.size(); ++i) {
    EXPECT_EQ(silent.results[i].stats, log.sweep.results[i].stats);
    EXPECT_EQ(silent.results[i].decision_hash, log.sweep.results[i].decision_hash);
  }
}

}  // namespace
}  // namespace decision_log_test
