// SPDX-License-Identifier: Apache-2.0
#include "lab/models/wished_weights.hpp"

#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/errors.hpp"
#include "lab/models/model_description.hpp"

namespace wished_weights_test {
namespace {
using namespace hotset;
using lab::describe_model;
using testing::HasSubstr;

double bytes_of(const std::string& model, const std::string& weights) {
  const auto m = describe_model(model, {.weights = weights}).memory;
  const auto& experts = m.experts.expert_bytes;
  const auto sum = std::accumulate(experts.begin(), experts.end(), std::uint64_t{0});
  const auto layers = experts.size() == 1 ? static_cast<std::uint64_t>(m.experts.layers) : 1;
  return static_cast<double>(m.resident_bytes +
                             layers * sum * static_cast<std::uint64_t>(m.experts.experts));
}

/// MiB of all tensors by llama_model_quantize's dry run (llama.cpp of llama-cpp-python 0.3.36) of files with the
/// extents of these models; with an importance matrix for the names with IQ.
constexpr std::array models = {"qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v2-lite", "olmoe-1b-7b"};
struct quantised {
  const char* weights;
  std::array<double, models.size()> mib;
};
constexpr quantised dry_runs[] = {
    {"Q8_0", {30973.40, 47326.64, 15924.95, 7017.04}},
    {"Q6_K", {23924.41, 36602.09, 13418.04, 5419.45}},
    {"Q5_1", {21898.79, 33497.30, 11259.17, 4962.54}},
    {"Q5_K_M", {20713.44, 31689.49, 11300.17, 4696.65}},
    {"Q5_K_S", {20098.25, 30737.49, 10624.72, 4556.40}},
    {"Q5_0", {20098.25, 30737.49, 10335.70, 4556.40}},
    {"Q4_1", {18297.70, 27977.68, 9412.23, 4150.26}},
    {"Q4_K_M", {17691.34, 27129.87, 9883.84, 4016.37}},
    {"Q4_K_S", {16641.65, 25505.87, 9091.52, 3778.12}},
    {"Q4_0", {16497.15, 25217.87, 8488.76, 3744.12}},
    {"IQ4_NL", {16503.15, 25281.87, 8488.76, 3744.12}},
    {"IQ4_XS", {15604.38, 23917.96, 8171.54, 3541.05}},
    {"MXFP4", {16285.40, 24478.64, 8603.26, 3753.04}},
    {"Q3_K_L", {15158.37, 23049.27, 8067.29, 3442.07}},
    {"Q3_K_M", {14024.62, 21501.27, 7749.91, 3187.07}},
    {"IQ3_M", {12881.37, 20437.27, 7203.04, 2932.07}},
    {"IQ3_S", {12677.37, 19485.27, 7140.57, 2881.07}},
    {"Q3_K_S", {12670.99, 19485.27, 7140.57, 2881.07}},
    {"IQ3_XS", {12009.12, 18453.27, 6792.66, 2731.07}},
    {"IQ3_XXS", {11294.71, 17396.66, 6642.48, 2563.02}},
    {"Q2_K", {10731.35, 16508.57, 6135.09, 2442.09}},
    {"Q2_K_S", {10026.35, 15288.57, 6158.84, 2281.09}},
    {"IQ2_M", {9692.71, 14776.66, 6038.01, 2218.52}},
    {"IQ2_S", {8851.21, 13472.66, 5730.59, 2030.52}},
    {"IQ2_XS", {8650.07, 13277.97, 5694.53, 1985.54}},
    {"IQ2_XXS", {7796.57, 11973.97, 5383.73, 1795.54}},
    {"IQ1_M", {6744.69, 10343.97, 4999.45, 1560.54}},
    {"IQ1_S", {6113.57, 9365.97, 4768.88, 1419.54}},
};

struct total {
  const char* weights;
  double size;
};

TEST(wished_weights, of_llama_cpp_have_the_bytes_of_its_quantiser) {
  for (const auto& row : dry_runs) {
    EXPECT_TRUE(lab::is_llama_mixture(row.weights));
    for (std::size_t m = 0; m < models.size(); ++m)
      EXPECT_NEAR(bytes_of(models[m], row.weights) / (row.mib[m] * 1024 * 1024), 1, .0025)
          << models[m] << " " << row.weights;
  }
}

TEST(wished_weights, of_a_state_are_those_of_its_projections) {
  for (const auto& [weights, size] : {total{"Q8_0", 52273.58},
                                      {"Q4_K_M", 29717.64},
                                      {"IQ3_XXS", 18937.95},
                                      {"Q2_K", 17841.81},
                                      {"IQ1_S", 10052.38}})
    EXPECT_NEAR(bytes_of("jamba-v0.1", weights) / (size * 1024 * 1024), 1, .0025) << weights;
}

TEST(wished_weights, are_those_of_published_files) {
  constexpr double GB = 1e9;
  EXPECT_NEAR(bytes_of("qwen3-30b-a3b", "Q4_K_M") / GB, 18.6, .1);
  EXPECT_NEAR(bytes_of("qwen3-30b-a3b", "Q8_0") / GB, 32.5, .1);
  EXPECT_NEAR(bytes_of("deepseek-v3", "Q4_K_M") / GB, 404, 2);
  EXPECT_NEAR(bytes_of("gpt-oss-20b", "Q8_0") / GB, 12.1, .1);
  EXPECT_NEAR(bytes_of("gpt-oss-20b", "Q4_K_M") / GB, 11.6, .1);
  for (const auto& [weights, size] : {total{"Q5_K_M", 99.96},
                                      {"Q5_K_S", 96.97},
                                      {"Q4_K_M", 85.58},
                                      {"Q4_K_S", 80.47},
                                      {"Q3_K_L", 72.57},
                                      {"Q3_K_M", 67.78},
                                      {"IQ3_M", 64.49},
                                      {"Q3_K_S", 61.49},
                                      {"IQ3_XS", 58.22},
                                      {"Q2_K", 52.10}})
    EXPECT_NEAR(bytes_of("mixtral-8x22b", weights) / GB / size, 1, .01) << weights;
}

TEST(wished_weights, list_from_most_to_fewest_bits) {
  auto before = bytes_of("qwen3-30b-a3b", "16bpw");
  for (const auto name : lab::wished_weight_names()) {
    const auto bytes = bytes_of("qwen3-30b-a3b", std::string(name));
    EXPECT_LE(bytes, before * 1.05) << name;
    before = bytes;
  }
}

TEST(wished_weights, of_other_engines_are_those_of_linear_layers) {
  // 3 x 2048 x 768 weights an expert.
  constexpr double weights = 3.0 * 2048 * 768;
  const auto expert = [](const char* name) {
    return static_cast<double>(
        describe_model("qwen3-30b-a3b", {.weights = name}).memory.experts.expert_bytes.front());
  };
  EXPECT_EQ(expert("bf16"), 2 * weights);
  EXPECT_EQ(expert("FP8"), weights + 3 * 16 * 6 * 4) << "one scale a 128 x 128";
  EXPECT_EQ(expert("int8"), weights + (2 * 768 + 2048) * 2) << "one scale an output";
  EXPECT_EQ(expert("int4-awq"), weights / 128 * (64 + 2.5));
  EXPECT_EQ(expert("nvfp4"), weights / 16 * 9 + 3 * 8);
  EXPECT_EQ(expert("4.5bpw"), weights * 4.5 / 8);
}

TEST(wished_weights, replace_released_ones_and_say_so) {
  const auto v3 = describe_model("deepseek-v3", {.weights = "Q4_K_M"});
  EXPECT_THAT(v3.notes, testing::Contains(HasSubstr("weights as Q4_K_M: ")));
  EXPECT_THAT(v3.notes, testing::Contains(HasSubstr("as released 42.0 MiB")));
  EXPECT_THAT(v3.notes, testing::Not(testing::Contains(HasSubstr("fp8"))));
  EXPECT_THAT(describe_model("gpt-oss-20b", {.weights = "Q4_K_M"}).notes,
              testing::Contains(HasSubstr("experts stay in MXFP4")));
}

TEST(wished_weights, have_the_names_that_people_write) {
  for (const auto& [written, meant] :
       std::to_array<std::pair<const char*, const char*>>({{"iq4-xs", "IQ4_XS"},
                                                           {"Q4KM", "Q4_K_M"},
                                                           {"q5_k", "Q5_K_M"},
                                                           {"Q6K", "Q6_K"},
                                                           {"fp16", "bf16"},
                                                           {"F16", "bf16"},
                                                           {"q8", "Q8_0"},
                                                           {"w8a8", "int8"},
                                                           {"8bit", "int8"},
                                                           {"FP8_E4M3", "fp8"},
                                                           {"fp8-block", "fp8"},
                                                           {"MXFP4_MOE", "MXFP4"},
                                                           {"int4", "int4-awq"},
                                                           {"w4a16", "int4-awq"},
                                                           {"gptq-int4", "int4-awq"},
                                                           {"AWQ", "int4-awq"},
                                                           {"4.25", "4.25bpw"},
                                                           {"4.25BPW", "4.25bpw"}})) {
    EXPECT_FALSE(lab::check_wish(written)) << written;
    EXPECT_EQ(lab::wish_name(written), meant);
    EXPECT_EQ(bytes_of("olmoe-1b-7b", written), bytes_of("olmoe-1b-7b", meant)) << written;
  }
}

TEST(wished_weights, of_unknown_names_are_refused) {
  for (const auto* name : {"Q4", "UD-Q4_K_XL", "bpw", "0.5bpw", "17bpw", "nanbpw"})
    EXPECT_THROW((void)describe_model("olmoe-1b-7b", {.weights = name}), lab::usage_error) << name;
  const auto bad = lab::check_wish("q4_k_n");
  ASSERT_TRUE(bad);
  EXPECT_THAT(bad->message, HasSubstr("did you mean Q4_K_M?"));
  EXPECT_THAT(lab::check_wish("UD-Q4_K_XL")->message,
              testing::AllOf(HasSubstr("did you mean Q4_K_M?"), HasSubstr("its bits a weight")));
  EXPECT_FALSE(lab::is_llama_mixture("fp8"));
}

}  // namespace
}  // namespace wished_weights_test
