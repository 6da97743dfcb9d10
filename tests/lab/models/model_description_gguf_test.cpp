// SPDX-License-Identifier: Apache-2.0
/// Memory models of GGUF files: one of each accepted architecture, and refusals.

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "block_sums.hpp"
#include "gguf_samples.hpp"
#include "lab/files/gguf_parts.hpp"
#include "lab/sizes.hpp"
#include "model_cases.hpp"
#include "trace_samples.hpp"

namespace model_description_gguf_test {
namespace {
using namespace hotset;
using model_cases::expect_same_memory;
using model_cases::for_each_case;
using model_cases::told;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using trace_samples::expect_refused;
namespace gguf = gguf_samples;

/// A model with more keys of its architecture, in JSON, and experts in some blocks.
gguf::file made_of(const std::string& architecture, std::uint32_t blocks,
                   std::string_view text = "{}", const std::vector<int>& moe_blocks = {0}) {
  auto made = gguf::model(architecture, blocks);
  const auto keys = nlohmann::json::parse(text);
  for (const auto& [name, value] : keys.items()) {
    const auto key = architecture + "." + name;
    if (value.is_string())
      made.word(key, value.get<std::string>());
    else if (value.is_boolean())
      made.flag(key, value.get<bool>());
    else if (value.is_number())
      made.number(key, value.get<std::uint32_t>());
    else if (value.front().is_boolean())
      made.flags(key, value.get<std::vector<bool>>());
    else
      made.numbers(key, value.get<std::vector<std::int32_t>>());
  }
  for (const auto block : moe_blocks) gguf::add_experts(made, block);
  return made;
}

class gguf_models : public ::testing::Test {
 protected:
  [[nodiscard]] lab::model_description describe(const gguf::file& file,
                                                const lab::model_options& options = {}) const {
    auto out = lab::describe_model(folder_.write("small.gguf", file.bytes()).string(), options);
    support::expect_blocks_add_up(out.memory);
    return out;
  }
  /// Expects of a model with the keys of each line "keys => part | part" the summary.
  void expect_each(const std::string& architecture, std::uint32_t blocks,
                   std::string_view lines) const {
    for_each_case(lines, [&](const auto& keys, const auto& part) {
      EXPECT_THAT(told(describe(made_of(architecture, blocks, keys))), HasSubstr(part)) << keys;
    });
  }
  /// Refuses a model of two blocks with the keys of each line.
  void refuse_each(const std::string& architecture, std::string_view lines) const {
    for_each_case(lines, [&](const auto& keys, const auto& part) {
      refuse(made_of(architecture, 2, keys), {part});
    });
  }
  void refuse(const gguf::file& file, std::initializer_list<std::string_view> parts) const {
    const auto path = folder_.write("bad.gguf", file.bytes());
    expect_refused([&] { (void)lab::describe_model(path.string()); }, parts);
  }

