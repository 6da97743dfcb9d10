// SPDX-License-Identifier: Apache-2.0
// Every preset against its published number of parameters, and a cache computed by hand.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "block_sums.hpp"
#include "lab/models/model_description.hpp"
#include "model_cases.hpp"

namespace hotset::model_presets_test {
namespace {

struct published_model {
  const char* name;
  double parameters;       ///< of the language model, without multi-token prediction
  std::uint64_t kv_token;  ///< bytes in layers that see all tokens: layers * elements * bytes
};
// Latent attention keeps 512 + 64 elements, sparse attention 128 more.
constexpr published_model published[] = {
    {"olmoe-1b-7b", 6919161856, 16 * 2 * 16 * 128 * 2},
    {"mixtral-8x7b", 46702792704, 32 * 2 * 8 * 128 * 2},
    {"mixtral-8x22b", 140620634112, 56 * 2 * 8 * 128 * 2},
    {"qwen1.5-moe-a2.7b", 14315784192, 24 * 2 * 16 * 128 * 2},
    {"qwen3-30b-a3b", 30532122624, 48 * 2 * 4 * 128 * 2},
    {"qwen3-coder-30b-a3b", 30532122624, 48 * 2 * 4 * 128 * 2},
    {"qwen3-235b-a22b", 235093634560, 94 * 2 * 4 * 128 * 2},
    {"qwen3-coder-480b-a35b", 480154875392, 62 * 2 * 8 * 128 * 2},
    {"qwen3-next-80b-a3b", 79674391296, 12 * 2 * 2 * 256 * 2},
    {"qwen3.5-35b-a3b", 34660610688, 10 * 2 * 2 * 256 * 2},
    {"qwen3.6-35b-a3b", 34660610688, 10 * 2 * 2 * 256 * 2},
    {"qwen3.5-122b-a10b", 122e9, 12 * 2 * 2 * 256 * 2},
    {"qwen3.5-397b-a17b", 397e9, 15 * 2 * 2 * 256 * 2},
    {"phi-3.5-moe", 41873153344, 32 * 2 * 8 * 128 * 2},
    {"deepseek-v2-lite", 15706484224, 27 * 576 * 2},
    {"deepseek-v2", 235741434880, 60 * 576 * 2},
    {"deepseek-v3", 671026419200, 61 * 576 * 2},
    {"deepseek-v3.1", 671026419200, 61 * 576 * 2},
    {"deepseek-v3.2", 671877944064, 61 * (576 + 128) * 2},
    // Half of the layers keep a key of 512 and one of 128 for 4 tokens, half one of 512 for 128.
    {"deepseek-v4-flash", 284e9, (21 * 640 / 4 + 20 * 512 / 128) * 2},
    {"deepseek-v4-pro", 1.573e12, (30 * 640 / 4 + 31 * 512 / 128) * 2},
    {"kimi-vl-a3b", 16407656192, 27 * 576 * 2},
    {"kimi-k2", 1026408232448, 61 * 576 * 2},
    {"kimi-k2.5", 1026408232448, 61 * 576 * 2},
    {"kimi-linear-48b-a3b", 49122681728, 7 * 576 * 2},
    {"kimi-k3", 2.8e12, 24 * 576 * 2},
    {"jamba-v0.1", 51570323328, 4 * 2 * 8 * 128 * 2},
    {"jamba-1.5-large", 398.6e9, 9 * 2 * 8 * 128 * 2},
    {"minimax-m2", 228689764864, 62 * 2 * 8 * 128 * 2},
    {"minimax-m2.5", 228689764864, 62 * 2 * 8 * 128 * 2},
    {"minimax-m3", 426174572928, (60 * 2 * 4 * 128 + 57 * 128) * 2},
    {"gpt-oss-20b", 20914757184, 12 * 2 * 8 * 64 * 2},
    {"gpt-oss-120b", 116829156672, 18 * 2 * 8 * 64 * 2},
    {"llada-moe", 7356880896, 0},
    {"glm-4.5-air", 106.9e9, 46 * 2 * 8 * 128 * 2},
    {"glm-4.5", 352.8e9, 92 * 2 * 8 * 128 * 2},
    {"glm-4.6", 352.8e9, 92 * 2 * 8 * 128 * 2},
    {"glm-4.7", 352.8e9, 92 * 2 * 8 * 128 * 2},
    {"glm-4.7-flash", 29943393920, 47 * 576 * 2},
    {"glm-5", 744e9, 78 * (576 + 128) * 2},
    {"glm-5.1", 744e9, 78 * (576 + 128) * 2},
    {"glm-5.2", 743377019904, (78 * 576 + 21 * 128) * 2},
    {"llama-4-scout", 108641793536, 12 * 2 * 8 * 128 * 2},
    {"llama-4-maverick", 401583781376, 12 * 2 * 8 * 128 * 2},
    {"gemma-4-26b-a4b", 25233141791, 5 * 2 * 2 * 512 * 2},
    {"granite-4-h-small", 32207337984, 4 * 2 * 8 * 128 * 2},
    {"granite-4-h-tiny", 6939037248, 4 * 2 * 4 * 128 * 2},
    {"lfm2-8b-a1b", 8339930560, 6 * 2 * 8 * 64 * 2},
    {"nemotron-3-nano-30b-a3b", 31577940288, 6 * 2 * 2 * 128 * 2},
    {"nemotron-3-super-120b-a12b", 120668707840, 8 * 2 * 2 * 128 * 2},
    {"ernie-4.5-21b-a3b", 21825437888, 28 * 2 * 4 * 128 * 2},
    {"ling-flash-2.0", 103e9, 32 * 2 * 4 * 128 * 2},
    {"ling-mini-2.0", 16.3e9, 20 * 2 * 4 * 128 * 2},
    {"hunyuan-a13b", 80393183232, 32 * 2 * 8 * 128 * 2},
    {"dbrx", 131596523520, 40 * 2 * 8 * 128 * 2},
    {"dots.llm1", 142774381696, 62 * 2 * 32 * 128 * 2},
    {"step-3.5-flash", 196.8e9, 12 * 2 * 8 * 128 * 2},
    {"mimo-v2-flash", 308778780864, 9 * 4 * (192 + 128) * 2},
    {"longcat-flash", 562e9, 28 * 2 * 576 * 2},
    {"solar-open-100b", 102651799552, 48 * 2 * 8 * 128 * 2},
    {"trinity-mini", 26.1e9, 8 * 2 * 4 * 128 * 2},
};

// vLLM takes Qwen3.5's mamba_ssm_dtype, and float32 for Kimi's and Nemotron's states.
TEST(model_presets, states_have_the_dtype_that_vllm_keeps) {
  const auto state = [](const char* name) {
    return lab::describe_model(name).memory.state_bytes_per_sequence;
  };
  EXPECT_EQ(state("qwen3-next-80b-a3b"), 36 * (32 * 128 * 128 * 2 + 3 * 8192 * 2));
  EXPECT_EQ(state("qwen3.5-35b-a3b"), 30 * (32 * 128 * 128 * 4 + 3 * 8192 * 2));
  EXPECT_EQ(state("kimi-linear-48b-a3b"), 20 * (32 * 128 * 128 * 4 + 3 * 3 * 4096 * 2));
  EXPECT_EQ(state("nemotron-3-nano-30b-a3b"), 23 * (64 * 64 * 128 * 4 + 3 * 6144 * 2));
}

TEST(published_models, have_the_parameters_and_the_cache_of_their_presets) {
  for (const auto& [name, parameters, kv] : published) {
    const auto out = lab::describe_model(name);
    const auto counted = static_cast<double>(model_cases::parameters_of(out));
    const bool is_exact = parameters != 1e8 * std::round(parameters / 1e8);
    EXPECT_NEAR(counted, parameters, parameters * (is_exact ? 2e-8 : .01)) << name;
    EXPECT_EQ(out.memory.kv_bytes_per_token(), kv) << name;
    support::expect_blocks_add_up(out.memory);
  }
}

TEST(published_models, are_all_presets) {
  std::vector<std::string> names;
  for (const auto& one : published) names.emplace_back(one.name);
  EXPECT_THAT(lab::model_names(), testing::UnorderedElementsAreArray(names));
}

}  // namespace
}  // namespace hotset::model_presets_test
