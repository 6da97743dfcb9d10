// SPDX-License-Identifier: Apache-2.0
#ifdef TINY_MOE_CLI

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "program_run.hpp"
#include "random_source.hpp"
#include "tiny_moe/experts/adapter_files.hpp"
#include "tiny_moe/studies/expert_selection.hpp"
#include "tiny_moe/studies/fine_tuning.hpp"
#include "tiny_moe/studies/quality.hpp"
#include "trace_samples.hpp"

namespace fine_tune_command_test {
namespace {

using namespace tiny_moe;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

using outcome = hotset::support::program_outcome;

outcome run(const std::string& arguments) {
  return hotset::support::run_program("env -u HOTSET_TINY_MOE_DIR '" + std::string(TINY_MOE_CLI) +
                                      "' " + arguments);
}

const model& weights() {
  static const model loaded(HOTSET_TINY_MOE_DIR);
  return loaded;
}
std::string quoted(const std::filesystem::path& path) { return " '" + path.string() + "' "; }

/// One kind of score of a summary. Shape: [layers, experts].
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
std::vector<std::uint8_t> bytes_of(std::string_view words) { return {words.begin(), words.end()}; }

class fine_tune_command : public testing::Test {
 protected:
  std::filesystem::path written(const std::string& name, std::string_view bytes) const {
    return folder.write(name, bytes);
  }
  [[nodiscard]] std::filesystem::path out(const std::string& name) const {
    return folder.path() / name;
  }
  trace_samples::temporary_folder folder;
  std::string words = sums(80, 1);
  std::filesystem::path text = written("sums.txt", words);
};

// score-experts

using score_experts_command = fine_tune_command;

TEST_F(score_experts_command, writes_the_scores_of_both_kinds_to_four_decimals) {
  const auto result = run("score-experts --text" + quoted(text) + "--window 64 --limit 500" +
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
  const std::string arguments = "score-experts --limit 300 --text" + quoted(text);
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

// fine-tune

TEST_F(fine_tune_command, tunes_the_experts_that_the_scores_of_the_text_select) {
  ASSERT_EQ(run("score-experts --window 64 --limit 256 --text" + quoted(text) +
                quoted(out("summary.json")))
                .code,
            0);
  for (const std::string name : {"token", "gate"}) {
    SCOPED_TRACE(name);
    const auto made = run("fine-tune --text" + quoted(text) +
                          "--train-bytes 256 --window 64 --steps 2 "
                          "--p 0.15 --score " +
                          name + quoted(out(name)) + "2>/dev/null");
    ASSERT_EQ(made.code, 0) << made.text;
    const auto scores = scores_in(trace_samples::read_all(out("summary.json")), name + "_scores");
    auto wanted = select_experts(scores, 32, 0.15);
    std::size_t all = 0;
    for (auto& of_layer : wanted) {
      std::ranges::sort(of_layer);
      all += of_layer.size();
    }
    const auto adapter = read_adapter(weights().config(), out(name));
    EXPECT_EQ(adapter.name(), name);
    EXPECT_EQ(adapter.tuned(), wanted);
    EXPECT_THAT(made.text, AllOf(StartsWith(std::to_string(all) + " of 384 experts: at most "),
                                 HasSubstr("\nstep     1: "), HasSubstr("\nstep     2: ")));
  }
}

TEST_F(fine_tune_command, the_same_command_gives_the_same_bytes_and_another_seed_others) {
  const auto tune = [&](const std::string& name, const std::string& seed) {
    const auto result =
        run("fine-tune --text" + quoted(text) + "--window 48 --steps 3 --p 0.1 --seed " + seed +
            quoted(out(name)) + "2>/dev/null");
    EXPECT_EQ(result.code, 0) << result.text;
    return result.text;
  };
  const auto file_of = [&](const std::string& name, const std::string& file) {
    return trace_samples::read_all(out(name) / file);
  };
  EXPECT_EQ(tune("a", "1"), tune("b", "1"));
  tune("c", "2");
  EXPECT_EQ(file_of("a", "expert_cfg.json"), file_of("b", "expert_cfg.json"));
  EXPECT_EQ(file_of("a", "model.safetensors"), file_of("b", "model.safetensors"));
  EXPECT_EQ(file_of("a", "expert_cfg.json"), file_of("c", "expert_cfg.json"));
  EXPECT_NE(file_of("a", "model.safetensors"), file_of("c", "model.safetensors"));
}

TEST_F(fine_tune_command, a_text_is_learnt_and_what_is_written_is_what_is_measured) {
  const auto other = written("other.txt", sums(20, 2));
  const auto result = run("fine-tune --text" + quoted(text) + "--evaluate" + quoted(other) +
                          "--window 64 --steps 12" + quoted(out("sums")) + "2>/dev/null");
  ASSERT_EQ(result.code, 0) << result.text;
  const auto adapter = read_adapter(weights().config(), out("sums"));
  resident_experts resident(weights());
  merged_experts merged(weights(), adapter);
  const auto bytes = bytes_of(sums(20, 2));
  const auto base = bits_per_byte(weights(), resident, bytes);
  const auto tuned = bits_per_byte(weights(), merged, bytes);
  EXPECT_LT(tuned, base);
  std::array<char, 128> wanted{};
  std::snprintf(wanted.data(), wanted.size(),
                "%zu bytes evaluated: %.4f bits per byte, %.4f with the adapter (%+.4f)\n",
                bytes.size(), base, tuned, tuned - base);
  EXPECT_THAT(result.text, testing::EndsWith(wanted.data()));
}

TEST_F(fine_tune_command, evaluates_what_training_leaves_of_the_text) {
  const std::string start =
      "fine-tune --window 32 --steps 1 --p 0.05 --text" + quoted(text) + quoted(out("some"));
  const auto rest = std::to_string(words.size() - 800) + " bytes evaluated: ";
  EXPECT_THAT(run(start + "--train-bytes 800 2>/dev/null").text, HasSubstr("\n" + rest));
  EXPECT_THAT(run(start + "2>/dev/null").text, testing::Not(HasSubstr("evaluated")));
}

TEST_F(fine_tune_command, what_cannot_be_is_one_line_and_its_own_exit_code) {
  const auto refused = [](const std::string& arguments, int code, const std::string& says) {
    const auto result = run(arguments + " 2>&1");
    EXPECT_EQ(result.code, code) << arguments;
    EXPECT_THAT(result.text, AllOf(StartsWith("tiny_moe: "), HasSubstr(says))) << arguments;
    EXPECT_EQ(std::count(result.text.begin(), result.text.end(), '\n'), 1) << result.text;
  };
  const auto nothing = written("nothing.txt", "");
  const auto short_one = written("short.txt", std::string(127, 'a'));
  const std::string tune = "fine-tune --steps 1" + quoted(out("made")) + "--text";
  const auto good = tune + quoted(text);
  refused("fine-tune", 2, "is required");
  refused("fine-tune" + quoted(out("made")), 2, "--text is required");
  refused("fine-tune --text" + quoted(text), 2, "OUT is required");
  refused(good + "--score gates", 2, "did you mean gate?");
  refused(good + "--p 0", 2, "--p '0'; accepted: more than 0, at most 1");
  refused(good + "--p 1.5", 2, "--p '1.5'; accepted: more than 0, at most 1");
  refused(good + "--p nan", 2, "--p 'nan'; accepted: more than 0, at most 1");
  refused(good + "--steps 0", 2, "--steps");
  refused(good + "--step-size 0", 2, "--step-size '0'; accepted: more than 0, at most 1000");
  refused(good + "--step-size inf", 2, "--step-size 'inf'");
  refused(good + "--momentum 1", 2, "--momentum '1'; accepted: 0 or more, less than 1");
  refused(good + "--momentum -0.5", 2, "--momentum");
  refused(good + "--seed some", 2, "--seed");
  refused(good + "--window 1", 2, "--window '1'; accepted: 2..2048");
  refused(good + "--window 2049", 2, "--window '2049'; accepted: 2..2048");
  refused(good + "--train-bytes 100", 2, "--train-bytes '100'; accepted: 128 (--window) or more");
  refused(good + "--step 3", 2, "'--step' is unknown (did you mean --steps?)");
  refused(
      good + "--train-bytes 100000", 4,
      text.string() + ": has " + std::to_string(words.size()) + " bytes; accepted: 100000 or more");
  refused(tune + quoted(short_one), 4, "short.txt: has 127 bytes; accepted: 128 or more");
  refused(tune + quoted(nothing), 4, "nothing.txt: has 0 bytes; accepted: 128 or more");
  refused(tune + " /nowhere", 4, "/nowhere");
  refused(good + "--evaluate" + quoted(nothing), 4, "has 0 bytes; accepted: 2 or more");
  refused(good + "--model /nowhere", 4, "/nowhere/config.json");
  EXPECT_FALSE(std::filesystem::exists(out("made")));
  const std::string into = "fine-tune --steps 1 --text" + quoted(text);
  refused(into + quoted(text), 1, text.string() + ": is a file; accepted: a folder");
  refused(into + quoted(text / "within"), 1, text.string() + ": is a file; accepted: a folder");
  refused(into + "''", 2, "OUT ''; accepted: a folder");

  const auto score = "score-experts --text" + quoted(text);
  refused(score, 2, "OUT is required");
  refused("score-experts -", 2, "--text is required");
  refused(score + "--window 0 -", 2, "--window '0'; accepted: 1..2048");
  refused(score + "--limit 0 -", 2, "--limit");
  refused("score-experts --text" + quoted(nothing) + "-", 4, "has 0 bytes; accepted: 1 or more");
  refused("score-experts --text /nowhere -", 4, "/nowhere");
  refused(score + quoted(folder.path()), 1, "is a folder; accepted: a file");
}

}  // namespace
}  // namespace fine_tune_command_test

#endif  // TINY_MOE_CLI
