// SPDX-License-Identifier: Apache-2.0
#include "lab/files/placement_file.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lab/errors.hpp"

namespace placement_file_test {
namespace {

using namespace hotset;
using lab::placement_format;
using testing::HasSubstr;

lab::placed_model made() {
  lab::placed_model out{{3, 2, 2, 1, 1}, 1, {}};
  for (const auto& ids : {std::vector{0, 1, 2, 0}, std::vector{2, 1, 1, 0}}) {
    auto& layer = out.layers.emplace_back();
    for (const auto id : ids) layer.push_back(static_cast<expert_id>(id));
  }
  return out;
}

TEST(placement_file, reads_back_in_every_format) {
  const auto model = made();
  for (const auto format : {placement_format::vllm, placement_format::sglang,
                            placement_format::tensorrt_llm, placement_format::deepseek})
    EXPECT_EQ(lab::parse_placement(lab::to_text(model, format), "f", model.shape, 1, 2),
              model.layers);
}

TEST(placement_file, has_the_members_that_engines_read) {
  using nlohmann::json;
  const auto sglang = json::parse(lab::to_text(made(), placement_format::sglang));
  EXPECT_EQ(sglang, json::parse(R"({"physical_to_logical_map":[[0,1,2,0],[0,1,2,0],[2,1,1,0]]})"));
  const auto deepseek = json::parse(lab::to_text(made(), placement_format::deepseek));
  EXPECT_EQ(deepseek["phy2log"], json::parse("[[0,1,2,0],[2,1,1,0]]"));
  EXPECT_EQ(deepseek["log2phy"], json::parse("[[[0,3],[1,-1],[2,-1]],[[3,-1],[1,2],[0,-1]]]"));
  EXPECT_EQ(deepseek["logcnt"], json::parse("[[2,1,1],[1,2,1]]"));
  EXPECT_EQ(lab::to_text(made(), placement_format::tensorrt_llm),
            "num_slots: 4\ninitial_global_assignments:\n  1: [0, 1, 2, 0]\n  2: [2, 1, 1, 0]\n"
            "layer_updates_per_iter: 0\n");
}

TEST(placement_file, refuses_rows_that_are_no_expert_numbers) {
  const auto model = made();
  const auto refusal_of = [&](const std::string& text) -> std::string {
    try {
      (void)lab::parse_placement(text, "f", model.shape, 1, 1);
    } catch (const trace_error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal_of(R"({"phy2log":[[0,1,2,0]]})"), "accepted");
  for (const auto* rows :
       {"[[0,1,2,0.5]]", "[[0,1,2,1e300]]", R"([[0,1,2,"0"]])", "[0,1,2,0]", "7"})
    EXPECT_THAT(refusal_of(std::string(R"({"phy2log":)") + rows + "}"), HasSubstr("phy2log"))
        << rows;
  EXPECT_THAT(refusal_of(R"({"phy2log":[[0,1,2,18446744073709551615]]})"), HasSubstr("layer 0"));
  const std::string head = "initial_global_assignments:\n  0: [0, 1, 2, 0";
  EXPECT_EQ(refusal_of(head + "]\n"), "accepted");
  for (const auto* end : {"\n", " garbage]\n", ", x]\n", ".5]\n"})
    EXPECT_THAT(refusal_of(head + end), HasSubstr("line 2")) << end;
}

TEST(placement_file, has_a_format_by_name) {
  EXPECT_EQ(lab::parse_placement_format("tensorrt-llm"), placement_format::tensorrt_llm);
  EXPECT_THROW((void)lab::parse_placement_format("trt"), lab::usage_error);
}

}  // namespace
}  // namespace placement_file_test
