// SPDX-License-Identifier: Apache-2.0
// What holds for every subcommand: help, version, exit codes, pipes.
#include "run_program.hpp"

namespace {

using hotset_test::outcome;
using testing::HasSubstr;
class program : public hotset_test::command_line {};

TEST_F(program, help_and_version_succeed) {
  const auto version = run("--version");
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.out, testing::MatchesRegex("hotset [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  const auto help = run("--help");
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.err, "");
  for (const char* text : {"Examples:", "Exit codes:", "hotset simulate", "hotset diff"})
    EXPECT_THAT(help.out, HasSubstr(text));
}

TEST_F(program, every_subcommand_has_help_with_examples) {
  for (const char* name : {"info", "simulate", "import", "export", "synth", "diff", "completion"}) {
    const auto help = run(std::string(name) + " --help");
    EXPECT_EQ(help.code, 0) << name;
    EXPECT_THAT(help.out, HasSubstr("Usage: hotset " + std::string(name)));
    EXPECT_THAT(help.out, HasSubstr("Examples:")) << name;
  }
}

TEST_F(program, wrong_usage_is_2) {
  make_trace("t.trace");
  refused("", 2, {"subcommand", "simulate, curve, plan, simulate-split, coactivation, import"});
  refused("frobnicate", 2, {"'frobnicate'", "info, simulate"});
  refused("--nope", 2, {"'--nope'"});
  refused("info", 2, {"TRACE is required", "hotset info --help"});
  refused("simulate t.trace --nope", 2, {"--nope", "hotset simulate --help"});
  refused("simulate t.trace --slots", 2, {"--slots"});
  refused("simulate t.trace --json --csv", 2, {"excludes"});
  refused("simulate t.trace --slots 4 --budget 4MiB", 2, {"excludes"});
  refused("simulate t.trace --jobs 0", 2, {"--jobs: '0'; accepted: 1..1024"});
  refused("simulate t.trace --jobs 2x", 2, {"--jobs: '2x'; accepted: 1..1024"});
}

TEST_F(program, messages_stay_one_line_whatever_was_typed) {
  refused("info $'no\\nsuch\\033file'", 4, {"no?such?file"});
  refused("$'two\\nlines'", 2, {"two?lines"});
}

TEST_F(program, a_reader_that_goes_away_is_no_error) {
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