  trace_samples::temporary_folder folder_;
};

constexpr std::uint64_t f16_expert = 2 * gguf::expert_elements;

TEST_F(gguf_models, bytes_are_those_of_the_tensors_and_the_cache_is_that_of_the_keys) {
  const auto out = describe(gguf::small_model());
  const auto& m = out.memory;
  EXPECT_EQ(m.name, "small");
  EXPECT_THAT(out.source, AllOf(HasSubstr("small.gguf"), HasSubstr("GGUF 3, qwen3moe, 9 tensors")));
  EXPECT_EQ(told(out),
            "2 layers of 4 experts, top 2; expert 12288; cache 2 x 192; state 0; "
            "context 4096; notes: ");
  EXPECT_EQ(m.expert_slot_bytes(), 2 * f16_expert);
  EXPECT_EQ(m.resident_bytes, 6400U * 2 + 2 * 64 * 4);
  EXPECT_TRUE(m.is_causal);
  EXPECT_EQ(describe(gguf::small_model(), {.kv_bits = 8.5}).memory.kv_bytes_per_token(),
            2U * 96 * 34 / 32);
}

// A quantiser mixes types between layers, and between down and the other two.
TEST_F(gguf_models, layers_may_differ_in_bytes) {
  auto made = gguf::model("olmoe", 3);
  for (int block = 0; block < 3; ++block) {
    const auto name = "blk." + std::to_string(block) + ".ffn_";
    made.tensor(name + "gate_exps.weight", {256, 32, 4}, gguf::q4_k)
        .tensor(name + "up_exps.weight", {256, 32, 4}, gguf::q4_k)
        .tensor(name + "down_exps.weight", {256, 32, 4}, block == 1 ? gguf::q6_k : gguf::q4_k);
  }
  const auto out = describe(made);
  EXPECT_THAT(out.memory.experts.expert_bytes,
              ElementsAre(3 * 32 * 144, 2 * 32 * 144 + 32 * 210, 3 * 32 * 144));
  EXPECT_THAT(told(out), HasSubstr("cache 3 x 256;")) << "every head, 64 / 4 wide";
}

TEST_F(gguf_models, shared_experts_and_dense_layers_are_resident) {
  auto made = made_of("qwen2moe", 2, "{}", {1});
  made.tensor("blk.0.ffn_up.weight", {64, 128}, gguf::f16)
      .tensor("blk.1.ffn_up_shexp.weight", {64, 32}, gguf::f16)
      .tensor("blk.1.ffn_gate_inp.weight", {64, 4}, gguf::f32)
      .tensor("blk.1.ffn_gate_up_exps.weight", {64, 8, 4}, gguf::f16)
      .tensor("blk.1.ffn_up_chexps.weight", {64, 4, 4}, gguf::f16);
  const auto m = describe(made).memory;
  EXPECT_EQ(m.experts.layers, 1);
  EXPECT_THAT(m.experts.expert_bytes, ElementsAre(f16_expert + 64 * 8 * 2 + 64 * 4 * 2));
  EXPECT_EQ(m.resident_bytes, 64U * 128 * 2 + 64 * 32 * 2 + 64 * 4 * 4);
}

/// A model whose blocks have tensors of one kind each: a: attention, l: latent, L: latent with an index of tokens,
/// d: DeepSeek-V4's, q: fused, s: state, c: short convolution, x: experts alone; n: of multi-token prediction.
gguf::file made_with(const std::string& architecture, std::string_view kinds,
                     std::string_view keys) {
  auto made = made_of(architecture, static_cast<std::uint32_t>(kinds.size()), keys, {});
  for (std::size_t b = 0; b < kinds.size(); ++b) {
    const auto add = [&](std::string_view name, const gguf::extents& extents) {
      made.tensor("blk." + std::to_string(b) + "." + std::string(name), extents, gguf::f32);
    };
    const auto kind = kinds[b];
    if (kind == 'a') add("attn_k.weight", {64, 40});
    if (kind == 'a') add("attn_v.weight", {64, 24});
    if (kind == 'l' || kind == 'L') add("attn_kv_a_mqa.weight", {64, 72});
    if (kind == 'L') add("indexer.attn_k.weight", {64, 8});
    if (kind == 'd') add("attn_kv.weight", {64, 32});
    if (kind == 'q') add("attn_qkv.weight", {64, 192});
    if (kind == 's') add("ssm_conv1d.weight", {4, 64});
    if (kind == 'c') add("shortconv.conv.weight", {3, 64});
    if (kind == 'n') add("nextn.eh_proj.weight", {128, 64});
    gguf::add_experts(made, static_cast<int>(b));
  }
  return made;
}

TEST_F(gguf_models, every_architecture_is_read_by_its_tensors) {
  // 64 elements a token in F16 are 128 bytes. States are in F32.
  struct with_tensors {
    const char *architecture, *kinds, *keys, *told;
  };
  constexpr with_tensors all[] = {
      {"afmoe", "aaaa", R"({"attention.sliding_window": 9})", "cache 1 x 128, 3 x 128 in 9;"},
      {"cohere2moe", "aaaaa", R"({"attention.sliding_window": 9})", "cache 2 x 128, 3 x 128 in 9;"},
      {"laguna", "aaaa", R"({"attention.sliding_window": 9})", "cache 1 x 128, 3 x 128 in 9;"},
      {"mellum", "aaaa", R"({"attention.sliding_window": 9})", "cache 1 x 128, 3 x 128 in 9;"},
      {"smallthinker", "aaaa", R"({"attention.sliding_window": 9})", "cache 1 x 128, 3 x 128 in 9"},
      {"exaone-moe", "aaaa", "{}", "cache 1 x 128, 3 x 128 in 128;"},
      {"llama4", "aaaa", "{}", "cache 4 x 128;"},
      {"gpt-oss", "aa", R"({"attention.sliding_window": 9})", "cache 1 x 128, 1 x 128 in 9;"},
      {"step35", "aa", R"({"attention.sliding_window": 9,
"attention.sliding_window_pattern": [false, true]})",
       "cache 1 x 128, 1 x 128 in 9;"},
      {"mimo2", "aan", R"({"attention.sliding_window": 9, "nextn_predict_layers": 1,
"attention.sliding_window_pattern": [true, false, false]})",
       "cache 1 x 128, 1 x 128 in 9;"},
      {"gemma4", "aaaa", R"({"attention.sliding_window": 9, "attention.shared_kv_layers": 2,
"attention.sliding_window_pattern": [true, false, true, false]})",
       "cache 1 x 128, 1 x 128 in 9; state 0; context 4096; notes: sliding window 9 of 2 layers"},
      {"deepseek2", "ll", R"({"attention.kv_lora_rank": 64, "attention.key_length_mla": 24})",
       "cache 2 x 144;"},
      {"deepseek32", "LL", R"({"attention.kv_lora_rank": 64, "attention.key_length_mla": 24})",
       "cache 2 x 160;"},
      {"glm-dsa", "Ll", R"({"attention.kv_lora_rank": 64, "attention.key_length_mla": 24})",
       "cache 1 x 144, 1 x 160;"},
      {"deepseek4", "ddd", R"({"attention.sliding_window": 10, "attention.compress_ratios": [0, 4,
16], "attention.indexer.key_length": 8})",
       "cache 1 x 4, 1 x 20; state 1920;"},
      {"dbrx", "qq", R"({"attention.head_count_kv": 2})", "cache 2 x 128;"},
      {"qwen35moe", "sssasssa", R"({"ssm.inner_size": 24, "ssm.state_size": 5, "ssm.group_count": 2,
"ssm.conv_kernel": 4})",
       "cache 2 x 128; state 6048;"},
      {"granitehybrid", "sas", R"({"attention.head_count_kv": [0, 2, 0], "ssm.inner_size": 24,
"ssm.state_size": 5, "ssm.group_count": 1, "ssm.conv_kernel": 4})",
       "cache 1 x 128; state 1776;"},
      {"nemotron_h_moe", "sxax", R"({"attention.head_count_kv": [0, 0, 2, 0],
"ssm.inner_size": 24, "ssm.state_size": 5, "ssm.group_count": 1, "ssm.conv_kernel": 4})",
       "cache 1 x 128; state 888;"},
      {"kimi-linear", "ssl", R"({"attention.kv_lora_rank": 64, "attention.key_length_mla": 24,
"attention.head_count_kv": [0, 0, 1], "kda.head_dim": 16, "ssm.conv_kernel": 4})",
       "cache 1 x 144; state 12800;"},
      {"lfm2moe", "ccac", R"({"shortconv.l_cache": 3})", "cache 1 x 128; state 1536;"},
      {"minimax-01", "qqqqqqqq", R"({"attention.head_count_kv": 2, "attention.key_length": 16})",
       "cache 1 x 128; state 28672;"},
  };
  for (const auto& one : all)
    EXPECT_THAT(told(describe(made_with(one.architecture, one.kinds, one.keys))),
                AllOf(HasSubstr(one.told), Not(HasSubstr("is not known"))))
        << one.architecture;
}

