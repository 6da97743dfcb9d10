// SPDX-License-Identifier: Apache-2.0
#ifdef TINY_MOE_CLI

#include <algorithm>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "program_run.hpp"

namespace serve_adapters_command_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

using outcome = hotset::support::program_outcome;

outcome run(const std::string& arguments) {
  return hotset::support::run_program("env -u HOTSET_TINY_MOE_DIR '" + std::string(TINY_MOE_CLI) +
                                      "' serve-adapters " + arguments);
}

/// The adapters that come with the model.
std::string folders() {
  std::string out;
  for (const auto& one :
       std::filesystem::directory_iterator(std::filesystem::path(HOTSET_TINY_MOE_DIR) / "adapters"))
    if (one.is_directory()) out += " '" + one.path().string() + "'";
  return out;
}

void expect_refused(const std::string& arguments, int code, const std::string& what) {
  const auto result = run(arguments + " 2>&1");
  EXPECT_EQ(result.code, code) << arguments;
  EXPECT_THAT(result.text, AllOf(StartsWith("tiny_moe: "), HasSubstr(what))) << arguments;
  EXPECT_EQ(std::count(result.text.begin(), result.text.end(), '\n'), 1) << result.text;
}

TEST(serve_adapters_command, wrong_usage_is_one_line_and_2) {
  expect_refused("", 2, "ADAPTER");
  expect_refused("/nowhere --adapters 0", 2, "--adapters");
  expect_refused("/nowhere --adapters 5,many", 2, "--adapters");
  expect_refused("/nowhere --alpha 0", 2, "--alpha");
  expect_refused("/nowhere --alpha 1,2", 2, "--alpha");
  expect_refused("/nowhere --rate 0", 2, "--rate");
  expect_refused("/nowhere --requests 0", 2, "--requests");
  expect_refused("/nowhere --places 257", 2, "--places");
  expect_refused("/nowhere --repeats 0", 2, "--repeats");
  expect_refused("/nowhere --tokens 3000", 2, "tokens = 3000, accepted: 1..1985");
  expect_refused("/nowhere --columns nothing", 2, "nothing");
  expect_refused("/nowhere --json --columns ttft", 2, "--columns");
  expect_refused("/nowhere --alhpa 1", 2, "did you mean --alpha?");
}

TEST(serve_adapters_command, bad_input_is_one_line_and_4) {
  expect_refused("/nowhere", 4, "/nowhere");
  expect_refused("/nowhere --model /nobody", 4, "/nobody/config.json");
  expect_refused("/nowhere --prompts /nobody.txt", 4, "/nobody.txt");
}

TEST(serve_adapters_command, prints_what_every_number_of_adapters_costs) {
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
  for (const auto& row : json["results"]) {
    EXPECT_GE(row.at("loads"), row.at("outputs_checked"));
    EXPECT_EQ(row.at("refusals"), 0);
    EXPECT_EQ(row.at("ttft_over_base_of_pairs").size(), 2U);
  }
}

}  // namespace
}  // namespace serve_adapters_command_test

#endif  // TINY_MOE_CLI
