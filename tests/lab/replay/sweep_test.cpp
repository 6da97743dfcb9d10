// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/sweep.hpp"

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/trace/native_trace_writer.hpp"
#include "sim_samples.hpp"
#include "trace_samples.hpp"

namespace sweep_test {
namespace {

using namespace hotset;
using lab::sweep_request;
using support::one_run;
using support::refusal;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

routing_trace sample(std::uint64_t seed = 1) {
  return support::random_trace(seed, {.layers = 3, .experts = 12, .steps = 50, .most_tokens = 4});
}
std::vector<lab::size_request> sizes(const std::vector<std::string>& texts) {
  std::vector<lab::size_request> out;
  for (const auto& t : texts) out.push_back(lab::size_request::parse_slots(t));
  return out;
}

void write(const routing_trace& trace, const std::filesystem::path& file) {
  const auto bad = write_native_trace(trace, file.string());
  ASSERT_FALSE(bad) << bad->message;
}

void expect_equal(const lab::sweep_result& a, const lab::sweep_result& b) {
  ASSERT_EQ(a.results.size(), b.results.size());
  for (std::size_t i = 0; i < a.results.size(); ++i) {
    SCOPED_TRACE(a.results[i].policies.eviction);
    EXPECT_EQ(a.results[i].policies.eviction, b.results[i].policies.eviction);
    EXPECT_EQ(a.results[i].slots, b.results[i].slots);
    EXPECT_EQ(a.results[i].stats, b.results[i].stats);
    EXPECT_EQ(a.results[i].decision_hash, b.results[i].decision_hash);
    EXPECT_EQ(a.results[i].notes, b.results[i].notes);
  }
}

TEST(sweep, describes_the_trace) {
  const auto trace = sample();
  sweep_request request;
  request.sizes = sizes({"50%"});
  request.replays = {lab::replay_mode::per_access};
  const auto result = lab::run_sweep(trace, request);
  EXPECT_EQ(result.name, trace.name);
  EXPECT_EQ(result.layers, 3);
  EXPECT_EQ(result.experts, 12);
  EXPECT_EQ(result.top_k, 2);
  EXPECT_EQ(result.tokens, trace.tokens());
  EXPECT_EQ(result.visits, 150U) << "of the event-atomic form, whatever is replayed";
}

TEST(sweep, nests_replay_scope_size_admission_eviction) {
  sweep_request request;
  request.replays = {lab::replay_mode::per_access, lab::replay_mode::event_atomic};
  request.scopes = {cache_scope::shared, cache_scope::per_layer};
  request.sizes = sizes({"12", "6"});
  request.policies = support::policy_sets({"lru", "fifo"}, {"always", "budgeted"});
  const auto result = lab::run_sweep(sample(), request);
  std::vector<std::string> order;
  for (const auto& r : result.results)
    order.push_back(fmt::format("{} {} {} {} {}", r.replay, r.scope, r.slots, r.policies.admission,
                                r.policies.eviction));
  std::vector<std::string> expected;
  for (const auto* replay : {"per-access", "event-atomic"})
    for (const auto* scope : {"shared", "per-layer"})
      for (const int slots : {12, 6})
        for (const auto* admission : {"always", "budgeted"})
          for (const auto* eviction : {"lru", "fifo"})
            expected.push_back(fmt::format("{} {} {} {} {}", replay, scope,
                                           std::string(scope) == "shared" ? slots : 3 * slots,
                                           admission, eviction));
  EXPECT_EQ(order, expected);
}

TEST(sweep, a_result_does_not_depend_on_its_company) {
  sweep_request request;
  request.policies = support::policy_sets(support::plain_evictions());
  request.scopes = {cache_scope::shared, cache_scope::per_layer};
  request.replays = {lab::replay_mode::event_atomic, lab::replay_mode::per_access};
  request.sizes = sizes({"4", "50%", "100%"});
  const auto all = lab::run_sweep(sample(), request);
  for (const auto& r : all.results) {
    const auto slots = std::to_string(r.scope == "shared" ? r.slots : r.slots / 3);
    const auto alone = one_run(sample(), {r.policies.eviction, r.scope, slots, r.replay});
    EXPECT_EQ(alone.stats, r.stats)
        << r.policies.eviction << ' ' << r.scope << ' ' << slots << ' ' << r.replay;
    EXPECT_EQ(alone.decision_hash, r.decision_hash);
  }
}

TEST(sweep, two_jobs_give_the_result_of_one) {
  sweep_request request;
  request.policies = support::policy_sets(support::plain_evictions());
  request.scopes = {cache_scope::shared, cache_scope::per_layer};
  request.replays = {lab::replay_mode::event_atomic, lab::replay_mode::per_access};
  request.sizes = sizes({"3", "25%", "100%"});
  const auto trace = sample(2);
  const auto one = lab::run_sweep(trace, request);
  request.jobs = 2;
  expect_equal(one, lab::run_sweep(trace, request));
}

TEST(sweep, progress_counts_to_the_total) {
  for (const unsigned jobs : {1U, 2U}) {
    sweep_request request;
    request.jobs = jobs;
    request.sizes = sizes({"4", "6", "8"});
    std::vector<std::uint64_t> seen, totals;
    request.progress = [&](std::uint64_t done, std::uint64_t total) {
      seen.push_back(done);
      totals.push_back(total);
    };
    const auto result = lab::run_sweep(sample(), request);
    EXPECT_THAT(totals, testing::Each(3 * result.visits));
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_EQ(seen.back(), 3 * result.visits);
    EXPECT_GT(seen.size(), 6U) << "it moves inside a replay";
  }
}

TEST(sweep, a_run_that_fails_ends_the_sweep_at_any_number_of_jobs) {
  for (const unsigned jobs : {1U, 2U}) {
    sweep_request request;
    request.jobs = jobs;
    request.sizes = sizes({"8", "1", "6"});
    EXPECT_THROW((void)lab::run_sweep(sample(), request), lab::infeasible_error);
  }
}

// A step of 4 tokens becomes one of 3 and one of 1: two visits per layer.
TEST(sweep, max_tokens_cuts_long_steps) {
  auto trace = support::empty_trace(2, 8, 2);
  support::add_step(trace, {{0, 1, 0, 1}, {2, 3, 2, 3}, {4, 5, 4, 5}, {6, 7, 6, 7}},
                    request_class::prefill);
  auto request = support::sweep_of({"lru", "per-layer", "6"});
  EXPECT_EQ(lab::run_sweep(trace, request).visits, 2U);
  EXPECT_EQ(lab::run_sweep(trace, request).results.front().stats.split_visits, 2U);
  request.max_tokens = 3;
  const auto cut = lab::run_sweep(trace, request);
  EXPECT_EQ(cut.visits, 4U);
  EXPECT_EQ(cut.results.front().stats.steps, 2U);
  EXPECT_EQ(cut.results.front().stats.split_visits, 0U);
}

TEST(sweep, popularity_names_the_source_of_its_profile) {
  const trace_samples::temporary_folder folder;
  const auto file = folder.path() / "profile.safetensors";
  write(sample(7), file);
  const auto note = [&](const std::string& eviction) {
    const auto notes = one_run(sample(), {eviction, "shared", "100%"}).notes;
    EXPECT_EQ(notes.size(), 1U);
    return notes.empty() ? std::string() : notes.front();
  };
  EXPECT_EQ(note("popularity"), "popularity profile: the replayed trace itself (sees the future)");
  EXPECT_EQ(
      note("protect_hot+popularity:first=9"),
      "popularity profile: the first 9 tokens of the replayed trace itself (sees the future)");
  EXPECT_EQ(note("popularity:profile=" + file.string()), "popularity profile: " + file.string());
  EXPECT_EQ(note("popularity:first=5:profile=" + file.string()),
            "popularity profile: the first 5 tokens of " + file.string());
}

TEST(sweep, guesses_about_a_profile_are_reported_with_it) {
  const trace_samples::temporary_folder folder;
  const auto file = folder.write("p.csv", "token,layer,experts\n0,0,11 0\n0,1,1 2\n0,2,3 4\n");
  const auto notes = one_run(sample(), {"popularity:profile=" + file.string()}).notes;
  EXPECT_THAT(notes, testing::Contains(HasSubstr("p.csv; experts per layer: 12, the highest id")));
}

TEST(sweep, popularity_uses_the_given_profile) {
  const trace_samples::temporary_folder folder;
  const auto file = folder.path() / "other.safetensors";
  const auto trace = sample();
  write(trace, file);
  const auto hash = [&](const std::string& eviction) {
    return one_run(trace, {eviction, "shared", "8"}).decision_hash;
  };
  EXPECT_EQ(hash("popularity"), hash("popularity:profile=" + file.string()));
  EXPECT_EQ(hash("popularity:first=4"), hash("popularity:first=4:profile=" + file.string()));
  EXPECT_NE(hash("popularity"), hash("popularity:first=4"));
  write(sample(8), file);
  EXPECT_NE(hash("popularity"), hash("popularity:profile=" + file.string()));
}

TEST(sweep, a_profile_of_another_shape_is_refused) {
  const trace_samples::temporary_folder folder;
  const auto file = folder.path() / "narrow.safetensors";
  write(support::random_trace(1, {.layers = 3, .experts = 11, .steps = 5}), file);
  EXPECT_THAT(refusal<lab::usage_error>(
                  [&] { (void)one_run(sample(), {"popularity:profile=" + file.string()}); }),
              HasSubstr("3 layers of 11 experts, accepted: 3 of 12"));
}

TEST(sweep, a_profile_that_is_no_trace_is_refused) {
  EXPECT_THROW((void)one_run(sample(), {"popularity:profile=no-such-file.csv"}), trace_error);
}

TEST(sweep, a_pool_below_the_cliff_is_noted) {
  EXPECT_THAT(one_run(sample(), {"lru", "shared", "4"}).notes,
              ElementsAre(HasSubstr("use at least 5")));
  EXPECT_THAT(one_run(sample(), {"lru", "shared", "5"}).notes, IsEmpty());
  EXPECT_THAT(one_run(sample(), {"lru", "per-layer", "2"}).notes, IsEmpty());
}

TEST(sweep, splitting_by_expert_is_noted) {
  EXPECT_THAT(
      one_run(sample(), {"lru", "shared", "6", "event-atomic", "always", visit_split::by_expert})
          .notes,
      Contains(HasSubstr("not exact")));
}

TEST(sweep, a_deferred_run_reports_its_budget) {
  auto trace = sample();
  trace.expert_bytes = {100, 100, 300};
  sweep_request request;
  request.replays = {lab::replay_mode::deferred};
  request.scopes = {cache_scope::shared, cache_scope::per_layer};
  request.sizes = {lab::size_request::parse_budget("3000B")};
  const auto runs = lab::run_sweep(trace, request).results;
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].slots, 10U) << "of the largest";
  EXPECT_EQ(runs[0].budget_bytes, 3000U);
  EXPECT_EQ(runs[1].slots, 10U + 10U + 3U);
}