TEST_F(gguf_models, every_other_architecture_is_read_by_its_keys) {
  for (const auto* name :
       {"arctic",     "bailingmoe",   "bailingmoe2", "bailingmoe3", "deepseek",   "dots1",
        "dots3note",  "ernie4_5-moe", "glm4moe",     "glm5-next",   "granitemoe", "granite_swa",
        "grok",       "grovemoe",     "hunyuan-moe", "hy_v3",       "hy_v4",      "jamba",
        "kimi-k3",    "lfm2",         "llada-moe",   "llama",       "maple",      "minicpm",
        "minimax-m2", "minimax-m3",   "mistral3",    "mistral4",    "olmoe",      "phimoe",
        "qwen2moe",   "qwen3moe",     "qwen3vlmoe",  "rnd1"})
    expect_each(name, 1, R"(
{} => 1 layers of 4 experts, top 2; expert 12288; cache 1 x 256; state 0; context 4096; notes: )");
  expect_each("of-tomorrow", 1, R"(
{} => expert 12288; cache 1 x 256; | notes: architecture 'of-tomorrow' is not known)");
}

TEST_F(gguf_models, experts_of_old_files_lie_apart) {
  auto made = made_of("llama", 1, "{}", {});
  for (const auto* part : {"gate", "up", "down"})
    for (int e = 0; e < 4; ++e)
      made.tensor("blk.0.ffn_" + std::string(part) + "." + std::to_string(e) + ".weight", {64, 32},
                  gguf::f16);
  EXPECT_THAT(told(describe(made)), HasSubstr("1 layers of 4 experts, top 2; expert 12288;"));
}

