// SPDX-License-Identifier: Apache-2.0
#ifdef TINY_MOE_CLI

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "command_runs.hpp"
#include "hotset/version.hpp"
#include "trace_samples.hpp"

namespace command_line_test {
namespace {

using namespace command_runs;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(tiny_moe_command_line, generates_text) {
  const outcome result = run("generate --prompt 'def add(a, b):' --tokens 8 2>&1 >/dev/null");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.text, AllOf(HasSubstr("prefill 14 tokens"), HasSubstr("decode 7 tokens")));
  const outcome text = run("generate --prompt 'def add(a, b):' --tokens 8 2>/dev/null");
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.text, StartsWith("def add(a, b):"));
  EXPECT_EQ(text.text.size(), 14U + 8U + 1U);
  EXPECT_EQ(run("generate --prompt 'def add(a, b):' --tokens 8 2>/dev/null").text, text.text);
}

TEST(tiny_moe_command_line, checks_the_reference) {
  const outcome result = run("check");
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("prose-1"), HasSubstr("agrees with the reference")));
}

TEST(tiny_moe_command_line, wrong_usage_is_2) {
  EXPECT_EQ(run("2>&1").code, 0);  // says what there is
  for (const char* wrong : {"unknown", "generate", "generate --prompt a --prompt-file b",
                            "generate --prompt a --tokens 0", "generate --prompt a --tokens many"})
    expect_refused(wrong, 2);
  EXPECT_EQ(run("--help").code, 0);
}

TEST(tiny_moe_command_line, version_equals_the_library_version) {
  const outcome result = run("--version");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.text, fmt::format("tiny_moe (hotset) {}.{}.{}\n", HOTSET_VERSION_MAJOR,
                                     HOTSET_VERSION_MINOR, HOTSET_VERSION_PATCH));
}

TEST(tiny_moe_command_line, mistyped_names_and_sizes_without_a_unit_are_recognised) {
  const auto meant = [](const std::string& arguments, const std::string& what) {
    expect_refused(arguments, 2, "(did you mean " + what + "?)");
  };
  meant("generat --prompt a", "generate");
  meant("generate --promt a", "--prompt");
  meant("generate --prompt a --expert-budget 25% --eviction lruu", "lru");
  meant("generate --prompt a --expert-budget 25% --link 5", "5GB/s");
  meant("generate --prompt a --expert-budget 1500kib", "1500KiB");
  meant("serve-trace /dev/null --budget 6", "6MiB");
  meant("evaluate --expert-budget 25% --columns hits", "hit");
}

TEST(tiny_moe_command_line, bad_input_is_4) {
  expect_refused("check --model /nowhere", 4, "/nowhere/config.json");
  for (const char* bad : {"check --reference /dev/null", "generate --prompt ''",
                          "generate --prompt-file /nowhere", "generate --prompt a --tokens 3000"})
    expect_refused(bad, 4);
}

TEST(tiny_moe_command_line, a_dash_is_standard_output_and_input) {
  const trace_samples::temporary_folder folder;
  const auto prompt = folder.write("p.txt", "def add(a, b):").string();
  const auto written = run("trace - --tokens 4 --prompts '" + prompt + "' 2>/dev/null");
  EXPECT_EQ(written.code, 0);
  EXPECT_THAT(written.text, HasSubstr(R"("format":"hotset.trace/1")"));
  const auto piped = run("trace - --tokens 4 --prompts - 2>/dev/null <'" + prompt + "'");
  EXPECT_EQ(piped.text, written.text);
  EXPECT_EQ(run("generate --prompt-file - --tokens 8 2>/dev/null <'" + prompt + "'").text,
            run("generate --prompt 'def add(a, b):' --tokens 8 2>/dev/null").text);
  EXPECT_EQ(run("trace '" + folder.path().string() + "' 2>&1 >/dev/null").text,
            "tiny_moe: " + folder.path().string() + ": is a folder; accepted: a file\n");
}

TEST(tiny_moe_command_line, standard_output_that_is_full_or_closed_is_a_failure) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  for (const char* command : {"check", "generate --prompt a --tokens 2"}) {
    for (const char* to : {"2>&1 >/dev/full", "2>&1 >&-"}) {
      const auto result = run(std::string(command) + " " + to);
      EXPECT_EQ(result.code, 1) << command << to;
      EXPECT_THAT(result.text, StartsWith("tiny_moe: standard output: cannot be written"));
    }
  }
}

TEST(tiny_moe_command_line, the_environment_names_the_model_and_the_option_wins) {
  const std::string program = std::string("HOTSET_TINY_MOE_DIR=/elsewhere '") + TINY_MOE_CLI + "' ";
  const auto with_environment = [&](const std::string& arguments) {
    return run("--help >/dev/null; " + program + arguments);
  };
  EXPECT_THAT(with_environment("check 2>&1").text, HasSubstr("/elsewhere/config.json"));
  EXPECT_THAT(with_environment("check --model /here 2>&1").text, HasSubstr("/here/config.json"));
  EXPECT_EQ(with_environment("check --model '" HOTSET_TINY_MOE_DIR "'").code, 0);
}

