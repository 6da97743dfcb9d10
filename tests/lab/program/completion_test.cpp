// SPDX-License-Identifier: Apache-2.0
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "run_program.hpp"

namespace completion_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
class completion : public hotset_test::command_line {
 protected:
  /// Bash's completions of the last of these words.
  [[nodiscard]] std::vector<std::string> offered(const std::string& words) const {
    const auto result = shell("source <(hotset completion bash)\nCOMP_WORDS=(" + words +
                              ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_hotset\n"
                              "printf '%s\\n' \"${COMPREPLY[@]}\"");
    EXPECT_EQ(result.err, "") << words;
    std::vector<std::string> lines;
    std::istringstream text(result.out);
    for (std::string line; std::getline(text, line);)
      if (!line.empty()) lines.push_back(line);
    return lines;
  }
};

TEST_F(completion, bash_script_registers_itself) {
  const auto result = shell("source <(hotset completion bash); complete -p hotset");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("-F _hotset hotset"));
}

TEST_F(completion, bash_offers_subcommands_and_options) {
  EXPECT_THAT(offered("hotset ''"), Contains("simulate"));
  EXPECT_THAT(offered("hotset si"), ElementsAre("simulate", "simulate-split"));
  EXPECT_THAT(offered("hotset simulate t --ev"), ElementsAre("--eviction"));
  EXPECT_THAT(offered("hotset info --ev"), IsEmpty());
  EXPECT_THAT(offered("hotset adapters ''"), ElementsAre("plan"));
  EXPECT_THAT(offered("hotset adapters pl"), ElementsAre("plan"));
  EXPECT_THAT(offered("hotset adapters plan --kv"), ElementsAre("--kv-bytes-per-token"));
  EXPECT_THAT(offered("hotset adapters plan ''"), IsEmpty());
  EXPECT_THAT(offered("hotset plan --first-moe"), IsEmpty());
  EXPECT_THAT(offered("hotset synth t --auto"), ElementsAre("--autoregression"));
  EXPECT_THAT(offered("hotset synth t --predictor-noise g"), ElementsAre("gaussian:0.5"));
  EXPECT_THAT(offered("hotset completion ''"), ElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(offered("hotset help si"), ElementsAre("simulate", "simulate-split"));
}

TEST_F(completion, bash_offers_policies_in_lists) {
  EXPECT_THAT(offered("hotset simulate t --eviction ''"), Contains("least_stale"));
  EXPECT_THAT(offered("hotset simulate t --eviction fi"), ElementsAre("fifo"));
  EXPECT_THAT(offered("hotset simulate t --columns hit,sl"), ElementsAre("hit,slots"));
  EXPECT_THAT(offered("hotset simulate t --eviction lru,fi"), ElementsAre("lru,fifo"));
  EXPECT_THAT(offered("hotset simulate t --eviction = fi"), ElementsAre("fifo"));
  EXPECT_THAT(offered("hotset simulate t --admission ''"), Contains("always"));
  EXPECT_THAT(offered("hotset simulate t --scope p"), ElementsAre("per-layer"));
  EXPECT_THAT(offered("hotset export a b --to n"), ElementsAre("native"));
}

TEST_F(completion, bash_leaves_file_names_to_readline) {
  EXPECT_THAT(offered("hotset simulate ''"), IsEmpty());
  EXPECT_THAT(offered("hotset simulate t --out ''"), IsEmpty());
}

TEST_F(completion, every_offered_policy_is_accepted) {
  make_trace("t.trace");
  const auto names_of = [&](const std::string& option) {
    const auto names = offered("hotset simulate t " + option + " ''");
    EXPECT_GE(names.size(), 2U) << option;
    return names;
  };
  for (const auto& [option, besides] :
       {std::pair("--prefetch-guard", "--slots 50% --prefetch previous_step"),
        {"--admission", "--slots 50%"},
        {"--replay", "--budget 1GiB"}})
    for (const auto& name : names_of(option))
      (void)out_of(fmt::format("simulate t.trace {} {} {}", besides, option, name));
  for (const auto& name : names_of("--eviction"))
    (void)out_of("simulate t.trace --slots 50% --eviction " + name +
                 (name == "lhu" ? " --precision 8:4 --miss fetch_lowest" : ""));
  make_trace("s.trace", "--scores");
  // Some policies need more than a trace: forecasts of several layers, slots freed ahead.
  for (const auto& [option, besides] :
       {std::pair("--prefetch", "--eviction importance --predictor co-activation"),
        {"--routing", "--pre-eviction active_evict"},
        {"--predictor", "--prefetch next_layer_top_k"},
        {"--miss", ""},
        {"--preset", ""}})
    for (const auto& name : names_of(option)) {
      const auto simulate =
          fmt::format("simulate s.trace --slots 50% {} {} {}", besides, option, name);
      // Needs a file or parts, as its own error message says.
      if (name == "mixed") {
        refused(simulate, 2, {"mixed has no parts"});
      } else if (name == "learned-gate" || name.starts_with("promoe")) {
        refused(simulate, 2, {"weights=FILE"});
      } else {
        const auto one = run(simulate);
        const auto several = run(simulate + " --precision 8:4");
        EXPECT_TRUE(one.code == 0 || several.code == 0) << simulate << one.err << several.err;
      }
    }
}

TEST_F(completion, every_offered_export_is_accepted) {
  make_trace("t.trace");
  for (const auto& name : offered("hotset export a b --to ''"))
    (void)out_of("export t.trace out-" + name + " --to " + name);
}

TEST_F(completion, every_offered_noise_is_accepted) {
  for (const auto& noise : offered("hotset synth t --predictor-noise ''"))
    (void)out_of("synth t.trace --tokens 4 --scores --predictor-noise " + noise);
}

TEST_F(completion, zsh_and_fish_ask_the_program) {
  for (const char* shell_name : {"zsh", "fish"})
    EXPECT_THAT(run(std::string("completion ") + shell_name).out, HasSubstr("hotset complete "));
  // An option with its value is one word; every line has a description behind a tab.
  EXPECT_EQ(run("complete hotset simulate t --eviction=lru,fif").out,
            "--eviction=lru,fifo\tone or more, separated by commas\n");
  EXPECT_EQ(run("complete hotset simulate t --out ''").out, "");
  EXPECT_EQ(run("complete").out, "");
}

TEST_F(completion, lists_of_help_are_offered_without_their_notes) {
  EXPECT_THAT(offered("hotset info t --format ''"),
              ElementsAre("auto", "native", "bigmoe", "esft", "layer-expert", "jsonl", "csv", "npy",
                          "oracle", "requests"));
  EXPECT_THAT(offered("hotset info t --as ''"),
              ElementsAre("decode", "decode:4", "prefill", "prefill:512"));
  EXPECT_THAT(offered("hotset plan --parallel ''"), ElementsAre("expert", "tensor"));
  EXPECT_THAT(offered("hotset plan --model qwen3-30b"), Contains("qwen3-30b-a3b"));
  EXPECT_THAT(offered("hotset simulate t --prefetch-guard ''"),
              ElementsAre("none", "named", "predicted"));
  EXPECT_THAT(offered("hotset simulate t --split ''"),
              ElementsAre("by-token", "by-expert", "leave-rest"));
  EXPECT_THAT(offered("hotset simulate t --compare ''"), ElementsAre("systems"));
  EXPECT_THAT(offered("hotset curve t --method ''"),
              ElementsAre("exact", "shards:0.01", "shards:8192"));
  EXPECT_THAT(offered("hotset plan --block-tokens ''"), IsEmpty());
}

TEST_F(completion, zsh_and_fish_parse_if_installed) {
  (void)out_of_shell(
      "if command -v zsh >/dev/null; then zsh -fn <(hotset completion zsh) || exit 1; fi\n"
      "if command -v fish >/dev/null; then fish -n <(hotset completion fish) || exit 1; fi\n");
}

TEST_F(completion, other_shells_are_refused) {
  refused("completion tcsh", 2, {"'tcsh'", "bash, zsh, fish"});
}

}  // namespace
}  // namespace completion_test