TEST_F(gguf_models, small_experts_that_others_share_are_resident) {
  auto made = made_of("grovemoe", 1);
  made.tensor("blk.0.ffn_up_chexps.weight", {64, 4, 2}, gguf::f16);
  const auto m = describe(made).memory;
  EXPECT_THAT(m.experts.expert_bytes, ElementsAre(f16_expert));
  EXPECT_EQ(m.resident_bytes, 64U * 4 * 2 * 2);
}

TEST_F(gguf_models, numbers_that_are_missing_are_asked_for) {
  gguf::file made;
  made.word("general.architecture", "olmoe");
  gguf::add_experts(made, 0);
  refuse(made, {"'olmoe.attention.head_count': is missing", "or --kv-bytes-per-token"});
  const auto out = describe(made, {.hand = {.kv_bytes_per_token = 7}});
  EXPECT_EQ(out.memory.kv_bytes_per_token(), 7U);
  EXPECT_EQ(out.memory.experts.experts, 4) << "as the tensors stack";
  EXPECT_FALSE(out.top_k_is_known);
}

TEST_F(gguf_models, blocks_without_end_are_refused) {
  gguf::file made;
  made.word("general.architecture", "olmoe");
  made.tensor("blk.18446744073709551615.ffn_up_exps.weight", {64, 32, 4}, gguf::f16);
  refuse(made, {"layer 18446744073709551615: has experts", "layers 0..65535"});
}

TEST_F(gguf_models, weights_may_be_wished_in_another_format) {
  auto made = made_of("qwen3moe", 1, R"({"attention.head_count_kv": 1})", {});
  for (const auto* part : {"gate", "up", "down"})
    made.tensor("blk.0.ffn_" + std::string(part) + "_exps.weight", {256, 256, 4}, gguf::f16);
  made.tensor("token_embd.weight", {256, 100}, gguf::f16)
      .tensor("blk.0.attn_v.weight", {256, 16}, gguf::f16)
      .tensor("blk.0.attn_q.weight", {64, 16}, gguf::f16)
      .tensor("blk.0.ffn_gate_inp.weight", {256, 4}, gguf::f32);
  const auto as = [&](const char* name) { return describe(made, {.weights = name}); };
  const auto m = as("Q4_K_M").memory;
  EXPECT_THAT(m.experts.expert_bytes, ElementsAre(256 * (144 + 144 + 210)));
  // The embeddings are the head, and 64 columns are no 256.
  EXPECT_EQ(m.resident_bytes, 100U * 210 + 16 * 210 + 16 * 2 * 22 + 256 * 4 * 4);
  EXPECT_THAT(as("fp8").memory.experts.expert_bytes, ElementsAre(3 * (65536 + 4 * 4)));
  EXPECT_EQ(as("fp8").memory.resident_bytes,
            100U * 512 + 16 * 256 + 2 * 4 + 16 * 64 + 4 + 256 * 4 * 4);
  EXPECT_THAT(told(as("Q2_K")), HasSubstr("weights as Q2_K: "));
}