TEST(tiny_moe_command_line, a_budget_for_experts_changes_the_speed_and_not_the_text) {
  const std::string plain = "generate --prompt 'def add(a, b):' --tokens 24 ";
  const auto wanted = run(plain + "2>/dev/null").text;
  for (const char* paging :
       {"--expert-budget 1500KiB",
        "--expert-budget 4 --scope per-layer --eviction protect_hot:uses=2+lfu",
        "--expert-budget 25% --stream worker --max-tokens 5 --eviction popularity --admission "
        "budgeted:fills_per_visit=1",
        "--expert-budget 25% --stream worker --prefetch next_layer_top_k:depth=2 --predictor "
        "co-activation:reach=2:decay=1",
        "--expert-budget 12.5% --eviction expert_map_priority --pre-eviction "
        "active_evict:release=end --predictor last-routed"}) {
    const outcome result = run(plain + paging + " 2>/dev/null");
    EXPECT_EQ(result.code, 0) << paging;
    EXPECT_EQ(result.text, wanted) << paging;
  }
  EXPECT_THAT(run(plain + "--expert-budget 25% 2>&1 >/dev/null").text,
              AllOf(HasSubstr("experts 96 of 384"), HasSubstr("% hits"), HasSubstr("MB moved")));
  EXPECT_THAT(
      run(plain + "--expert-budget 25% --pre-eviction active_evict 2>&1 >/dev/null").text,
      AllOf(HasSubstr("slots ahead by active_evict"), testing::Not(HasSubstr("not exact"))));
}

TEST(tiny_moe_command_line, routing_within_freed_slots_is_reported_as_not_exact) {
  const outcome result = run(
      "generate --prompt 'def add(a, b):' --tokens 24 --expert-budget 25% --routing budget_top_k "
      "--pre-eviction active_evict 2>&1 >/dev/null");
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("not exact: fetch, budget_top_k"));
}

TEST(tiny_moe_command_line, verify_ends_with_a_summary) {
  const std::string prompts = " --prompts '" HOTSET_TINY_MOE_DIR "/prompts/math-2.txt'";
  const outcome result = run("verify --tokens 2" + prompts);
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text,
              AllOf(HasSubstr("not exact, as it says"), HasSubstr("verified: 192 runs"),
                    HasSubstr("all byte-identical to full residency")));
}

TEST(tiny_moe_command_line, errors_are_one_line_with_their_own_exit_code) {
  const std::string start = "generate --prompt a --expert-budget ";
  const std::string quarter = start + "25% ";
  expect_refused(start + "3", 3, "4 slots");
  expect_refused(start + "1% --scope per-layer", 3, "4 slots");
  expect_refused(start + "91kB", 3, "accepted: 90KiB or more");
  expect_refused(start + "24XB", 2, "MiB");
  expect_refused(quarter + "--eviction nothing", 2, "least_stale");
  expect_refused(quarter + "--eviction belady", 2, "future");
  expect_refused(quarter + "--scope global", 2, "per-layer");
  expect_refused(quarter + "--admission never", 2);
  expect_refused(quarter + "--stream device", 2);
  expect_refused(quarter + "--predictor crystal", 2, "co-activation");
  expect_refused(quarter + "--prefetch next_layer_top_k:depth=3 --predictor co-activation:reach=2",
                 2, "depth = 3, accepted: 1..2 (reach)");
  expect_refused(quarter + "--pre-eviction passive", 2, "active_evict");
  expect_refused(quarter + "--routing budget_top_k", 2,
                 "accepted: with --pre-eviction active_evict");
  expect_refused(quarter + "--pre-eviction active_evict --predictor learned-gate:weights=/nowhere",
                 2, "/nowhere: cannot be read");
  expect_refused("trace", 2);
  expect_refused("trace out --with everything", 2);
  expect_refused("trace /nowhere/out --tokens 1", 1);
  expect_refused("verify --prompts /nowhere", 4);
  expect_refused("verify --model /nowhere", 4);
}

// serve-trace

class serve_trace_command : public testing::Test {
 protected:
  // Three requests, two of them turns of one conversation.
  void SetUp() override {
    folder.write("r.jsonl",
                 R"({"timestamp": 0, "input_length": 1024, "output_length": 128, "hash_ids": [1, 2]}
{"timestamp": 900, "input_length": 1500, "output_length": 64, "hash_ids": [1, 2, 3]}
{"timestamp": 900, "input_length": 700, "output_length": 96, "hash_ids": [9, 10]}
)");
  }
  [[nodiscard]] std::string arguments(const std::string& options) const {
    return "serve-trace '" + (folder.path() / "r.jsonl").string() + "' " + options;
  }
  [[nodiscard]] outcome serve(const std::string& options) const { return run(arguments(options)); }
  trace_samples::temporary_folder folder;
};

