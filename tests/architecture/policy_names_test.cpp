// SPDX-License-Identifier: Apache-2.0
// A new policy is a header and one line of cmake/hotset_policies.cmake. This test lists the other files that may name
// a policy, each with a reason: every additional one makes the next policy harder to add.
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "header_rules.hpp"

namespace {

namespace fs = std::filesystem;
using names = std::set<std::string>;

const fs::path root = HOTSET_SOURCE_DIR;

/// File content without comment lines.
std::string code_of(const fs::path& file) {
  std::string code;
  for (const auto& line : hotset_rules::lines_of(hotset_rules::text_of(file)))
    if (!line.starts_with("//")) code += line + '\n';
  return code;
}

/// Path below include/hotset, without extension, of every listed policy and decorator.
std::set<std::string> listed() {
  const auto text = hotset_rules::text_of(root / "cmake/hotset_policies.cmake");
  const auto end = text.find("set(includes");
  const auto list = text.substr(0, end);
  std::set<std::string> found;
  const std::regex entry("[\\s(]((?:eviction|admission|prefetch|miss|routing|predict)/[a-z_]+)");
  for (std::sregex_iterator at(list.begin(), list.end(), entry), last; at != last; ++at)
    found.insert((*at)[1]);
  return found;
}

std::vector<fs::path> sources() {
  std::vector<fs::path> found;
  for (const char* folder : {"include", "src", "examples", "integrations"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder))
      if (const auto e = entry.path().extension(); e == ".hpp" || e == ".cpp" || e == ".cu")
        found.push_back(entry.path());
  return found;
}

/// Files that include the policy's header, or have its name in a string, alone or in a chain with parameters.
names who_names(const std::string& policy, const std::map<std::string, std::string>& files) {
  const auto name = policy.substr(policy.find('/') + 1);
  const std::regex named("hotset/" + policy + "\\.hpp|\"([a-z_.:=0-9]*[.+])?" + name +
                         "([:+][^\"]*)?\"");
  names found;
  for (const auto& [file, text] : files)
    if (file != "include/hotset/" + policy + ".hpp" && text.find(name) != std::string::npos &&
        std::regex_search(text, named))
      found.insert(file);
  return found;
}

/// Presets assemble the published systems from named policies.
const std::string presets = "src/lab/replay/preset.cpp";

const std::string verification = "examples/tiny_moe/studies/verification.cpp";
const std::string llama = "integrations/llama_cpp/";
/// Examples of values in the help of an example program.
const std::string tiny_moe_help = "examples/tiny_moe/commands/main.cpp";

/// Policies whose misses are counted at every capacity without a pager.
const std::string every_size = "src/lab/curves/every_size.cpp";

const std::map<std::string, names>& may_name() {
  // An option names its default where it is declared, so any number of files may name these policies.
  static const std::map<std::string, names> allowed = {
      {"eviction/activation_ratio", {presets}},
      {"eviction/belady",
       {presets, every_size, "src/lab/replay/belady_bypass.hpp", "src/lab/reports/sweep_report.cpp",
        "src/lab/studies/rank.cpp"}},                                // regret, bounds
      {"eviction/next_visit_oracle", {"src/lab/studies/rank.cpp"}},  // another bound
      {"eviction/expert_map_priority", {presets, tiny_moe_help}},
      {"eviction/fifo",
       {every_size, "include/hotset/predict/expert_map.hpp",
        "include/hotset/predict/maps/expert_map_store.hpp"}},  // an order of maps
      {"eviction/gate_score", {presets}},
      {"eviction/importance", {presets}},
      {"eviction/reserve_prefetch", {presets}},
      {"eviction/least_stale", {presets, verification}},  // cases beyond the plain ones
      {"eviction/lfru",
       {"examples/embed_policy/main.cpp", "examples/find_package/main.cpp",
        "examples/tiny_moe/commands/commands.cpp"}},                      // what examples show
      {"eviction/lfu", {every_size, "include/hotset/eviction/lhu.hpp"}},  // is lhu's order
      {"eviction/lhu", {presets}},
      {"admission/after_n_uses", {verification}},
      {"admission/budgeted", {verification}},
      {"admission/least_valuable", {verification}},
      {"prefetch/cumulative_probability", {presets, tiny_moe_help, verification}},
      {"eviction/similar_steps",
       {"examples/embed_cache/main.cpp", llama + "hotset_llama_main.cpp",
        llama + "paged_experts.hpp",
        "include/hotset/predict/similar_steps_predictor.hpp"}},  // the predictor of the same vote
      {"prefetch/next_layer_top_k",
       {presets, llama + "hotset_llama_main.cpp", llama + "hotset_llama_matrix_main.cpp",
        llama + "hotset_llama_tests_main.cpp", llama + "paged_experts.hpp", verification,
        "src/c/prefetcher.cpp"}},
      {"prefetch/noisy_oracle", {presets}},  // MoE-APEX at its stated accuracy
      {"prefetch/popular", {presets, verification}},
      {"prefetch/previous_step", {presets, verification}},
      {"prefetch/score_threshold", {presets, verification}},
      {"miss/compute_on_host", {verification}},
      {"miss/drop", {"include/hotset/miss/drop_cascade.hpp"}},
      {"miss/fetch_lowest", {"include/hotset/miss/fetch_priority.hpp"}},
      {"miss/fetch_priority", {"include/hotset/miss/drop_cascade.hpp", presets}},
      {"miss/substitute", {presets}},
      {"routing/cache_aware", {presets}},
      // Right-sizing by the tokens of a user.
      {"predict/co_activation", {"examples/tiny_moe/serving/live_split.hpp"}},
      {"predict/gate_predictors",
       {llama + "router_tap.hpp", "src/lab/replay/timed_replay.hpp",
        "examples/tiny_moe/model/gate_hook.hpp"}},  // defaults
      {"predict/mixed", {tiny_moe_help}},
  };
  return allowed;
}
const std::set<std::string> defaults = {"eviction/lru", "admission/always", "prefetch/no_prefetch",
                                        "miss/fetch", "routing/router_order"};

TEST(policy_names, appear_only_in_the_list_and_the_header) {
  std::map<std::string, std::string> files;
  for (const auto& path : sources())
    files[path.lexically_relative(root).generic_string()] = code_of(path);
  const auto policies = listed();
  ASSERT_GE(policies.size(), 30U);
  for (const auto& policy : policies) {
    EXPECT_TRUE(files.contains("include/hotset/" + policy + ".hpp")) << policy << " has no header";
    if (defaults.contains(policy)) continue;
    const auto allowed = may_name().find(policy);
    const auto found = who_names(policy, files);
    for (const auto& file : found)
      EXPECT_TRUE(allowed != may_name().end() && allowed->second.contains(file))
          << file << " names " << policy << ": ask the registry for its traits";
    if (allowed == may_name().end()) continue;
    for (const auto& file : allowed->second)
      EXPECT_TRUE(found.contains(file)) << file << " does not name " << policy << " any more";
  }
}

TEST(policy_names, are_seen_alone_in_chains_with_parameters_and_in_includes) {
  const std::map<std::string, std::string> files = {
      {"a", "#include \"hotset/eviction/mine.hpp\"\n"},
      {"b", "make(\"mine\")"},
      {"c", "make(\"protect_hot:uses=2+mine:k=1\")"},
      {"d", "make(\"eviction.mine\")"},
      {"e", "// this is mine, and \"minerals\""},
      {"include/hotset/eviction/mine.hpp", "\"mine\""}};
  EXPECT_EQ(who_names("eviction/mine", files), (names{"a", "b", "c", "d"}));
}

}  // namespace