/// Latent attention as newer files say it, behind a dense block.
gguf::file latent_model(std::uint32_t blocks, const std::vector<int>& moe_blocks) {
  auto made = made_of("deepseek2", blocks, R"({"attention.kv_lora_rank": 512,
"attention.head_count_kv": 1, "attention.key_length": 576, "attention.key_length_mla": 192})",
                      moe_blocks);
  return made.tensor("blk.0.ffn_down.weight", {64, 64}, gguf::f16);
}

TEST_F(gguf_models, latent_attention_keeps_one_vector_where_the_file_says_so) {
  EXPECT_THAT(
      told(describe(latent_model(3, {1, 2}))),
      AllOf(HasSubstr("2 layers"), HasSubstr("cache 3 x 1152;"), HasSubstr("keys alone are kept")));
  expect_each("deepseek2", 3, R"(
{"attention.kv_lora_rank": 512, "attention.key_length": 192} => cache 3 x 1664; | an older form)");
}

TEST_F(gguf_models, blocks_of_multi_token_prediction_are_not_counted) {
  auto with = latent_model(4, {1, 2, 3});
  with.tensor("blk.3.nextn.eh_proj.weight", {128, 64}, gguf::f16)
      .tensor("blk.3.attn_norm.weight", {64}, gguf::f32);
  const auto out = describe(with);
  expect_same_memory(out, describe(latent_model(3, {1, 2})));
  EXPECT_EQ(out.memory.blocks.size(), 3U) << "though block_count counts it";
  EXPECT_FALSE(out.memory.blocks[0].is_moe);
  EXPECT_TRUE(out.memory.blocks[1].is_moe && out.memory.blocks[2].is_moe);
  EXPECT_THAT(told(out), HasSubstr("multi-token prediction (1 layer) is not counted"));
}

TEST_F(gguf_models, experts_only_in_blocks_of_multi_token_prediction_are_refused) {
  auto made = made_of("deepseek2", 3, R"({"nextn_predict_layers": 2})", {1, 2});
  refuse(made.tensor("blk.0.ffn_down.weight", {64, 64}, gguf::f16),
         {"nextn_predict_layers", "leaves no layer with experts"});
}

// Jamba v0.1's own extents: attention in blocks 4, 12, 20 and 28 of 32.
TEST_F(gguf_models, blocks_without_heads_have_a_recurrent_state) {
  auto made = made_of("jamba", 32, R"({"attention.key_length": 128, "attention.value_length": 128,
"ssm.conv_kernel": 4, "ssm.inner_size": 8192, "ssm.state_size": 16})");
  std::vector<std::int32_t> heads(32, 0);
  for (const std::size_t block : {4U, 12U, 20U, 28U}) heads[block] = 8;
  made.numbers("jamba.attention.head_count_kv", heads);
  EXPECT_THAT(told(describe(made)), AllOf(HasSubstr("cache 4 x 4096; state 17432576;"),
                                          HasSubstr("recurrent state of 28 layers in F32")));
  expect_each("jamba", 2, R"(
{"attention.head_count_kv": 0} => notes: recurrent state of 2 layers is not counted: no key tells its extents)");
  refuse_each("jamba", R"(
{"attention.head_count_kv": 0, "ssm.inner_size": 8} => key 'jamba.ssm.state_size' | is missing)");
}

TEST_F(gguf_models, windows_of_gpt_oss_alternate_and_biases_belong_to_the_experts) {
  auto made = made_of("gpt-oss", 3, R"({"attention.sliding_window": 128})", {});
  for (int block = 0; block < 3; ++block) {
    gguf::add_experts(made, block, gguf::mxfp4);
    made.tensor("blk." + std::to_string(block) + ".ffn_gate_exps.bias", {32, 4}, gguf::f32);
  }
  const auto out = describe(made);
  EXPECT_THAT(out.memory.experts.expert_bytes,
              ElementsAre(gguf::expert_elements / 32 * 17 + 32 * 4));
  EXPECT_THAT(told(out), HasSubstr("cache 1 x 256, 2 x 256 in 128; state 0; context 4096; notes: "
                                   "sliding window 128 of 2 layers"));
}

