// SPDX-License-Identifier: Apache-2.0
#ifdef TINY_MOE_CLI

#include <filesystem>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "case_names.hpp"
#include "command_runs.hpp"

namespace serve_adapters_command_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

command_runs::outcome run(const std::string& arguments) {
  return command_runs::run("serve-adapters " + arguments);
}

/// Folders of the adapters that the repository contains.
std::string folders() {
  std::string out;
  for (const auto& one :
       std::filesystem::directory_iterator(std::filesystem::path(HOTSET_TINY_MOE_DIR) / "adapters"))
    if (one.is_directory()) out += " '" + one.path().string() + "'";
  return out;
}

using refusal = std::tuple<const char*, int, const char*>;
class serve_adapters_refusal : public testing::TestWithParam<refusal> {};

TEST_P(serve_adapters_refusal, is_one_line_and_its_own_exit_code) {
  const auto& [arguments, code, says] = GetParam();
  command_runs::expect_refused(std::string("serve-adapters ") + arguments, code, says);
}
const refusal refusals[] = {{"", 2, "ADAPTER"},
                            {"/nowhere --adapters 0", 2, "--adapters"},
                            {"/nowhere --adapters 5,many", 2, "--adapters"},
                            {"/nowhere --alpha 0", 2, "--alpha"},
                            {"/nowhere --alpha 1,2", 2, "--alpha"},
                            {"/nowhere --rate 0", 2, "--rate"},
                            {"/nowhere --requests 0", 2, "--requests"},
                            {"/nowhere --places 257", 2, "--places"},
                            {"/nowhere --repeats 0", 2, "--repeats"},
                            {"/nowhere --tokens 3000", 2, "tokens = 3000, accepted: 1..1985"},
                            {"/nowhere --columns nothing", 2, "nothing"},
                            {"/nowhere --json --columns ttft", 2, "--columns"},
                            {"/nowhere --alhpa 1", 2, "did you mean --alpha?"},
                            {"/nowhere", 4, "/nowhere"},
                            {"/nowhere --model /nobody", 4, "/nobody/config.json"},
                            {"/nowhere --prompts /nobody.txt", 4, "/nobody.txt"}};
INSTANTIATE_TEST_SUITE_P(commands, serve_adapters_refusal, testing::ValuesIn(refusals),
                         hotset::support::by_place);

TEST(serve_adapters_command, prints_the_cost_of_every_number_of_adapters) {
  const auto words =
      folders() + " --adapters 2,4 --alpha 1,0.3 --requests 6 --prompt-tokens 8 --tokens 3";
  const auto table = run(words + " 2>&1");
  EXPECT_EQ(table.code, 0) << table.text;
  EXPECT_THAT(table.text,
              AllOf(HasSubstr("TTFT ms"), HasSubstr("identical to its merged model alone")));
  EXPECT_THAT(table.text, HasSubstr("medians of 3 runs"));
  const auto printed = run(words + " --places 1 --repeats 2 --json 2>&1");
  EXPECT_EQ(printed.code, 0) << printed.text;
  const auto json = nlohmann::json::parse(printed.text);
  EXPECT_EQ(json.at("schema"), "hotset.serve_adapters/1");
  EXPECT_EQ(json.at("outputs_identical"), true);
  EXPECT_EQ(json.at("repeats"), 2);
  ASSERT_EQ(json.at("results").size(), 4U);
  EXPECT_EQ(json["results"][1].at("adapters"), 2);
  EXPECT_EQ(json["results"][1].at("alpha"), 0.3);
  EXPECT_EQ(json["results"][2].at("adapters"), 4);
  EXPECT_EQ(json["results"][3].at("ttft_over_base_of_pairs").size(), 2U);
}

}  // namespace
}  // namespace serve_adapters_command_test

#endif  // TINY_MOE_CLI
