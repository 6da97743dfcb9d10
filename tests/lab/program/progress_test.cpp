// SPDX-License-Identifier: Apache-2.0
// The progress line of a long command.
#include <regex>
#include <set>

#include "run_program.hpp"

namespace progress_test {
namespace {

class progress : public hotset_test::traced_command_line {
 protected:
  progress() {
    (void)out_of_shell(
        "hotset synth l.trace --layers 4 --experts 16 --top-k 2 --tokens 3000 --seed 1 "
        "&& hotset synth-requests r.jsonl --requests 2000 && xz -k r.jsonl");
  }
  /// Standard error, on a terminal, of a command whose results go elsewhere.
  [[nodiscard]] std::string shown(const std::string& arguments) const {
    return out_of_shell("script -qec \"'" HOTSET_CLI "' " + arguments +
                        " >results\" /dev/null </dev/null");
  }
};

std::set<std::string> percentages(const std::string& text, const std::string& label) {
  std::set<std::string> found;
  const std::regex line(label + R"( \[[# ]{12,30}\] +([0-9]+) %)");
  for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at)
    found.insert((*at)[1]);
  return found;
}

TEST_F(progress, moves_inside_every_long_command_and_is_cleared) {
  if (shell("script -qec true /dev/null").code != 0) GTEST_SKIP() << "no script(1) here";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"simulate l.trace --slots 25%", "synthetic"},
      {"simulate l.trace --slots 25% --link 1GB/s", "synthetic"},
      {"curve l.trace", "synthetic"},
      {"curve l.trace --method shards:0.5", "synthetic"},
      {"info l.trace", "synthetic"},
      {"info r.jsonl", "reading r.jsonl"},
      {"import r.jsonl.xz r.trace", "reading r.jsonl.xz"},
      {"synth x.trace --tokens 3000", "making the trace"}};
  for (const auto& [arguments, label] : cases) {
    SCOPED_TRACE(arguments);
    const auto text = shown(arguments);
    EXPECT_GE(percentages(text, label).size(), 2U) << text;
    EXPECT_TRUE(text.ends_with("\r\033[K")) << text;
  }
}

TEST_F(progress, of_a_sweep_names_its_runs) {
  if (shell("script -qec true /dev/null").code != 0) GTEST_SKIP() << "no script(1) here";
  const auto text = shown("simulate l.trace --slots 25%,50% --eviction lru,lfu --jobs 1");
  EXPECT_THAT(text, testing::ContainsRegex("%  0 of 4 runs, lru 25%"));
  EXPECT_THAT(text, testing::HasSubstr("100 %  4 of 4 runs, lfu 50%"));
}

TEST_F(progress, is_not_shown_without_a_terminal) {
  for (const char* arguments : {"simulate l.trace --slots 25%", "curve l.trace", "info r.jsonl",
                                "import r.jsonl r.trace", "synth x.trace --tokens 3000"})
    EXPECT_EQ(run(arguments).err, "") << arguments;
}

TEST_F(progress, an_interrupted_line_is_cleared) {
  if (shell("script -qec true /dev/null").code != 0) GTEST_SKIP() << "no script(1) here";
  const auto result = shell("script -qec \"timeout -s INT 1 '" HOTSET_CLI
                            "' synth x.trace --tokens 100000000\" /dev/null </dev/null");
  EXPECT_TRUE(result.out.ends_with("\r\033[K") || result.out.ends_with("\r\033[K^C"))
      << result.out.substr(result.out.size() - std::min<std::size_t>(result.out.size(), 200));
  EXPECT_EQ(files(), (std::vector<std::string>{"l.trace", "r.jsonl", "r.jsonl.xz", "t.trace"}));
}

}  // namespace
}  // namespace progress_test