TEST(sweep, replays_per_access_count_each_id) {
  const auto trace = sample();
  const auto run = one_run(trace, {"lru", "per-layer", "3", "per-access"});
  EXPECT_EQ(run.stats.visits, trace.ids.size());
  EXPECT_EQ(run.stats.accesses, trace.ids.size());
  EXPECT_EQ(run.stats.split_visits, 0U);
}

TEST(sweep, per_access_works_below_top_k) {
  EXPECT_EQ(one_run(sample(), {"lru", "per-layer", "1", "per-access"}).slots, 3U);
  EXPECT_THROW((void)one_run(sample(), {"lru", "per-layer", "1"}), lab::infeasible_error);
}

TEST(sweep, offline_policies_know_the_groups_of_visits_that_do_not_fit) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto trace =
        support::random_trace(seed, {.layers = 2, .experts = 12, .steps = 30, .most_tokens = 6});
    EXPECT_GT(one_run(trace, {"belady", "per-layer", "4"}).stats.split_visits, 0U);
    EXPECT_EQ(one_run(trace, {"belady_bypass", "per-layer", "4"}).stats.split_visits, 0U);
    for (const std::string name : {"belady", "belady_bypass"})
      EXPECT_EQ(one_run(trace, {name, "per-layer", "4"}).decision_hash,
                one_run(trace, {"eviction." + name, "per-layer", "4"}).decision_hash);
  }
}