TEST_F(gguf_models, windows_follow_their_pattern) {
  const auto windowed = [](const std::string& pattern) {
    return made_of("qwen3moe", 6,
                   R"({"attention.sliding_window": 100,
"attention.sliding_window_pattern": )" +
                       pattern + "}");
  };
  // A period's last block alone has none.
  for_each_case(R"(
4 => cache 1 x 256, 5 x 256 in 100;
1 => cache 6 x 256;
[true, false, true, true, true, true] => cache 1 x 256, 5 x 256 in 100;
2, "attention.key_length_swa": 8, "attention.value_length_swa": 4 => cache 3 x 256, 3 x 96 in 100;)",
                [&](const auto& pattern, const auto& part) {
                  EXPECT_THAT(told(describe(windowed(pattern))), HasSubstr(part)) << pattern;
                });
  refuse(windowed("[true]"), {"key 'qwen3moe.attention.sliding_window_pattern'", "is an array of 1",
                              "an array of 6 integers, one a layer"});
}

TEST_F(gguf_models, windows_without_a_pattern_are_the_architectures_own) {
  expect_each("qwen3moe", 6, R"(
{"attention.sliding_window": 100} => cache 6 x 256; | notes: sliding window 100 is not used)");
  EXPECT_THAT(told(describe(made_of("phimoe", 1, R"({"attention.sliding_window": 4096})"))),
              EndsWith("cache 1 x 256; state 0; context 4096; notes: "))
      << "all tokens";
  expect_each("llama4", 4, R"(
Chunks, but in every fourth block:
{"attention.sliding_window": 100} => cache 1 x 256, 3 x 256 in 100;)");
}

TEST_F(gguf_models, a_model_that_is_not_causal_keeps_nothing) {
  const auto out = describe(made_of("llada-moe", 1, R"({"attention.causal": false})"));
  EXPECT_FALSE(out.memory.is_causal || out.memory.has_kv());
  EXPECT_THAT(out.notes, ElementsAre(HasSubstr("no KV cache")));
}

