// SPDX-License-Identifier: Apache-2.0
#ifdef TINY_MOE_CLI

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "command_runs.hpp"
#include "paging_samples.hpp"
#include "random_source.hpp"
#include "tiny_moe/studies/expert_scores.hpp"
#include "trace_samples.hpp"

namespace score_experts_command_test {
namespace {

using namespace command_runs;
using namespace paging_samples;

std::string quoted(const std::filesystem::path& path) { return " '" + path.string() + "' "; }

/// Scores of one kind in a summary. Shape: [layers, experts].
std::vector<double> scores_in(const std::string& summary, const std::string& kind) {
  const auto layers = nlohmann::json::parse(summary).at(kind);
  std::vector<double> out;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const auto& scores = layers.at(std::to_string(l));
    for (std::size_t e = 0; e < scores.size(); ++e)
      out.push_back(scores.at(std::to_string(e)).get<double>());
  }
  return out;
}

std::string sums(std::size_t lines, std::uint64_t seed) {
  hotset::support::random_source random(seed);
  std::string out;
  for (std::size_t i = 0; i < lines; ++i) {
    const auto a = std::to_string(random.below(10));
    const auto b = std::to_string(random.below(10));
    out.append(a).append(" plus ").append(b).append(" is ");
    out += std::to_string(std::stoi(a) + std::stoi(b)) + ".\n";
  }
  return out;
}

class score_experts_command : public testing::Test {
 protected:
  std::filesystem::path written(const std::string& name, std::string_view bytes) const {
    return folder.write(name, bytes);
  }
  [[nodiscard]] std::filesystem::path out(const std::string& name) const {
    return folder.path() / name;
  }
  trace_samples::temporary_folder folder;
  std::string words = sums(80, 1);
  std::filesystem::path file = written("sums.txt", words);
};

TEST_F(score_experts_command, writes_the_scores_of_both_kinds_to_four_decimals) {
  const auto result = run("score-experts --text" + quoted(file) + "--window 64 --limit 500" +
                          quoted(out("summary.json")));
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.text,
            out("summary.json").string() + ": 384 experts of 12 layers, by 500 bytes\n");
  const auto wanted = score_experts(weights(), bytes_of(words.substr(0, 500)), 64);
  const auto text_of_both = trace_samples::read_all(out("summary.json"));
  for (const bool token : {true, false}) {
    const auto& all = token ? wanted.token : wanted.gate;
    const auto found = scores_in(text_of_both, token ? "token_scores" : "gate_scores");
    ASSERT_EQ(found.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_NEAR(found[i], all[i], 0.5001e-4) << "layer " << i / 32 << ", expert " << i % 32;
  }
}

TEST_F(score_experts_command, a_dash_is_standard_output_and_nothing_else_is_printed) {
  const std::string arguments = "score-experts --limit 300 --text" + quoted(file);
  EXPECT_EQ(run(arguments + quoted(out("summary.json"))).code, 0);
  const auto printed = run(arguments + "- 2>&1");
  EXPECT_EQ(printed.code, 0);
  EXPECT_EQ(printed.text, trace_samples::read_all(out("summary.json")));
}

// Three bytes of a text weigh as much as three of another.
TEST_F(score_experts_command, several_texts_are_scored_by_their_bytes) {
  const auto other = written("other.txt", words.substr(100, 128));
  const auto third = written("third.txt", words.substr(300, 384));
  const auto result =
      run("score-experts --text" + quoted(other) + quoted(third) + "--window 128 -");
  ASSERT_EQ(result.code, 0);
  const auto found = scores_in(result.text, "token_scores");
  const auto a = score_experts(weights(), bytes_of(words.substr(100, 128)), 128).token;
  const auto b = score_experts(weights(), bytes_of(words.substr(300, 384)), 128).token;
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], 0.25 * a[i] + 0.75 * b[i], 0.5001e-4) << "expert " << i;
}

TEST_F(score_experts_command, errors_are_one_line_with_their_own_exit_code) {
  const auto nothing = written("nothing.txt", "");
  const auto score = "score-experts --text" + quoted(file);
  expect_refused(score, 2, "OUT is required");
  expect_refused("score-experts -", 2, "--text is required");
  expect_refused(score + "--window 0 -", 2, "--window '0'; accepted: 1..2048");
  expect_refused(score + "--limit 0 -", 2, "--limit");
  expect_refused("score-experts --text" + quoted(nothing) + "-", 4,
                 "has 0 bytes; accepted: 1 or more");
  expect_refused("score-experts --text /nowhere -", 4, "/nowhere");
  expect_refused(score + quoted(folder.path()), 1, "is a folder; accepted: a file");
}

}  // namespace
}  // namespace score_experts_command_test

#endif  // TINY_MOE_CLI
