// SPDX-License-Identifier: Apache-2.0
// Rules for every subcommand: help, version, exit codes, pipes.
#include <sstream>

#include "run_program.hpp"

namespace program_test {
namespace {

using hotset_test::outcome;
using testing::HasSubstr;
class program : public hotset_test::command_line {};
constexpr const char* subcommands[] = {"info",           "simulate",       "bench",  "curve",
                                       "plan",           "simulate-split", "counts", "adapters",
                                       "adapters plan",  "import",         "export", "synth",
                                       "synth-requests", "completion",     "help"};

TEST_F(program, help_and_version_succeed) {
  EXPECT_THAT(out_of("--version"), testing::MatchesRegex("hotset [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  const auto help = run("--help");
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.err, "");
  for (const char* text : {"Examples:", "Exit codes:", "hotset simulate"})
    EXPECT_THAT(help.out, HasSubstr(text));
}

TEST_F(program, without_arguments_it_lists_the_commands) {
  const auto bare = run("");
  EXPECT_EQ(bare.code, 0);
  EXPECT_EQ(bare.err, "");
  EXPECT_EQ(bare.out, run("--help").out);
  EXPECT_EQ(bare.out, run("help").out);
}

TEST_F(program, every_subcommand_has_help_with_examples) {
  for (const char* name : subcommands) {
    const auto help = out_of(std::string(name) + " --help");
    EXPECT_THAT(help, HasSubstr("Usage: hotset " + std::string(name)));
    EXPECT_THAT(help, HasSubstr("Examples:")) << name;
    EXPECT_EQ(run("help " + std::string(name)).out, help);
  }
  refused("help simulat", 2,
          {"help: 'simulat' (did you mean simulate?); accepted: info, simulate"});
}

TEST_F(program, help_fits_the_terminal) {
  const auto widest = [](const std::string& text) {
    std::istringstream lines(text);
    std::size_t most = 0;
    for (std::string line; std::getline(lines, line);) most = std::max(most, line.size());
    return most;
  };
  for (const std::size_t width : {80U, 100U})
    for (const char* name : subcommands)
      EXPECT_LE(widest(shell("COLUMNS=" + std::to_string(width) + " hotset help " + name).out),
                width)
          << name;
  EXPECT_LE(widest(run("help simulate").out), 100U);
  EXPECT_LE(widest(shell("COLUMNS=500 hotset --help").out), 100U);
  EXPECT_EQ(shell("COLUMNS=wide hotset --help").out, run("--help").out);
}

TEST_F(program, broken_examples_of_help_can_be_pasted) {
  (void)out_of("synth routes.trace --layers 4 --experts 32 --top-k 2 --tokens 9");
  const auto help = shell("COLUMNS=60 hotset help simulate").out;
  const auto at = help.find("--eviction lru,lfu:history=resident");
  ASSERT_NE(at, std::string::npos);
  const auto begin = help.rfind("  hotset simulate routes.trace", at);
  auto example = help.substr(begin, help.find("  hotset", at) - begin);
  EXPECT_THAT(example, HasSubstr(" \\\n"));
  (void)out_of_shell(example);
}

TEST_F(program, wrong_usage_is_2) {
  make_trace("t.trace");
  refused("frobnicate", 2, {"'frobnicate'", "info, simulate"});
  refused("--nope", 2, {"'--nope'"});
  refused("info", 2, {"TRACE is required", "hotset info --help"});
  refused("adapters", 2, {"adapters: ", "accepted: plan"});
  refused("adapters pln", 2, {"adapters: 'pln'", "did you mean plan?", "accepted: plan"});
  refused("adapters plan", 2, {"adapters plan: ", "see hotset adapters plan --help"});
  refused("adapters plan c.json --base 64x26 --nope", 2, {"'--nope' is no option"});
  refused("help adapters pln", 2, {"help: 'pln' (did you mean plan?); accepted: plan"});
  refused("simulate t.trace --nope", 2, {"--nope", "hotset simulate --help"});
  refused("simulate t.trace --slots", 2, {"--slots"});
  refused("simulate t.trace --json --csv", 2, {"excludes"});
  refused("simulate t.trace --slots 4 --budget 4MiB", 2, {"excludes"});
  refused("simulate t.trace --jobs 0", 2, {"--jobs: '0'; accepted: 1..1024"});
  refused("simulate t.trace --jobs 2x", 2, {"--jobs: '2x'; accepted: 1..1024"});
}

TEST_F(program, sizes_and_rates_without_a_unit_are_refused_everywhere) {
  make_trace("t.trace");
  const auto no_unit = [&](const std::string& arguments, std::string_view meant) {
    refused(arguments, 2, {"has no unit (did you mean ", meant, "?); accepted: "});
  };
  const std::string plan = "plan --model qwen3-30b-a3b ";
  no_unit(plan + "--vram 24", "--vram: '24' has no unit (did you mean 24GiB");
  no_unit(plan + "--vram 25769803776", "25769803776B");
  no_unit(plan + "--vram 24GiB --host-ram 64", "64GiB");
  no_unit(plan + "--vram 24GiB --reserve 1", "1GiB");
  no_unit(plan + "--vram 24GiB --link 25", "25GB/s");
  no_unit("simulate t.trace --budget 3", "3GiB");
  no_unit("simulate t.trace --link 25", "25GB/s");
  no_unit("simulate t.trace --link 5GB/s --chunk 512", "512KiB");
  no_unit("synth s.trace --expert-bytes 9", "9MiB");
  no_unit("import t.trace s.trace --expert-bytes 9", "9MiB");
  no_unit("info t.trace --block-bytes 4096", "4096B");
  const std::string split = "simulate-split t.trace --kv-trace r.jsonl ";
  (void)out_of("synth-requests r.jsonl --requests 4");
  no_unit(split + "--budget 12 --kv-token-bytes 1KiB", "12GiB");
  no_unit(split + "--budget 12GiB --kv-token-bytes 96", "96KiB");
  EXPECT_THAT(files(), testing::ElementsAre("r.jsonl", "t.trace"));
  (void)out_of("simulate t.trace --budget 4194304B");
}

TEST_F(program, mistyped_names_are_recognised) {
  make_trace("t.trace");
  const auto meant = [&](const std::string& arguments, const std::string& name) {
    refused(arguments, 2, {"(did you mean " + name + "?)", "accepted: "});
  };
  meant("simulate t.trace --eviction least-stale", "least_stale");
  meant("simulate t.trace --eviction lfu:histroy=whole", "history");
  meant("simulate t.trace --eviction protect_hit+lru", "protect_hot");
  meant("simulate t.trace --admission budgetd", "budgeted");
  meant("simulate t.trace --prefetch popular_", "popular");
  meant("simulate t.trace --prefetch-guard predict", "predicted");
  meant("simulate t.trace --predictor co_activation", "co-activation");
  meant("simulate t.trace --miss substitue", "substitute");
  meant("simulate t.trace --routing cacheaware", "cache_aware");
  meant("simulate t.trace --preset specmd1", "specmd-1");
  meant("simulate t.trace --scope per_layer", "per-layer");
  meant("simulate t.trace --replay defered", "deferred");
  meant("simulate t.trace --split by_token", "by-token");
  meant("info t.trace --format natve", "native");
  meant("curve t.trace --method exat", "exact");
  meant("export t.trace x --to natives", "native");
  meant("plan --vram 24GiB --model qwen3-30b-a3", "qwen3-30b-a3b");
  meant("completion bahs", "bash");
  meant("simluate t.trace", "simulate");
  meant("--versoin", "--version");
  refused("simulate t.trace --evictio lru", 2,
          {"simulate: '--evictio' is no option (did you mean --eviction?)",
           "see hotset simulate --help"});
  refused("simulate t.trace --evictoin=lru", 2, {"'--evictoin'", "did you mean --eviction?"});
  // The message names the mistyped option, not the option that is missing because of it.
  refused("plan --modle qwen3-30b-a3b --vram 24GiB", 2, {"'--modle'", "did you mean --model?"});
}

TEST_F(program, messages_stay_one_line_whatever_was_typed) {
  refused("info $'no\\nsuch\\033file'", 4, {"no?such?file"});
  refused("$'two\\nlines'", 2, {"two?lines"});
}

TEST_F(program, closing_the_reader_is_no_error) {
  make_trace("t.trace");
  // The program writes only after the reader has closed its end.
  const auto result =
      shell("mkfifo pipe; (sleep 0.2; for i in {1..9}; do echo t.trace; done | xargs '" HOTSET_CLI
            "' info; echo $? >code) >pipe & exec 3<pipe; exec 3<&-; wait; cat code");
  EXPECT_EQ(result.out, "0\n");
  EXPECT_EQ(result.err, "");
}

TEST_F(program, a_full_device_is_a_failure) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const auto result = shell("hotset --help >/dev/full");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("hotset: standard output: cannot be written"));
}

}  // namespace
}  // namespace program_test