TEST_F(serve_trace_command, compares_splits_whose_outputs_are_identical) {
  const auto table = serve("--budget 4MiB --split sweep:4,mv-wsa --link 100MB/s --recompute 1ms");
  EXPECT_EQ(table.code, 0) << table.text;
  EXPECT_THAT(table.text, AllOf(HasSubstr("fixed 4"), HasSubstr("fixed 8"), HasSubstr("mv-wsa"),
                                HasSubstr("runs: identical")));
  const auto json = serve("--budget 4MiB --split 4 --link 100MB/s --recompute 1ms --json");
  EXPECT_EQ(json.code, 0);
  EXPECT_THAT(json.text, AllOf(HasSubstr("\"schema\": \"hotset.serve/1\""),
                               HasSubstr("\"outputs_identical\": true")));
}

TEST_F(serve_trace_command, shows_metrics_and_writes_a_timeline) {
  const auto path = folder.path() / "t.json";
  const auto served = serve(
      "--budget 4MiB --split 8 --link 100MB/s --recompute 1ms --emulate-link --metrics "
      "127.0.0.1:0 --timeline '" +
      path.string() + "' 2>&1 >/dev/null");
  EXPECT_EQ(served.code, 0) << served.text;
  EXPECT_THAT(served.text, StartsWith("metrics: http://127.0.0.1:"));
  std::ifstream file(path);
  std::map<std::string, std::size_t> spans;
  std::map<std::string, std::set<std::uint64_t>>
      steps;  // a visit of few slots is computed in groups
  std::map<std::string, std::size_t> arrows;
  for (const auto& event : nlohmann::json::parse(file)) {
    if (event["ph"] == "X") ++spans[event["name"]];
    if (event["ph"] == "X" && event.contains("args") && event["args"].contains("step"))
      steps[event["name"]].insert(event["args"]["step"].get<std::uint64_t>());
    if (event["ph"] == "s" || event["ph"] == "f") ++arrows[event["ph"]];
  }
  EXPECT_GT(spans["layer 0"], 0U);
  EXPECT_GT(steps["layer 0"].size(), 0U);
  EXPECT_EQ(steps["layer 0"], steps["layer 11"]);
  EXPECT_GT(spans["layer 11 expert 0"], 0U);
  EXPECT_GT(spans["wait"], 0U);
  EXPECT_GT(arrows["s"], 0U);
  EXPECT_EQ(arrows["s"], arrows["f"]);
}

// Without given prices both are measured.
TEST_F(serve_trace_command, measures_prices_that_are_not_given) {
  const auto table = serve("--budget 4MiB");
  EXPECT_EQ(table.code, 0) << table.text;
  EXPECT_THAT(table.text, HasSubstr("a byte over the link"));
}

TEST_F(serve_trace_command, refuses_in_one_line) {
  const auto refused = [&](const std::string& options, int code, const std::string& says) {
    expect_refused(arguments(options), code, says);
  };
  // Given prices are not measured; measuring takes seconds under a sanitizer.
  const std::string priced = "--link 100MB/s --recompute 3ms --budget ";
  refused("", 2, "--budget is required");
  refused(priced + "1MiB", 3, "1548288 bytes (1.5 MiB) or more");
  refused(priced + "much", 2, "accepted:");
  refused(priced + "4MiB --split 40", 2, "a cap of 40; accepted: 4..");
  refused(priced + "4MiB --split sweep:0", 2, "sweep:4 for every fourth");
  refused(priced + "4MiB --split sweep:18446744073709551615", 2, "sweep:4 for every fourth");
  refused(priced + "4MiB --split best", 2, "split 'best'");
  refused("--budget 4MiB --link fast", 2, "--link: 'fast'");
  refused("--budget 4MiB --recompute -1ms", 2, "--recompute");
  refused("--budget 4MiB --emulate-link", 2, "--emulate-link requires --link");
  refused(priced + "4MiB --eviction belady", 2, "belady");
  refused(priced + "4MiB --warmup 3", 2, "fewer than 3");
  refused(priced + "4MiB --scale 0", 2, "--scale");
  refused(priced + "4MiB --split 4,8 --metrics 127.0.0.1:0", 2, "--metrics '2 runs'");
  refused(priced + "4MiB --split 4,8 --timeline t.json", 2, "accepted: one --split");
  refused(priced + "4MiB --metrics here", 2, "accepted: an address and a port");
  refused(priced + "4MiB --timeline /nowhere/t.json", 1, "/nowhere/t.json: No such file");
  expect_refused("serve-trace /nowhere " + priced + "4MiB", 4);
  expect_refused("serve-trace /dev/null " + priced + "4MiB", 4);
}

}  // namespace
}  // namespace command_line_test

#endif  // TINY_MOE_CLI
