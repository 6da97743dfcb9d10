// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/finished_runs.hpp"

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/reports/sweep_report.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "lab/traces/trace_hash.hpp"
#include "sim_samples.hpp"
#include "trace_samples.hpp"

namespace hotset::finished_runs_test {
namespace {

using lab::finished_runs;
using lab::sweep_request;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class finished : public testing::Test {
 protected:
  static routing_trace scored() {
    return synthetic_trace({.layers = 3,
                            .experts = 8,
                            .top_k = 2,
                            .sequences = 3,
                            .prefill = 4,
                            .tokens = 30,
                            .scores = true,
                            .expert_bytes = 4000,
                            .seed = 4})
        .value();
  }
  sweep_request request(std::vector<std::string> sizes) {
    sweep_request out;
    out.policies = {lab::policy_set{}, lab::policy_set{.prefetch = "next_layer_top_k"},
                    lab::policy_set{.eviction = "popularity"}};
    out.scopes = {cache_scope::shared, cache_scope::per_layer};
    out.links = {{{1'000'000'000, 100, 0}, "1GB/s"}};
    for (const auto& text : sizes) out.sizes.push_back(lab::size_request::parse_slots(text));
    out.parts = true;
    out.inputs = std::to_string(lab::content_hash(trace_));
    return out;
  }
  std::string json(const sweep_request& asked) {
    return lab::to_json_text(std::vector{lab::run_sweep(trace_, asked)});
  }
  [[nodiscard]] std::filesystem::path cells() const { return folder_.path() / "cells"; }
  [[nodiscard]] finished_runs store() {
    return {cells(), [this](const std::string& line) { complaints_.push_back(line); }};
  }
  [[nodiscard]] std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> out;
    for (const auto& entry : std::filesystem::directory_iterator(cells()))
      out.push_back(entry.path());
    return out;
  }

  trace_samples::temporary_folder folder_;
  routing_trace trace_ = scored();
  std::vector<std::string> complaints_;
};

TEST_F(finished, runs_are_not_replayed_again_and_the_report_stays) {
  const auto whole = json(request({"50%", "75%"}));
  const auto kept = store();
  auto first = request({"50%"});
  first.finished = &kept;
  (void)json(first);
  EXPECT_EQ(files().size(), 6U);
  auto both = request({"50%", "75%"});
  both.finished = &kept;
  std::vector<std::string> running;
  both.running = [&](const std::string& line) { running.push_back(line); };
  EXPECT_EQ(json(both), whole);
  EXPECT_EQ(files().size(), 12U);
  EXPECT_THAT(running.front(), testing::StartsWith("6 of 12 runs"));
  EXPECT_THAT(running.back(), testing::StartsWith("12 of 12 runs"));
  running.clear();
  EXPECT_EQ(json(both), whole);
  EXPECT_THAT(running, ElementsAre(testing::StartsWith("12 of 12 runs")));
  EXPECT_THAT(complaints_, IsEmpty());
}

TEST_F(finished, a_damaged_file_is_reported_and_its_run_replayed) {
  const auto kept = store();
  auto asked = request({"50%"});
  asked.finished = &kept;
  const auto whole = json(asked);
  const auto damaged = files().front();
  const auto good = trace_samples::read_all(damaged);
  for (const auto& bad :
       std::vector<std::string>{"", good.substr(0, good.size() / 2), good + "x", "[]\n",
                                std::string(good).replace(good.find("\"hits\":") + 7, 1, "x")}) {
    complaints_.clear();
    std::ofstream(damaged) << bad;
    EXPECT_EQ(json(asked), whole);
    EXPECT_THAT(complaints_, ElementsAre(HasSubstr(damaged.string() + ": damaged (")));
    EXPECT_EQ(trace_samples::read_all(damaged), good);
  }
}

TEST_F(finished, a_file_of_another_run_is_refused) {
  const auto kept = store();
  auto asked = request({"50%"});
  asked.finished = &kept;
  const auto whole = json(asked);
  const auto all = files();
  std::filesystem::copy_file(all[0], all[1], std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(json(asked), whole);
  EXPECT_THAT(complaints_, ElementsAre(HasSubstr("it holds the result of another run")));
}

TEST_F(finished, a_key_covers_all_that_decides_a_result) {
  std::set<std::string> keys;
  std::size_t runs = 0;
  const auto expect_another = [&](auto change) {
    auto asked = request({"50%"});
    asked.policies = {lab::policy_set{}};
    asked.scopes = {cache_scope::shared};
    change(asked);
    keys.insert(lab::run_sweep(trace_, asked).results.front().key);
    EXPECT_EQ(keys.size(), ++runs);
  };
  expect_another([](sweep_request&) {});
  expect_another([](auto& r) { r.inputs += "|1"; });
  expect_another([](auto& r) { r.policies.front().eviction = "lfu"; });
  expect_another([](auto& r) { r.policies.front().admission = "after_n_uses"; });
  expect_another([](auto& r) { r.policies.front().prefetch = "next_layer_top_k"; });
  expect_another([](auto& r) { r.policies.front().miss = "drop"; });
  expect_another([](auto& r) { r.policies.front().routing = "cache_aware"; });
  expect_another([](auto& r) { r.scopes = {cache_scope::per_layer}; });
  expect_another([](auto& r) { r.sizes = {lab::size_request::parse_slots("51%")}; });
  expect_another([](auto& r) { r.links.clear(); });
  expect_another([](auto& r) { r.links.front().link.latency = 7; });
  expect_another([](auto& r) { r.links.front().write_back = write_back_way::duplex; });
  expect_another([](auto& r) { r.costs.per_token = 3; });
  expect_another([](auto& r) { r.size_classes = true; });
  expect_another([](auto& r) { r.split = visit_split::leave_rest; });
  expect_another([](auto& r) { r.max_tokens = 2; });
  auto same = request({"50%"});
  same.jobs = 2;
  EXPECT_TRUE(keys.contains(lab::run_sweep(trace_, same).results.front().key));
}

TEST_F(finished, a_key_covers_the_files_that_a_policy_names) {
  const auto key_with = [&](const std::string& text) {
    const auto file = folder_.write("profile.csv", text);
    auto asked = request({"50%"});
    asked.policies = {lab::policy_set{.eviction = "popularity:profile=" + file.string()}};
    return lab::run_sweep(trace_, asked).results.front().key;
  };
  const std::string head = "layer,expert\n";
  const std::string row = "0,7\n1,7\n2,7\n";
  const auto one = key_with(head + "0,3\n1,3\n2,3\n" + row);
  EXPECT_NE(one, key_with(head + "0,4\n1,4\n2,4\n" + row));
  EXPECT_EQ(one, key_with(head + "0,3\n1,3\n2,3\n" + row));
}

TEST_F(finished, a_key_covers_the_folder_that_a_profile_names) {
  const auto key_with = [&](const std::string& text) {
    const auto file = folder_.write("expert_weights_1.txt", text);
    auto asked = request({"50%"});
    asked.policies = {
        lab::policy_set{.eviction = "popularity:profile=" + file.parent_path().string()}};
    return lab::plan_sweep(trace_, asked).front().wanted.key;
  };
  const auto one = key_with("0\t1\t\t0.1\t0.2\n");
  EXPECT_NE(one, key_with("0\t2\t\t0.1\t0.2\n"));
  EXPECT_EQ(one, key_with("0\t1\t\t0.1\t0.2\n"));
}

TEST_F(finished, a_folder_that_cannot_be_made_is_refused) {
  const auto file = folder_.write("file", "text");
  EXPECT_THAT(support::refusal<lab::usage_error>([&] { finished_runs(file, {}); }),
              HasSubstr("accepted: a folder that may be written to"));
}

}  // namespace
}  // namespace hotset::finished_runs_test