TEST_F(gguf_models, what_cannot_be_described_is_refused) {
  gguf::file nothing, nameless, dense;
  nameless.number("general.architecture", 3);
  dense.word("general.architecture", "llama").number("llama.block_count", 2);
  refuse(nothing, {"key 'general.architecture'", "is missing", "by hand --layers"});
  refuse(nameless, {"is missing, or no string"});
  refuse(dense, {"key 'llama.expert_count'", "a dense model has no experts"});
  refuse(gguf::model("qwen3moe"), {"has no tensor blk.*.ffn_*_exps"});
  const auto made = [] { return made_of("qwen3moe", 2); };
  EXPECT_EQ(describe(made().number("split.count", 1)).memory.experts.layers, 1);
  refuse(made().number("split.count", 3),
         {"key 'split.count'", "is 3: the file is one of as many parts", "1, as its name says"});
  refuse(made().tensor("blk.1.ffn_up_exps.weight", {64, 3}, gguf::f16),
         {"layer 1, 'ffn_up_exps.weight'", "is of 3 experts", "4, as elsewhere"});
  refuse(made().tensor("blk.2.ffn_up_exps.weight", {64, 4}, gguf::f16),
         {"layer 2: has experts", "layers 0..1, by block_count"});
  refuse_each("qwen3moe", R"(
{"attention.head_count_kv": [1, 2, 3]} => 'qwen3moe.attention.head_count_kv' | an array of 3 | an array of 2 integers
{"attention.head_count_kv": [1, -2]} => head_count_kv' | entry 1 is "no integer of 0 or more"
{"attention.key_length": "128"} => key_length' | is "no integer
{"attention.key_length": [1, 2]} => key_length' | entry 1 is 2, entry 0 is 1
{"attention.key_length": 33554432} => key_length' | is 33554432 | 0..16777216)");
}

TEST_F(gguf_models, keys_that_must_be_there_are_named) {
  gguf::file made;
  made.word("general.architecture", "olmoe");
  made.number("olmoe.expert_used_count", 5).number("olmoe.attention.head_count_kv", 4);
  gguf::add_experts(made, 0);
  refuse(made, {"head_count'", "is missing or 0"});
  made.number("olmoe.attention.key_length", 4).number("olmoe.attention.value_length", 4);
  refuse(made, {"top_k = 5, accepted: 1..4"});
}

// A download that was cut short still plans; cut inside the header, it says nothing.
TEST_F(gguf_models, a_header_alone_is_enough) {
  const auto made = gguf::small_model();
  const auto whole = made.bytes();
  const auto header = made.header().size();
  const auto described = [&](std::size_t size) {
    return lab::describe_model(folder_.write("short.gguf", whole.substr(0, size)).string());
  };
  const auto all = describe(made);
  for (const auto size : {header, header + 1, (header + whole.size()) / 2, whole.size() - 1}) {
    const auto out = described(size);
    expect_same_memory(out, all);
    EXPECT_THAT(out.notes, ElementsAre(HasSubstr("B: its header is enough for a plan"))) << size;
  }
  EXPECT_THAT(told(described(header)), HasSubstr("by " + lab::size_text(made.data_bytes()) + ":"));
  for (std::size_t size = 0; size < header; ++size)
    expect_refused([&] { (void)described(size); }, {"short.gguf"});
  auto huge = gguf::model("olmoe", 1);
  huge.tensor_at("blk.0.ffn_up_exps.weight", {1U << 30U, 1U << 20U, 4}, gguf::f16, 0, 0);
  const auto path = folder_.write("huge.gguf", huge.header()).string();
  expect_refused([&] { (void)lab::describe_model(path); }, {"pass the file's end"});
}

TEST_F(gguf_models, qwen3next_keeps_a_state_in_three_of_four_blocks) {
  const auto out = describe(made_of("qwen3next", 8, R"({"attention.head_count_kv": 2,
"attention.key_length": 32, "attention.value_length": 32, "ssm.conv_kernel": 4,
"ssm.inner_size": 24, "ssm.state_size": 5, "ssm.group_count": 2})"));
  EXPECT_THAT(told(out), HasSubstr("cache 2 x 256;"));
  EXPECT_EQ(out.memory.state_bytes_per_sequence, 4U * 6 * (24 * 5 + (24 + 2 * 2 * 5) * 3));
}

TEST_F(gguf_models, parts_are_read_as_the_one_file_that_they_were) {
  auto first = made_of("qwen3moe", 2);
  first.number("split.count", 2).number("split.no", 0);
  gguf::file second;
  second.number("split.count", 2).number("split.no", 1);
  gguf::add_experts(second, 1);
  const auto one = describe(made_of("qwen3moe", 2, "{}", {0, 1}));
  const auto write = [&](const gguf::file& part_1, const gguf::file& part_2) {
    folder_.write("big-00001-of-00002.gguf", part_1.bytes());
    folder_.write("big-00002-of-00002.gguf", part_2.bytes());
  };
  const auto refuse_first = [&](std::initializer_list<std::string_view> parts) {
    expect_refused([&] { (void)lab::describe_model(folder_.file("big-00001-of-00002.gguf")); },
                   parts);
  };
  write(first, second);
  for (const auto* part : {"big-00001-of-00002.gguf", "big-00002-of-00002.gguf"}) {
    const auto out = lab::describe_model(folder_.file(part));
    EXPECT_EQ(out.memory.name, "big");
    EXPECT_THAT(out.source, HasSubstr("tensors in 2 parts"));
    expect_same_memory(out, one);
    EXPECT_EQ(lab::first_gguf_part(folder_.file(part)), folder_.file("big-00001-of-00002.gguf"));
  }
  EXPECT_EQ(lab::first_gguf_part("a-00001.gguf"), "a-00001.gguf");
  write(first, first);
  refuse_first({"big-00002-of-00002.gguf", "key 'split.no'", "is 0", "1, as its name says"});
  first.number("split.tensors.count", 99);
  write(first, second);
  refuse_first({"big-00001-of-00002.gguf", "key 'split.tensors.count'", "is 99"});
  std::filesystem::remove(folder_.file("big-00002-of-00002.gguf"));
  refuse_first({"big-00002-of-00002.gguf", "is missing: part 2 of 2", "all parts in one folder"});
}

}  // namespace
}  // namespace model_description_gguf_test