TEST(sweep, mistakes_are_usage_errors) {
  const auto trace = sample();
  EXPECT_THAT(refusal<lab::usage_error>([&] { (void)lab::run_sweep(trace, {}); }),
              HasSubstr("no size"));
  const auto refuse = [&](const support::run_request& wanted) {
    return refusal<lab::usage_error>([&] { (void)one_run(trace, wanted); });
  };
  EXPECT_THAT(refuse({"lru2"}), HasSubstr("lru2"));
  EXPECT_THAT(refuse({"lru", "global"}), HasSubstr("global"));
  EXPECT_THAT(refuse({"lru", "shared", "50%", "lazy"}), HasSubstr("lazy"));
  EXPECT_THAT(refuse({"lru", "shared", "50%", "event-atomic", "never"}), HasSubstr("never"));
}

TEST(sweep, a_trace_that_routes_nothing_is_a_trace_error) {
  auto trace = support::empty_trace(1, 4, 2);
  trace.name = "void";
  support::add_step(trace, {{-1, -1}});
  EXPECT_THAT(refusal<trace_error>([&] { (void)one_run(trace, {}); }), HasSubstr("void: "));
}

TEST(sweep, an_empty_list_of_policies_gives_no_results) {
  sweep_request request;
  request.sizes = sizes({"8"});
  request.policies = {};
  EXPECT_THAT(lab::run_sweep(sample(), request).results, IsEmpty());
}

TEST(sweep, an_impossible_request_is_refused_and_not_ignored) {
  sweep_request request;
  request.sizes = sizes({"50%"});
  request.policies = support::policy_sets({"belady_bypass"});
  std::ostringstream log;
  request.decisions = &log;
  EXPECT_THROW((void)lab::run_sweep(sample(), request), lab::usage_error);
  EXPECT_TRUE(log.str().empty());
  request.policies = support::policy_sets({"lru"});
  request.decisions = nullptr;
  request.replays = {lab::replay_mode::deferred};
  request.size_classes = true;
  EXPECT_THROW((void)lab::run_sweep(sample(), request), lab::usage_error);
}

}  // namespace
}  // namespace sweep_test
