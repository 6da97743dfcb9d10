// SPDX-License-Identifier: Apache-2.0
#include "lab/models/model_description.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "block_sums.hpp"
#include "lab/errors.hpp"
#include "lab/models/wished_weights.hpp"
#include "lab/sizes.hpp"
#include "model_cases.hpp"
#include "sim_samples.hpp"
#include "trace_samples.hpp"

namespace hotset::model_description_test {
namespace {

using json = nlohmann::ordered_json;
using model_cases::expect_same_memory;
using model_cases::for_each_case;
using model_cases::stored;
using model_cases::stored_tensor;
using model_cases::tensors_of;
using model_cases::told;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using trace_samples::expect_refused;

// Published files have these bytes: all routed + the rest is the size of OLMoE, of DeepSeek-V3 (less its prediction
// layer), Kimi-VL (less 3456 of rotary buffers), MiniMax-M2, both gpt-oss and LLaDA-MoE; of the others it is twice the
// parameters.
struct known_model {
  const char* name;
  int layers, experts, top_k;
  std::uint64_t expert, resident, kv_token, max_context;
  std::uint64_t published;  ///< bytes of the files
};
constexpr known_model known_models[] = {
    {"olmoe-1b-7b", 16, 64, 8, 12582912, 953421824, 131072, 4096, 2 * 6919161856U},
    {"mixtral-8x7b", 32, 8, 2, 352321536, 3211272192, 131072, 32768, 2 * 46702792704U},
    {"qwen1.5-moe-a2.7b", 24, 60, 4, 17301504, 3717402624, 196608, 8192, 2 * 14315784192U},
    {"qwen3-30b-a3b", 48, 128, 8, 9437184, 3082186752, 98304, 40960, 2 * 30532122624U},
    {"phi-3.5-moe", 32, 16, 2, 157286400, 3215669888, 131072, 131072, 2 * 41873153344U},
    {"deepseek-v2-lite", 26, 64, 6, 17301504, 2623265792, 31104, 163840, 2 * 15706484224U},
    {"deepseek-v3", 58, 256, 8, 44050944, 19082195296, 70272, 163840, 688574839360U - 15424227552U},
    {"kimi-vl-a3b", 26, 64, 6, 17301504, 3130517760 + 895091680, 31104, 0, 32815315552U - 3456U},
    {"jamba-v0.1", 16, 16, 2, 352321536, 12946333440, 16384, 262144, 2 * 51570323328U},
    {"minimax-m2", 62, 256, 8, 14159232, 5386300416, 253952, 196608, 230121630720U},
    {"gpt-oss-20b", 24, 32, 4, 13236480, 3595648128, 24576, 131072, 13761264768U},
    {"gpt-oss-120b", 36, 128, 4, 13236480, 4255115904, 36864, 131072, 65248815744U},
    {"llada-moe", 16, 64, 8, 12582912, 1828859904, 0, 8192, 14713761792U},
};

class known_presets : public testing::TestWithParam<known_model> {};

TEST_P(known_presets, agree_with_the_published_files_to_the_byte) {
  const auto& known = GetParam();
  const auto out = lab::describe_model(known.name);
  const auto& m = out.memory;
  ASSERT_FALSE(m.validate());
  EXPECT_EQ(m.name, known.name);
  EXPECT_THAT(out.source, HasSubstr(known.name));
  EXPECT_THAT(told(out),
              StartsWith(fmt::format("{} layers of {} experts, top {}; expert {};", known.layers,
                                     known.experts, known.top_k, known.expert)));
  EXPECT_EQ(m.resident_bytes, known.resident);
  EXPECT_EQ(m.kv_bytes_per_token(), known.kv_token);
  EXPECT_EQ(m.max_context, known.max_context);
  EXPECT_EQ(m.all_expert_bytes() + m.resident_bytes, known.published);
}

INSTANTIATE_TEST_SUITE_P(all, known_presets, testing::ValuesIn(known_models),
                         [](const auto& instance) {
                           std::string name = instance.param.name;
                           std::ranges::replace_if(
                               name, [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

TEST(model_presets, windows_states_and_what_was_assumed_or_left_out_are_told) {
  for_each_case(R"(
gpt-oss-20b => cache 12 x 2048, 12 x 2048 in 128; | sliding window 128 of 12 layers | MXFP4
gpt-oss-120b => cache 18 x 2048, 18 x 2048 in 128;
jamba-v0.1 => cache 4 x 4096; state 8716288; | a convolution state of 3 (as vLLM keeps it)
phi-3.5-moe => sliding window 131072 never binds
llada-moe => cache ; state 0; | no KV cache in its plain sampler | 128 KiB a token
deepseek-v3 => one vector of 576 | block of 128 x 128 | multi-token prediction (1 layer)
minimax-m2 => multi-token prediction (3 layers)
kimi-vl-a3b => vision tower and projector, 853.6 MiB,)",
                [](const auto& name, const auto& part) {
                  EXPECT_THAT(told(lab::describe_model(name)), HasSubstr(part)) << name;
                });
  EXPECT_THAT(lab::describe_model("qwen3-30b-a3b").notes, IsEmpty());
  EXPECT_FALSE(lab::describe_model("llada-moe").memory.is_causal);
}

TEST(model_presets, blocks_are_the_whole_decoder) {
  for (const auto& name : lab::model_names()) {
    const auto m = lab::describe_model(name).memory;
    support::expect_blocks_add_up(m);
    std::uint64_t inside = 0;
    for (const auto& b : m.blocks) inside += b.resident_bytes;
    EXPECT_LT(inside, m.resident_bytes) << "the embeddings are in none";
  }
  const auto is_moe = [](const char* name, std::size_t block) {
    return lab::describe_model(name).memory.blocks.at(block).is_moe;
  };
  EXPECT_TRUE(!is_moe("deepseek-v3", 2) && is_moe("deepseek-v3", 3)) << "behind three dense ones";
  EXPECT_TRUE(is_moe("deepseek-v3", 60));
  EXPECT_TRUE(!is_moe("deepseek-v2-lite", 0) && is_moe("deepseek-v2-lite", 1));
  EXPECT_TRUE(!is_moe("jamba-v0.1", 2) && is_moe("jamba-v0.1", 3)) << "every other one";
  // Layer 0 of DeepSeek-V2-Lite: two norms, latent attention, and an MLP of 10,944.
  constexpr std::uint64_t latent = 3072 * 2048 + 576 * 2048 + 512 + 4096 * 512 + 2048 * 2048;
  EXPECT_EQ(lab::describe_model("deepseek-v2-lite").memory.blocks[0].resident_bytes,
            2 * (2 * 2048 + latent + 3 * 10944 * 2048));
}

TEST(model_presets, the_cache_may_be_of_fewer_bits) {
  const auto bytes = [](const char* name, double bits) {
    return lab::describe_model(name, {.kv_bits = bits}).memory.kv_bytes_per_token();
  };
  EXPECT_EQ(bytes("qwen3-30b-a3b", 16), 98304U);
  EXPECT_EQ(bytes("qwen3-30b-a3b", 8), 49152U);
  EXPECT_EQ(bytes("qwen3-30b-a3b", 8.5), 98304U / 64 * 34) << "34 bytes a block of 32";
  EXPECT_EQ(bytes("qwen3-30b-a3b", 4.5), 98304U / 64 * 18);

  EXPECT_EQ(bytes("deepseek-v2-lite", 0.5), 27U * 36);
  const auto refused = [](double bits) {
    return support::refusal<lab::usage_error>(
        [&] { (void)lab::describe_model("olmoe-1b-7b", {.kv_bits = bits}); });
  };
  EXPECT_EQ(refused(0), "kv_bits = 0, accepted: multiples of 0.5 in 0.5..64");
  EXPECT_THAT(refused(8.25), HasSubstr("kv_bits = 8.25"));
  EXPECT_THAT(refused(64.5), HasSubstr("kv_bits = 64.5"));
  EXPECT_THAT(refused(std::nan("")), HasSubstr("accepted"));
}

TEST(model_presets, an_unknown_name_lists_the_known_ones) {
  for (const auto* name : {"olmoe", "", "qwen3-30b-a3b ", "no/such/folder"})
    EXPECT_THAT(support::refusal<lab::usage_error>([&] { (void)lab::describe_model(name); }),
                testing::AllOf(HasSubstr("unknown model"), HasSubstr("olmoe-1b-7b"),
                               HasSubstr("llada-moe"), HasSubstr(".gguf")));
}

/// All parts that a plan needs, without a file.
lab::model_by_hand whole_hand() {
  return {.layers = 4,
          .experts = 8,
          .top_k = 2,
          .expert_bytes = 100,
          .kv_bytes_per_token = 7,
          .resident_bytes = 1000};
}

TEST(models_by_hand, are_what_the_hand_says) {
  auto hand = whole_hand();
  const auto whole = lab::describe_by_hand(hand);
  EXPECT_EQ(told(whole),
            "4 layers of 8 experts, top 2; expert 100; cache 1 x 7; state 0; context 0; notes: ");
  EXPECT_EQ(whole.memory.resident_bytes, 1000U);
  hand.kv_bytes_per_token = 0;
  hand.resident_bytes.reset();
  EXPECT_THAT(told(lab::describe_by_hand(hand)),
              HasSubstr("cache ; state 0; context 0; notes: no resident bytes by hand: attention, "
                        "embeddings and all other weights are taken as 0"));
}

TEST(models_by_hand, say_what_is_missing_or_out_of_range) {
  const auto refuse = [](const lab::model_by_hand& hand, const char* why) {
    EXPECT_THAT(support::refusal<lab::usage_error>([&] { (void)lab::describe_by_hand(hand); }),
                HasSubstr(why));
  };
  refuse({}, "layers, experts, top-k, expert-bytes, kv-bytes-per-token is");
  auto hand = whole_hand();
  hand.layers.reset();
  refuse(hand, "by hand: layers is missing; accepted: --layers");
  hand.layers = 4;
  hand.top_k = 9;
  refuse(hand, "top_k = 9, accepted: 1..8");
  hand.top_k = 2;
  hand.expert_bytes = std::uint64_t{1} << 60U;
  refuse(hand, "all_expert_bytes = ");
}

TEST(models_by_hand, correct_what_was_read_and_say_so) {
  auto out = lab::describe_model("qwen3-30b-a3b");
  lab::correct_by_hand({}, out);
  EXPECT_THAT(out.notes, IsEmpty());
  lab::correct_by_hand({.top_k = 6, .expert_bytes = 100, .kv_bytes_per_token = 0}, out);
  EXPECT_EQ(told(out),
            "48 layers of 128 experts, top 6; expert 100; cache ; state 0; context 40960; notes: "
            "top-k by hand: 6; 8 was read; size of an expert by hand: 100 B; 9 MiB was read; "
            "KV of a token by hand: 0 B; 96 KiB was read");
  EXPECT_THAT(support::refusal<lab::usage_error>([&] { lab::correct_by_hand({.layers = 3}, out); }),
              HasSubstr("layers and experts by hand beside a model that was read"));
}

/// A config with a JSON merge patch: null removes a key.
json patched(json config, std::string_view patch) {
  config.merge_patch(json::parse(patch));
  return config;
}

class model_configs : public ::testing::Test {
 protected:
  [[nodiscard]] lab::model_description describe(const json& config) const {
    return lab::describe_model(folder_.write("config.json", config.dump()).string());
  }
  [[nodiscard]] std::uint64_t resident_bytes(const json& config,
                                             std::string_view patch = "{}") const {
    return describe(patched(config, patch)).memory.resident_bytes;
  }
  void refuse(const json& config, std::initializer_list<std::string_view> parts) const {
    refuse_text(config.dump(), parts);
  }
  /// Expects of the config with the patch of each line "patch => part | part" the summary.
  void expect_each(const json& config, std::string_view lines) const {
    for_each_case(lines, [&](const auto& patch, const auto& part) {
      EXPECT_THAT(told(describe(patched(config, patch))), HasSubstr(part)) << patch;
    });
  }
  /// Refuses the config with the patch of each line "patch => part | part".
  void refuse_each(const json& config, std::string_view lines) const {
    for_each_case(lines, [&](auto patch, auto part) { refuse(patched(config, patch), {part}); });
  }
  void refuse_text(std::string_view text, std::initializer_list<std::string_view> parts) const {
    const auto path = folder_.write("config.json", text);
    expect_refused([&] { (void)lab::describe_model(path.string()); }, parts);
  }
  /// Refuses a config without each of these keys, by the key's name.
  void refuse_without(const json& config, std::initializer_list<const char*> keys) const {
    for (const auto* key : keys) {
      auto less = config;
      less.erase(key);
      refuse(less, {std::string("key '") + key + "'", "is missing"});
    }
  }

  trace_samples::temporary_folder folder_;
};

/// Three layers, width 32, two heads of 16, four experts of width 8, vocabulary 10; BF16.
json plain(const char* type, std::string_view patch = "{}") {
  auto config =
      json::parse(R"({"torch_dtype": "bfloat16", "hidden_size": 32, "num_hidden_layers": 3,
"vocab_size": 10, "num_attention_heads": 2, "num_key_value_heads": 1, "num_experts": 4,
"num_experts_per_tok": 2, "intermediate_size": 8, "max_position_embeddings": 100})");
  config["model_type"] = type;
  return patched(config, patch);
}
/// Elements of plain(): embedding and head, norms, attention and routers.
constexpr std::uint64_t plain_embeddings = 2 * 10 * 32;
constexpr std::uint64_t plain_norms = 7 * 32;
constexpr std::uint64_t plain_attention = 3 * (2 * 32 * 32 + 2 * 32 * 16);
constexpr std::uint64_t plain_routers = 3 * 4 * 32;
constexpr std::uint64_t plain_resident =
    2 * (plain_embeddings + plain_norms + plain_attention + plain_routers);
constexpr std::uint64_t plain_expert = 2 * 3 * 32 * 8;

TEST_F(model_configs, a_plain_model_by_hand) {
  const auto out = describe(plain("mixtral"));
  EXPECT_EQ(
      told(out),
      "3 layers of 4 experts, top 2; expert 1536; cache 3 x 64; state 0; context 100; notes: ");
  EXPECT_EQ(out.memory.resident_bytes, plain_resident);
  EXPECT_EQ(out.memory.name, folder_.path().filename()) << "the folder of a config.json";
  EXPECT_THAT(out.source, testing::EndsWith("config.json: mixtral"));
}

// The other names are those of presets.
TEST_F(model_configs, every_name_of_a_key_is_read) {
  expect_each(plain("mixtral"), R"(
{"num_experts_per_tok": null, "experts_per_token": 1} => top 1;
{"model_type": "lladamoe", "expert_intermediate_size": 16} => expert 3072;
{"model_type": "tiny_moe", "moe_intermediate_size": 16} => expert 3072;)");
}

TEST_F(model_configs, the_width_of_a_head_is_read_before_it_is_derived) {
  auto null = plain("mixtral");
  null["head_dim"] = nullptr;
  expect_each(null, R"(
{} => cache 3 x 64;
{"head_dim": 24} => cache 3 x 96;
{"attention_head_dim": 24} => cache 3 x 96;)");
  refuse_each(null, R"(
{"num_attention_heads": 3} => key 'head_dim' | is missing | no multiple of 3 heads)");
}

TEST_F(model_configs, a_token_of_a_layer_is_rounded_up_to_whole_bytes) {
  const auto path = folder_.write("config.json", plain("mixtral", R"({"head_dim": 1})").dump());
  for (const auto& [bits, bytes] : {std::pair(4.5, 3U * 2), std::pair(4., 3U)})  // of 9 bits, 8
    EXPECT_EQ(lab::describe_model(path.string(), {.kv_bits = bits}).memory.kv_bytes_per_token(),
              bytes);
}

TEST_F(model_configs, dtypes_decide_the_bytes_of_an_element) {
  expect_each(plain("mixtral"), R"(
{"torch_dtype": "float32"} => expert 3072;
{"torch_dtype": "float16"} => expert 1536;
{"torch_dtype": null, "dtype": "float32"} => expert 3072;
{"torch_dtype": null} => expert 1536; | notes: no torch_dtype: bfloat16 is assumed)");
  refuse_each(plain("mixtral"), R"(
{"torch_dtype": "int8"} => key 'torch_dtype' | is 'int8' | bfloat16, float16 or float32)");
}

// Presets have the weights of their families.
TEST_F(model_configs, small_weights_are_counted_where_keys_ask_for_them) {
  constexpr std::uint64_t layers = 3, routers_in_f32 = layers * (2 * 4 * 32 + 4 * 4);
  constexpr std::uint64_t corrections_in_f32 = layers * 4 * 4;
  struct row {
    const char* type;
    const char* patch;
    std::uint64_t more;  ///< than the plain model's resident bytes
  };
  for (const auto& [type, patch, more] : std::vector<row>{
           {"mixtral", R"({"shared_intermediate_size": 5})", 2 * layers * 3 * 32 * 5},
           {"minimax_m2", R"({"use_qk_norm": false})", routers_in_f32},
           {"glm4_moe", "{}", corrections_in_f32},
           {"glm4_moe", R"({"use_qk_norm": true})", corrections_in_f32 + 2 * layers * 2 * 16},
           {"glm4_moe", R"({"attention_bias": true})",  // of the output has none
            corrections_in_f32 + 2 * layers * (32 + 2 * 16)},
           {"dots1", "{}", corrections_in_f32 + 2 * layers * 2 * 16},
           {"llada", R"({"qk_layernorm": false})", 0}})
    EXPECT_EQ(resident_bytes(plain(type, R"({"moe_intermediate_size": 8, "n_shared_experts": 0,
"expert_intermediate_size": 8})"),
                             patch),
              plain_resident + more)
        << type << patch;
}

TEST_F(model_configs, layers_with_experts_are_chosen_by_every_known_key) {
  expect_each(plain("mixtral", R"({"num_hidden_layers": 6})"), R"(
{} => 6 layers
{"first_k_dense_replace": 2} => 4 layers
{"moe_layer_freq": 4} => 2 layers
{"moe_layer_freq": [1, 0, 0, 1, 1, 0]} => 3 layers
{"decoder_sparse_step": 4} => 1 layers
{"mlp_only_layers": [0, 5, 9]} => 4 layers
{"expert_layer_period": 4, "expert_layer_offset": 1} => 2 layers)");
  const auto dense = R"({"first_k_dense_replace": 1, "dense_intermediate_size": 20})";
  EXPECT_EQ(resident_bytes(plain("mixtral"), dense), plain_resident + 2 * (3 * 32 * 20 - 4 * 32))
      << "an MLP for a router";
  refuse_each(plain("mixtral"), R"(
{"first_k_dense_replace": 3} => none of its 3 layers has experts
{"moe_layer_freq": [1, 1]} => key 'moe_layer_freq' | an array of 2 | an array of 3 integers, one a layer)");
}

TEST_F(model_configs, a_list_of_a_million_dense_layers_is_read_once) {
  auto config = plain("mixtral", R"({"num_hidden_layers": 65536, "dense_intermediate_size": 20})");
  auto without = json::array();
  for (int i = 0; i < 1'500'000; ++i) without.push_back(60000 + i % 5000);
  config["mlp_only_layers"] = std::move(without);
  EXPECT_EQ(describe(config).memory.experts.layers, 65536 - 5000);
}

/// A config like DeepSeek's: latent attention, a dense layer, two shared experts.
json latent(const char* type = "deepseek_v2", std::string_view patch = "{}") {
  return patched(plain(type, R"({"first_k_dense_replace": 1, "moe_intermediate_size": 8,
"intermediate_size": 20, "n_shared_experts": 2, "kv_lora_rank": 12, "qk_nope_head_dim": 6,
"qk_rope_head_dim": 4, "v_head_dim": 5})"),
                 patch);
}

TEST_F(model_configs, latent_attention_needs_its_keys) {
  EXPECT_EQ(resident_bytes(latent("kimi_k2")), resident_bytes(latent("deepseek_v3")));
  EXPECT_EQ(resident_bytes(latent(), R"({"attention_bias": true})"),
            resident_bytes(latent()) + 3 * 2 * (12 + 4 + 32));
  refuse_without(latent(), {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
                            "moe_intermediate_size"});
  refuse_each(latent(), R"(
{"intermediate_size": null} => key 'dense_intermediate_size' | is missing)");
}

/// plain() with stored weights: an expert has three, [8, 32], [8, 32] and [32, 8], in groups of 8.
json stored_as(std::string_view format, json config = plain("mixtral")) {
  config["quantization_config"] = json::parse(format);
  return config;
}
/// compressed-tensors: groups by name, in JSON.
json in_groups(const std::string& groups) {
  return stored_as(R"({"quant_method": "compressed-tensors", "config_groups": {)" + groups + "}}");
}
/// A group of a target at so many bits a float and a scale a weight.
std::string group_of(const std::string& target, int bits) {
  const auto of =
      json{{"targets", {target}},
           {"weights", {{"num_bits", bits}, {"type", "float"}, {"strategy", "tensor"}}}};
  return "\"" + target + " at " + std::to_string(bits) + "\": " + of.dump();
}

TEST_F(model_configs, fp8_has_a_scale_a_block_and_leaves_some_parts_out) {
  const auto resident = [&](const json& config, const std::string& left_out) {
    const auto format = R"({"quant_method": "fp8", "weight_block_size": [16, 10], "ignore": [)";
    return resident_bytes(stored_as(format + left_out + "]}", config));
  };
  const auto whole = resident(plain("mixtral"), "");
  EXPECT_EQ(resident(plain("mixtral"), R"("model.layers.0.self_attn.q_proj")"),
            whole + 2 * 32 * 32 - (32 * 32 + 4 * 2 * 4))
      << "its queries alone, which have 2 x 4 blocks";
  const auto shared = plain("mixtral", R"({"shared_intermediate_size": 8})");
  EXPECT_EQ(resident(shared, ""), whole + 3 * (plain_expert / 2 + 4 * (2 * 4 + 2)));
  EXPECT_EQ(resident(shared, R"("mlp.shared_experts")"), whole + 3 * plain_expert);
  EXPECT_EQ(resident(latent("deepseek_v3"), "") - resident(latent("deepseek_v2"), ""), 2U * 4 * 4)
      << "corrections in F32";
}

TEST_F(model_configs, other_quantisations_are_refused) {
  for (const auto* format : {R"({"quant_method": "bitsandbytes"})", R"({"bits": 4})", "{}",
                             R"({"quant_method": "compressed-tensors"})",
                             R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"})"})
    refuse(stored_as(format),
           {"key 'quantization_config'", "accepted: awq, gptq", "or --weights, such as 4.5bpw",
            "or by hand --expert-bytes and --resident-bytes"});
  for_each_case(R"(
{"quant_method": "fp8", "weight_block_size": [128]} => key 'weight_block_size' | is [128] | [rows, columns]
{"quant_method": "fp8", "weight_block_size": [0, 128]} => key 'weight_block_size' | is [0, 128]
7 => key 'quantization_config' | is 7 | an object
{"quant_method": "awq"} => key 'bits' | is missing
{"quant_method": "gptq", "bits": 4, "group_size": 0} => key 'group_size' | is 0 | 1..65536
{"quant_method": "auto-round", "bits": 4, "data_type": "gguf"} => 'data_type' is 'gguf'
{"quant_method": "compressed-tensors", "config_groups": {"g": 3}} => key 'config_groups' | 'g' is no object
{"quant_method": "fp8", "ignored_layers": ["model.layers.0.mlp.experts.1"]} => some experts of a layer and not)",
                [&](auto format, auto part) { refuse(stored_as(format), {part}); });
  for_each_case(R"(
{"strategy": "group"} => key 'num_bits' | is missing
{"num_bits": 4, "strategy": "token"} => key 'strategy' | is 'token'
{"num_bits": 8, "strategy": "block"} => key 'block_structure' | is missing)",
                [&](const std::string& weights, auto part) {
                  refuse(in_groups(R"("g": {"weights": )" + weights + "}"), {part});
                });
}

TEST_F(model_configs, quantised_experts_have_their_scales_and_zeros) {
  expect_each(stored_as(R"({"quant_method": "awq", "bits": 4, "group_size": 8})"), R"(
384 bytes of elements, 192 of scales, 48 of zero points:
{} => expert 624;
{"quantization_config": {"zero_point": false}} => expert 576;
{"quantization_config": {"bits": null, "w_bit": 4, "group_size": null, "q_group_size": 8}} => expert 624;
{"quantization_config": {"quant_method": "auto-round"}} => expert 624;
768 of elements, 3 of a group or of a row, 288 of indices of the inputs:
{"quantization_config": {"quant_method": "gptq", "bits": 8}} => expert 1344;
{"quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": -1}} => expert 1200;
A scale of a byte for 16 elements of a row, two of F32 a weight:
{"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}} => expert 472;
Two scales of F32 a weight, or one a row:
{"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}} => expert 792;
{"quantization_config": {"quant_method": "fp8"}} => expert 792;
{"quantization_config": {"quant_method": "fbgemm_fp8"}} => expert 960;
17 bytes a block of 32, which a row of 8 fills:
{"quantization_config": {"quant_method": "mxfp4"}} => expert 816;)");
}

TEST_F(model_configs, compressed_tensors_by_strategy) {
  const auto grouped =
      json::parse(R"({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 8})");
  for_each_case(R"(
384 bytes of elements, 192 of scales; 48 of zero points; 288 of indices of the inputs:
{} => expert 576;
{"symmetric": false} => expert 624;
{"actorder": "group"} => expert 864;
768 of elements; a scale of 2 bytes a row, of 4 a weight, of 4 a block:
{"num_bits": 8, "strategy": "channel"} => expert 864;
{"num_bits": 8, "type": "float", "strategy": "tensor"} => expert 780;
{"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 10]} => expert 788;
NVFP4 as above; MXFP4 with a scale of a byte a group:
{"type": "float", "strategy": "tensor_group", "group_size": 16} => expert 472;
{"type": "float"} => expert 480;)",
                [&](const auto& patch, const auto& part) {
                  const auto weights = patched(grouped, patch).dump();
                  EXPECT_THAT(told(describe(in_groups(R"("g": {"weights": )" + weights + "}"))),
                              HasSubstr(part))
                      << patch;
                });
}

TEST_F(model_configs, groups_of_compressed_tensors_go_by_their_targets) {
  const auto config =
      in_groups(group_of("re:.*experts.*", 4) + ", " + group_of("re:.*self_attn.*", 8));
  EXPECT_EQ(resident_bytes(config), plain_resident - plain_attention + 3 * 4 * 4)
      << "a byte an element less, and a scale for each of four weights";
  expect_each(config, R"(
384 bytes of elements, and a scale of F32 a weight:
{} => expert 396; | compressed-tensors: experts at 4 bits | compressed-tensors: attention at 8 bits)");
}

TEST_F(model_configs, what_quantisation_leaves_out_is_plain) {
  const auto leaving_out = [](const std::string& names, const char* key = "ignore") {
    return stored_as(R"({"quant_method": "modelopt", "quant_algo": "FP8", ")" + std::string(key) +
                     "\": [" + names + "]}");
  };
  const auto all = resident_bytes(leaving_out(""));
  constexpr std::uint64_t attention_layer = plain_attention / 3 - 4 * 8;  // saved by FP8
  for (const auto* key : {"ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"})
    EXPECT_EQ(resident_bytes(leaving_out(R"("re:.*self_attn.*")", key)), all + 3 * attention_layer)
        << key;
  const auto one = leaving_out(R"("model.layers.1.self_attn*", "lm_head", "mlp.gate")");
  EXPECT_EQ(resident_bytes(one), all + attention_layer);
  expect_each(one, "{} => leaves the attention out in 1 of 3 layers");
  expect_each(leaving_out(R"("re:.*layers.0.*experts.*")"), "{} => expert 1536, 792, 792;");
  expect_each(leaving_out(R"("re:^(?!.*experts).*")"),
              "{} => 1 of the patterns that FP8 leaves out are not understood");
  const auto gptq = stored_as(R"({"quant_method": "gptq", "bits": 4, "group_size": 8})");
  for (const auto* rest :
       {R"("dynamic": {"-:.*self_attn.*": {}})",
        R"("modules_in_block_to_quantize": [["block_sparse_moe.experts.0.w1"]])"})
    EXPECT_EQ(resident_bytes(gptq, R"({"quantization_config": {)" + std::string(rest) + "}}"),
              plain_resident)
        << rest;
}

/// GPTQ or AutoRound of 4 bits in groups of 8, with overrides by module under a key.
json overridden(const char* method, const char* key, const json& rules) {
  return stored_as(
      json{{"bits", 4}, {"group_size", 8}, {"quant_method", method}, {key, rules}}.dump());
}
// Experts have 384 bytes of elements, 192 of scales and 48 of zero points; 144 more where down has 8 bits, 288 more
// where the others have, and 288 of indices in GPTQ.
TEST_F(model_configs, bits_by_module_are_counted) {
  const auto plain_rules = overridden("auto-round", "extra_config", json::object());
  json attention;
  for (const auto* layer : {"0", "1", "2"})
    for (const auto* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
      attention[fmt::format("model.layers.{}.self_attn.{}", layer, name)] = {
          {"bits", 16}, {"data_type", "float"}};
  const auto without_attention = overridden("auto-round", "extra_config", attention);
  const auto wide_down =
      overridden("auto-round", "extra_config", {{".*experts.*down_proj", {{"bits", 8}}}});
  const auto wide_others = overridden(
      "gptq", "dynamic",
      {{R"(+:model\.layers\.(?:0|2)\.mlp\.experts\.\d+\.(up|gate)_proj)", {{"bits", 8}}}});
  expect_each(plain_rules, "{} => expert 624;");
  expect_each(without_attention, "{} => expert 624; | AutoRound leaves the attention out");
  expect_each(wide_down, R"(
{} => expert 768; | AutoRound: experts (down) at 8 bits, a scale of 16 bits a group of 8 and a zero point of 8)");
  expect_each(wide_others, "{} => expert 1200, 912, 1200;");
  EXPECT_EQ(resident_bytes(without_attention), plain_resident);
  EXPECT_EQ(resident_bytes(wide_down), resident_bytes(plain_rules));
}

TEST_F(model_configs, bits_of_each_expert_are_counted_if_all_agree) {
  const auto with = [](int experts) {
    json rules;
    for (int e = 0; e < experts; ++e)
      rules[fmt::format("model.layers.1.mlp.experts.{}.down_proj", e)] = {{"bits", 8}};
    return overridden("auto-round", "extra_config", rules);
  };
  expect_each(with(4), "{} => expert 624, 768, 624;");
  refuse(with(3), {"key 'quantization_config'", "some experts of a layer and not to others"});
}

TEST_F(model_configs, bits_by_module_that_are_not_understood_are_refused_by_name) {
  for_each_case(R"(
{"+:.*\\.18\\..*gate_proj": {"bits": 8}} => key 'quantization_config' | the .safetensors files beside it
{"+:.*\\.18\\..*gate_proj": {"bits": 8}} => 'dynamic' names '+:.*\.18\..*gate_proj' | not understood
{"+:.*down_proj": {"bits": 8}, "+:.*experts.*": {"bits": 3}} => 'dynamic' names | another pattern also sets
{"+:.*layers.1.*down_proj": {"bits": 8}, "+:.*down_proj": {"bits": 3}} => one module twice
{"+:.*down_proj": {"bits": 8, "super_bits": 6}} => 'dynamic' has 'super_bits'
{"+:.*down_proj": {"bits": 8, "data_type": "gguf"}} => 'dynamic' has the data_type 'gguf'
{"+:.*down_proj": 8} => key 'dynamic' | '+:.*down_proj' is no object)",
                [&](const auto& rules, const auto& part) {
                  refuse(overridden("gptq", "dynamic", json::parse(rules)), {part});
                });
}

TEST_F(model_configs, groups_of_compressed_tensors_may_name_projections_and_layers) {
  const auto base = group_of("Linear", 4);
  expect_each(in_groups(base + ", " + group_of("re:.*layers.0.*down_proj$", 8)),
              "{} => expert 524, 396, 396;");
  refuse(in_groups(group_of("re:(?=.*experts).*", 4)),
         {"'config_groups' names 're:(?=.*experts).*'", "not understood"});
  refuse(in_groups(base + ", " + group_of("Linear", 8)),
         {"'config_groups' has two groups of all linear layers"});
  expect_each(in_groups(base), R"(
{"quantization_config": {"sparsity_config": {"format": "dense"}}} => expert 396;)");
  refuse_each(in_groups(base), R"(
{"quantization_config": {"sparsity_config": {"format": "sparse-24-bitmask"}}} => 'sparsity_config' is of sparse weights
{"quantization_config": {"sparsity_config": {"format": 3}}} => key 'format' | is 3 | a string)");
}

TEST_F(model_configs, keys_of_a_quantisation_that_are_not_read_are_named) {
  const auto gptq = stored_as(R"({"quant_method": "gptq", "bits": 4, "desc_act": false})");
  EXPECT_THAT(told(describe(gptq)), testing::Not(HasSubstr("not read")));
  expect_each(gptq, R"(
{"quantization_config": {"hyper_bits": {"q": 3}, "meta": {}}} => not read of the quantization_config: 'hyper_bits')");
}

/// A weight of [out, in] in MLX's groups of 32 columns.
constexpr std::uint64_t affine(std::uint64_t out, std::uint64_t in, std::uint64_t bits) {
  return out * in * bits / 8 + out * (in / 32) * 4;
}

TEST_F(model_configs, mlx_declares_its_quantisation_under_a_key_of_its_own) {
  const auto config = plain("mixtral", R"({"quantization": {"group_size": 32, "bits": 4}})");
  constexpr auto attention = 2 * affine(32, 32, 4) + 2 * affine(16, 32, 4);
  constexpr auto resident =
      2 * affine(10, 32, 4) + 2 * plain_norms + 3 * (attention + affine(4, 32, 4));
  for (const auto& [patch, bytes] : std::vector<std::pair<const char*, std::uint64_t>>{
           {"{}", resident},
           {R"({"quantization_config": {"group_size": 32, "bits": 4}})", resident},
           {R"({"quantization": {"model.layers.1.mlp.gate": {"group_size": 32, "bits": 8}}})",
            resident + affine(4, 32, 8) - affine(4, 32, 4)},
           {R"({"quantization": {"lm_head": {"bits": 8}}})",
            resident + affine(10, 32, 8) - affine(10, 32, 4)},
           {R"({"quantization": {"model.layers.2.self_attn.o_proj": false}})",
            resident + 2 * 32 * 32 - affine(32, 32, 4)}})
    EXPECT_EQ(resident_bytes(config, patch), bytes) << patch;
  expect_each(config, R"(
Down has 8 columns and no whole group, so that it stays plain, in 512 bytes:
{} => expert 832; | MLX: linear layers, routers, embeddings and head at 4
{"quantization": {"mode": "mxfp4"}} => expert 784;)");
  refuse_each(config, R"(
{"quantization": {"model.blocks.1.foo": false}} => 'quantization' names 'model.blocks.1.foo' | not understood
{"quantization": {"mode": "k"}} => key 'mode' | is 'k'
{"quantization": "4bit"} => key 'quantization' | is "4bit")");
}

TEST_F(model_configs, the_bits_of_the_cache_are_those_that_the_checkpoint_declares) {
  const auto fp8 = stored_as(R"({"quant_method": "modelopt", "quant_algo": "FP8"})");
  expect_each(fp8, R"(
{"quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}} => cache 3 x 32;
{"quantization_config": {"kv_cache_scheme": null}} => cache 3 x 64;
{"quantization_config": {"kv_cache_quant_algo": "NVFP4"}} => cache 3 x 18;
{"quantization_config": {"kv_cache_quant_algo": "INT3"}} => cache 3 x 64; | 'kv_cache_quant_algo' is 'INT3', which)");
  const auto out =
      describe(patched(fp8, R"({"quantization_config": {"kv_cache_quant_algo": "FP8"}})"));
  EXPECT_EQ(out.kv_bits, 8);
  EXPECT_THAT(told(out), HasSubstr("cache 3 x 32;"));
  EXPECT_THAT(out.notes, Contains("KV cache of 8 bits an element, as the checkpoint's "
                                  "'kv_cache_quant_algo' says; --kv-bits sets another"));
  const auto hand = told(lab::describe_model(folder_.file("config.json"), {.kv_bits = 16}));
  EXPECT_THAT(hand, HasSubstr("cache 3 x 64;"));
  EXPECT_THAT(hand, HasSubstr("16 bits an element by hand; the checkpoint's"));
}

TEST_F(model_configs, rope_scaling_extends_the_context) {
  expect_each(plain("mixtral"), R"(
{"rope_parameters": {"rope_type": "yarn", "factor": 4}} => context 400; notes: rope scaling 'yarn', 4 times 100
{"rope_scaling": {"full_attention": {"type": "yarn", "factor": 3}, "sliding_attention": {}}} => context 300;)");
  const auto scaled = plain("mixtral", R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0,
"original_max_position_embeddings": 80}})");
  expect_each(scaled, R"(
{} => rope scaling 'yarn', 4 times 80 tokens: the longest context is 320; max_position_embeddings is 100
{"rope_scaling": {"rope_type": null, "type": "yarn", "factor": 2.5}} => context 200;
{"rope_scaling": {"original_max_position_embeddings": 25}} => context 100;
{"rope_scaling": {"rope_type": "linear"}} => context 400;
{"rope_scaling": {"rope_type": "dynamic"}} => context 400;
{"rope_scaling": {"rope_type": "default"}} => context 100;
{"rope_scaling": {"rope_type": "longrope"}} => context 100;
{"rope_scaling": {"rope_type": "su"}} => context 100;
{"rope_scaling": {"rope_type": "llama3"}} => context 100;
{"rope_scaling": {"rope_type": "mrope"}} => context 100;
{"rope_scaling": {"rope_type": "spiral"}} => context 100; notes: rope scaling 'spiral' is not known)");
  refuse_each(scaled, R"(
{"rope_scaling": {"factor": -1}} => key 'factor' | a number above 0
{"rope_scaling": {"factor": 1e12}} => key 'rope_scaling' | makes a context of
{"rope_scaling": 7} => key 'rope_scaling' | is 7 | an object)");
}

TEST_F(model_configs, a_quantisation_file_beside_the_config_is_read) {
  folder_.write("hf_quant_config.json",
                R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"NVFP4",)"
                R"("group_size":16,"exclude_modules":["lm_head","*self_attn*"]}})");
  const auto out = describe(plain("mixtral"));
  EXPECT_THAT(told(out), HasSubstr("expert 472;"));
  EXPECT_EQ(out.memory.resident_bytes, plain_resident);
  auto nothing = plain("mixtral");
  nothing["quantization_config"] = nullptr;
  EXPECT_THAT(told(describe(nothing)), HasSubstr("expert 472;"));
  folder_.write("hf_quant_config.json", R"({"quantization": {"kv_cache_quant_algo": "FP8"}})");
  const auto fp8 = stored_as(R"({"quant_method": "fp8"})");
  expect_each(fp8, R"(
{} => expert 792; cache 3 x 32;
{"quantization_config": {"kv_cache_scheme": {"num_bits": 16}}} => expert 792; cache 3 x 64;)");
  folder_.write("hf_quant_config.json", "{");
  refuse(plain("mixtral"), {"hf_quant_config.json", "ends before its JSON does"});
}

TEST_F(model_configs, windows_by_list_by_question_and_of_all_layers) {
  const auto config = plain("mixtral", R"({"sliding_window": 10, "moe_intermediate_size": 8,
"n_shared_experts": 0, "shared_expert_intermediate_size": 0})");
  expect_each(config, R"(
{} => cache 3 x 64 in 10;
{"sliding_window": 100} => cache 3 x 64; | sliding window 100 never binds: the longest context is 100
{"sliding_window": 0} => cache 3 x 64;
{"layer_types": ["full_attention", "sliding_attention", "full_attention"]} => cache 2 x 64, 1 x 64 in 10;
{"model_type": "gpt_oss"} => cache 1 x 64, 2 x 64 in 10;
{"model_type": "dots1", "max_window_layers": 1} => cache 1 x 64, 2 x 64 in 10;
{"model_type": "qwen2_moe", "max_window_layers": 2} => cache 3 x 64;
{"model_type": "qwen2_moe", "max_window_layers": 2, "use_sliding_window": true} => cache 2 x 64, 1 x 64 in 10;
{"model_type": "qwen3_moe", "max_window_layers": 2} => cache 3 x 64;
{"model_type": "qwen3_moe", "max_window_layers": 2, "use_sliding_window": true} => cache 2 x 64, 1 x 64 in 10;)");
  refuse_each(plain("mixtral"), R"(
{"model_type": "gpt_oss"} => key 'sliding_window' | is missing
{"model_type": "gpt_oss", "layer_types": [1, 2, 3]} => key 'layer_types' | entry 0 is 1 | strings
{"layer_types": ["full_attention"]} => key 'layer_types' | has 1 entries | one a layer (3)
{"layer_types": ["full_attention", "spiral", "full_attention"]} => entry 1 is 'spiral' | full_attention, attention
{"num_hidden_layers": 1, "layer_types": ["linear_attention"]} => key 'layer_types' | no keys of their mixer | by hand --kv
{"layer_types": ["full_attention", "sliding_attention", "full_attention"]} => key 'sliding_window' | is missing)");
}

TEST_F(model_configs, a_hybrid_is_counted_as_its_keys_say) {
  // Six layers: attention in layers 1 and 4, experts in odd ones.
  const auto hybrid = plain("jamba", R"({"num_hidden_layers": 6, "attn_layer_period": 3,
"attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 5,
"mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 2})");
  expect_each(hybrid, R"(
{} => 3 layers | cache 2 x 64; state 4096;
{"sliding_window": 10} => cache 2 x 64 in 10; | sliding window 10 of 2 layers)");
  constexpr std::uint64_t inner = 64;
  const auto bytes = resident_bytes(hybrid);
  EXPECT_EQ(resident_bytes(hybrid, R"({"mamba_conv_bias": false})"), bytes - 2 * 4 * inner);
  EXPECT_EQ(resident_bytes(hybrid, R"({"mamba_proj_bias": true})"),
            bytes + 2 * 4 * (2 * inner + 32));
  EXPECT_EQ(resident_bytes(hybrid, R"({"mamba_dt_rank": "auto"})"), bytes) << "32 / 16";
  refuse_without(hybrid, {"attn_layer_period", "attn_layer_offset", "expert_layer_period",
                          "expert_layer_offset", "mamba_d_state", "mamba_d_conv", "mamba_expand",
                          "mamba_dt_rank"});
  refuse_each(hybrid, R"(
{"mamba_expand": 16777216} => key 'mamba_expand' | makes a width of 536870912 | at most 16777216)");
}

TEST_F(model_configs, gated_delta_layers_keep_a_state_and_no_cache) {
  auto config = plain("qwen3_next", R"({"num_hidden_layers": 8, "moe_intermediate_size": 8,
"shared_expert_intermediate_size": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
"linear_key_head_dim": 5, "linear_value_head_dim": 3, "linear_conv_kernel_dim": 4})");
  constexpr std::uint64_t keys = 10, values = 12, convolved = 2 * keys + values;
  constexpr std::uint64_t delta =
      32 * (convolved + values) + 32 * 8 + convolved * 4 + 2 * 4 + 3 + 32 * values;
  constexpr std::uint64_t full = 32 * 2 * 32 + 2 * 32 * 16 + 32 * 32 + 2 * 16;
  constexpr std::uint64_t rest = plain_embeddings + 17 * 32 + 8 * (4 * 32 + 3 * 32 * 8 + 32);
  EXPECT_EQ(resident_bytes(config), 2 * (rest + 6 * delta + 2 * full));
  config["layer_types"] = std::vector<std::string>(8, "linear_attention");
  config["layer_types"][0] = "full_attention";
  expect_each(config, R"(
A layer keeps 4 heads of 5 x 3, and three of 32 that are convolved:
{} => cache 1 x 64; state 2184;
{"layer_types": null} => cache 2 x 64; state 1872; | a convolution state of 3)");
}

TEST_F(model_configs, lightning_layers_keep_a_matrix_a_head) {
  // In two layers, or in the odd one alone: two heads of 16 x 16.
  expect_each(plain("minimax_text_01"), R"(
{"attn_type_list": [0, 0, 1]} => cache 1 x 64; state 2048;
{"model_type": "minimax"} => cache 2 x 64; state 1024;
{"model_type": "mixtral", "attn_type_list": [1, 1, 1]} => cache 3 x 64; state 0;)");
  refuse_each(plain("minimax_text_01"), R"(
{} => key 'layer_types' | is missing | attn_type_list
{"attn_type_list": [0, 2, 1]} => key 'attn_type_list' | entry 1 is 2 | 0 or 1
{"model_type": "minimax_m2", "attn_type_list": [1, 0, 1]} => has recurrent layers, and no keys of their mixer)");
}

TEST_F(model_configs, llama4_has_experts_in_some_layers_and_chunks_in_most) {
  const auto config = plain("llama4_text", R"({"num_hidden_layers": 8, "intermediate_size_mlp": 20,
"attention_chunk_size": 10, "interleave_moe_layer_step": 2})");
  // Every fourth layer sees all; a list comes before a step.
  expect_each(config, R"(
{} => 4 layers | cache 2 x 64, 6 x 64 in 10;
{"interleave_moe_layer_step": null} => 8 layers
{"no_rope_layers": [1, 1, 1, 1, 1, 1, 1, 0]} => cache 1 x 64, 7 x 64 in 10;
{"moe_layers": [0, 1, 2]} => 3 layers)");
  refuse_each(config, R"(
{"no_rope_layers": [1, 1]} => key 'no_rope_layers' | has 2 entries)");
}

TEST_F(model_configs, ernie_has_a_first_and_a_last_layer_with_experts) {
  const auto config = plain("ernie4_5_moe", R"({"num_experts": null, "num_experts_per_tok": null,
"moe_num_experts": 4, "moe_k": 2, "num_hidden_layers": 8, "moe_intermediate_size": 8,
"moe_num_shared_experts": 2})");
  expect_each(config, R"(
{"moe_layer_start_index": 3} => 5 layers
{"moe_layer_end_index": 5} => 6 layers
{"moe_layer_end_index": -1} => 8 layers
{"moe_layer_interval": 3} => 2 layers)");
  EXPECT_EQ(resident_bytes(config, R"({"tie_word_embeddings": false})"),
            resident_bytes(config) + 2 * 10 * 32);
  expect_each(config, R"(
{"use_bias": true} => 'use_bias' is true: such biases are not counted)");
}

TEST_F(model_configs, hunyuan_has_a_list_for_every_number_of_its_experts) {
  const auto config = plain("hunyuan_v1_moe", R"({"num_experts_per_tok": null,
"num_experts": [4, 4, 4], "moe_topk": [2, 2, 2], "moe_intermediate_size": [8, 8, 8],
"num_shared_expert": [1, 1, 1]})");
  // A shared expert, norms over a head, routers in F32.
  constexpr auto resident = plain_resident + 3 * (plain_expert + 2 * 2 * 16 + 2 * 4 * 32);
  const auto shares_caches = R"({"use_cla": true, "cla_share_factor": 2})";
  EXPECT_EQ(resident_bytes(config), resident);
  EXPECT_EQ(resident_bytes(config, shares_caches), resident - 2 * 2 * 32 * 16);
  expect_each(config, R"(
{} => 3 layers of 4 experts, top 2; expert 1536;
{"moe_intermediate_size": null} => expert 1536;
{"use_cla": true, "cla_share_factor": 2} => cache 2 x 64;)");
  refuse_each(config, R"(
{"moe_topk": [2, 2, 1]} => key 'moe_topk' | entry 2 is 1, entry 0 is 2 | one and the same in every layer
{"num_experts": ["a"]} => key 'num_experts' | entry 0 is)");
}

TEST_F(model_configs, a_known_model_inside_an_unknown_one_is_read_and_noted) {
  const json outer = {{"model_type", "some_vl"}, {"text_config", plain("mixtral")}};
  EXPECT_EQ(resident_bytes(outer), plain_resident);
  expect_each(outer, R"(
{} => notes: 'some_vl' around mixtral: what stands beside)");
}

TEST_F(model_configs, a_vision_tower_stands_beside_its_language_model) {
  json config = {{"model_type", "kimi_vl"},
                 {"torch_dtype", "float16"},
                 {"text_config", latent("deepseek_v3", R"({"torch_dtype": null})")}};
  config["vision_config"] = json::parse(R"({"hidden_size": 6, "intermediate_size": 9,
"num_hidden_layers": 2, "patch_size": 3, "init_pos_emb_height": 4, "init_pos_emb_width": 5})");
  const auto out = describe(config);
  EXPECT_THAT(told(out), HasSubstr("cache 3 x 32;"));
  EXPECT_THAT(out.notes, testing::Not(Contains(HasSubstr("torch_dtype"))));
  EXPECT_EQ(resident_bytes(config, R"({"vision_config": {"merge_kernel_size": [1, 1]}})"),
            out.memory.resident_bytes - 2 * (24 * 24 + 24 + 24 * 32 - 6 * 6 - 6 - 6 * 32));
  refuse_each(config, R"(
{"vision_config": {"hidden_size": null}} => key 'vision_config.hidden_size' | is missing
{"vision_config": {"merge_kernel_size": [2]}} => key 'vision_config.merge_kernel_size')");
  expect_each(config, R"(
{"vision_config": null} => 'kimi_vl' around deepseek_v3: what stands beside)");
}

TEST_F(model_configs, an_unknown_type_is_read_by_its_keys) {
  const auto config = plain("some_moe");
  EXPECT_EQ(resident_bytes(config), plain_resident);
  expect_each(config, R"(
{} => 3 layers of 4 experts, top 2; expert 1536; cache 3 x 64; state 0; context 100;
{} => 'some_moe' is no known model_type: it is read by its keys; taken as usual: experts as wide as an MLP, experts of
{"model_type": null} => '' is no known model_type
{"moe_intermediate_size": 4, "use_qk_norm": true} => taken as usual: experts of three matrices
{"num_experts": null, "ffn_config": {"moe_num_experts": 4}} => 3 layers of 4 experts
{"num_key_value_heads": null, "attn_config": {"kv_n_heads": 2}} => cache 3 x 128;)");
  const json inner = {{"model_type", "a"},
                      {"llm_config", {{"model_type", "b"}, {"text_config", config}}}};
  expect_each(inner, R"({} => 'a' around some_moe: what stands beside)");
}

TEST_F(model_configs, a_missing_figure_may_come_by_hand) {
  const auto by_hand = [&](const json& config, const lab::model_by_hand& hand) {
    const auto path = folder_.write("config.json", config.dump()).string();
    return told(lab::describe_model(path, {.hand = hand}));
  };
  auto config = plain("some_moe", R"({"intermediate_size": null})");
  refuse(config, {"key 'moe_intermediate_size'", "or by hand --expert-bytes"});
  EXPECT_THAT(by_hand(config, {.expert_bytes = 100}),
              testing::AllOf(HasSubstr("expert 100; cache 3 x 64;"),
                             HasSubstr("size of an expert by hand: 100 B; none was read")));
  config = plain("some_moe", R"({"num_attention_heads": null, "num_experts_per_tok": null})");
  refuse(config, {"key 'num_experts_per_tok'", "by hand --top-k"});
  config["num_experts_per_tok"] = 2;
  refuse(config,
         {"key 'num_attention_heads'", "by hand --kv-bytes-per-token and --resident-bytes"});
  EXPECT_THAT(by_hand(config, {.kv_bytes_per_token = 7, .resident_bytes = 9}),
              HasSubstr("expert 1536; cache 1 x 7;"));
  const auto unknown = stored_as(R"({"quant_method": "bitsandbytes"})");
  EXPECT_THAT(by_hand(unknown, {.expert_bytes = 100, .resident_bytes = 9}),
              HasSubstr("expert 100; cache 3 x 64;"));
}

TEST_F(model_configs, a_dense_model_is_refused) {
  refuse_each(plain("mixtral"), R"(
{"num_experts": null, "num_experts_per_tok": null} => has none of num_experts, num_local_experts, n_routed_experts | a dense model
{"num_experts": 0} => key 'num_experts' | a dense model has no experts to page | 2 or more
{"num_experts": 1} => key 'num_experts' | a dense model has no experts to page | 2 or more)");
}

TEST_F(model_configs, wrong_values_name_their_key) {
  for (const std::string key :
       {"hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads",
        "num_key_value_heads", "num_experts", "num_experts_per_tok", "intermediate_size",
        "max_position_embeddings"})
    for_each_case(R"(
"many" => is "many" | an integer in
-1 => is -1 | an integer in
2.5 => is 2.5 | an integer in
true => is true | an integer in
1099511627776 => is 1099511627776 | an integer in
[1, 2] => entry 1 is 2, entry 0 is 1
{} => is an object)",
                  [&](const auto& value, const auto& part) {
                    auto config = plain("mixtral");
                    config[key] = json::parse(value);
                    refuse(config, {"key '" + key + "'", part});
                  });
  refuse_without(plain("mixtral"),
                 {"hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads",
                  "num_experts_per_tok", "intermediate_size"});
  refuse_each(plain("mixtral"), R"(
{"attention_bias": 1} => key 'attention_bias' | is 1 | true or false
{"tie_word_embeddings": 1} => key 'tie_word_embeddings' | is 1 | true or false
{"lm_head_bias": 1} => key 'lm_head_bias' | is 1 | true or false
{"mlp_only_layers": 3} => key 'mlp_only_layers' | is 3 | an array of integers
{"mlp_only_layers": [0, "x"]} => key 'mlp_only_layers' | entry 1 is "x"
{"num_hidden_layers": null, "num_hiden_layers": 3} => 'num_hidden_layers' | is missing (there is 'num_hiden_layers')
{"num_experts_per_tok": 5} => top_k = 5, accepted: 1..4
{"model_type": "qwen2_moe", "moe_intermediate_size": 8} => key 'shared_expert_intermediate_size' | is missing)");
}

TEST_F(model_configs, models_too_large_for_any_memory_are_refused) {
  refuse_each(plain("mixtral"), R"(
{"hidden_size": 16777216, "intermediate_size": 16777216, "num_experts": 4000} => all_expert_bytes = 18446744073709551615
{"hidden_size": 1048576, "num_attention_heads": 16777216, "head_dim": 16777216} => resident_bytes = )");
}

TEST_F(model_configs, what_is_no_config_is_refused) {
  refuse_text("", {"config.json", "ends before its JSON does"});
  refuse_text("{\"model_type\": \"\xff\"}", {"is not JSON here", "UTF-8"});
  refuse_text(std::string((16U << 20U) + 1, ' '), {"has 16777217 bytes", "up to 16777216"});
}

TEST_F(model_configs, files_of_another_kind_are_refused) {
  const auto text = folder_.write("notes.txt", "hello").string();
  expect_refused([&] { (void)lab::describe_model(folder_.path().string()); },
                 {"holds neither config.json nor .safetensors"});
  expect_refused([&] { (void)lab::describe_model(text); },
                 {"notes.txt", "is of no known kind", ".gguf"});
  const auto named = folder_.write("small.json", plain("mixtral").dump()).string();
  EXPECT_EQ(lab::describe_model(named).memory.name, "small");
}

/// The attention, router, norms and experts of a layer of plain().
void add_layer(tensors_of& tensors, int layer) {
  const auto name = "model.layers." + std::to_string(layer) + ".";
  for (const auto& [part, shape] : std::vector<std::pair<const char*, std::vector<std::uint64_t>>>{
           {"self_attn.q_proj", {32, 32}},
           {"self_attn.k_proj", {16, 32}},
           {"self_attn.v_proj", {16, 32}},
           {"self_attn.o_proj", {32, 32}},
           {"mlp.gate", {4, 32}},
           {"input_layernorm", {32}},
           {"post_attention_layernorm", {32}}})
    tensors.push_back({name + part + ".weight", "BF16", shape});
  for (int e = 0; e < 4; ++e)
    for (const auto* part : {"w1", "w2", "w3"})
      tensors.push_back(
          {name + "block_sparse_moe.experts." + std::to_string(e) + "." + part + ".weight",
           "BF16",
           {8, 32}});
}
/// All of plain(), or of a model of more layers.
tensors_of plain_tensors(int layers = 3) {
  tensors_of tensors = {{"model.embed_tokens.weight", "BF16", {10, 32}},
                        {"lm_head.weight", "BF16", {10, 32}},
                        {"model.norm.weight", "BF16", {32}}};
  for (int l = 0; l < layers; ++l) add_layer(tensors, l);
  return tensors;
}
bool has_part(const stored_tensor& t, std::string_view part) {
  return t.name.find(part) != t.name.npos;
}
/// All of plain() but tensors with one of these parts in their names.
tensors_of plain_without(const std::vector<std::string>& parts) {
  auto tensors = plain_tensors();
  for (const auto& part : parts)
    std::erase_if(tensors, [&](const auto& t) { return has_part(t, part); });
  return tensors;
}

class stored_models : public model_configs {
 protected:
  [[nodiscard]] lab::model_description folder() const {
    auto out = lab::describe_model(folder_.path().string());
    support::expect_blocks_add_up(out.memory);
    return out;
  }
  void refuse_folder(std::initializer_list<std::string_view> parts) const {
    expect_refused([&] { (void)folder(); }, parts);
  }
  void refuse_stored(const tensors_of& tensors,
                     std::initializer_list<std::string_view> parts) const {
    write(tensors);
    refuse_folder(parts);
  }
  void write_config(const json& config) const { folder_.write("config.json", config.dump()); }
  void write(const tensors_of& tensors) const {
    folder_.write("model.safetensors", stored(tensors));
  }
};

TEST_F(stored_models, the_headers_say_what_the_config_says) {
  write_config(plain("mixtral"));
  const auto by_config = folder();
  write(plain_tensors());
  const auto out = folder();
  EXPECT_THAT(out.source, HasSubstr("config.json and the headers of 1 .safetensors file"));
  expect_same_memory(out, by_config);
  EXPECT_EQ(out.memory.name, folder_.path().filename());
}

TEST_F(stored_models, the_config_has_the_shape_and_the_headers_have_the_bytes) {
  write_config(stored_as(R"({"quant_method": "compressed-tensors"})",
                         plain("mixtral", R"({"sliding_window": 10})")));
  auto tensors = plain_tensors();
  for (auto& t : tensors)
    if (has_part(t, ".experts.")) t.dtype = "F8_E4M3";
  for (int e = 0; e < 4; ++e)
    tensors.push_back(
        {fmt::format("model.layers.1.block_sparse_moe.experts.{}.scale", e), "F32", {3}});
  write(tensors);
  const auto out = folder();
  EXPECT_THAT(told(out), StartsWith("3 layers of 4 experts, top 2; expert 768, 780, 768; "
                                    "cache 3 x 64 in 10;"));
  EXPECT_EQ(out.memory.resident_bytes, plain_resident);
}

TEST_F(stored_models, stacked_experts_are_divided_and_shared_ones_are_resident) {
  write_config(plain("mixtral", R"({"num_hidden_layers": 1})"));
  tensors_of tensors = {{"model.layers.0.self_attn.k_proj.weight", "BF16", {16, 32}},
                        {"model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", {4, 16, 2, 8}},
                        {"model.layers.0.mlp.experts.down_proj_bias", "BF16", {4, 32}},
                        {"model.layers.0.mlp.shared_experts.up_proj.weight", "BF16", {4, 32}}};
  write(tensors);
  const auto m = folder().memory;
  EXPECT_THAT(m.experts.expert_bytes, ElementsAre(16 * 2 * 8 + 32 * 2));
  EXPECT_EQ(m.resident_bytes, 2U * 16 * 32 + 2 * 4 * 32);
  tensors.push_back({"model.layers.0.mlp.experts.extra", "BF16", {5, 32}});
  refuse_stored(tensors, {"layer 0, 'extra'", "is of 5 experts", "4, as elsewhere"});
  tensors.back().shape = {};
  write(tensors);
  EXPECT_EQ(folder().memory.resident_bytes, m.resident_bytes + 2) << "a scalar is of no expert";
}

TEST_F(stored_models, several_files_are_found_by_their_index_or_by_their_names) {
  write_config(plain("mixtral"));
  const auto all = plain_tensors();
  const auto half = all.begin() + 20;
  const auto part = folder_.write("model-00001-of-00002.safetensors", stored({all.begin(), half}));
  refuse_folder({"'model-00002-of-00002.safetensors' is missing", "all 2 parts"});
  expect_refused([&] { (void)lab::describe_model(part.string()); }, {"-00002.safetensors' is mis"});
  folder_.write("model-00002-of-00002.safetensors", stored({half, all.end()}));
  expect_same_memory(lab::describe_model(part.string()), folder());
  EXPECT_EQ(folder().memory.resident_bytes, plain_resident);
  EXPECT_THAT(folder().source, HasSubstr("the headers of 2 .safetensors files"));
  folder_.write("other.safetensors", stored({{"x", "BF16", {4}}}));
  refuse_folder({"holds 3 .safetensors files", "all 2 parts, and no other"});

  folder_.write("model.safetensors.index.json",
                R"({"weight_map": {"c": "model-00001-of-00002.safetensors",
"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})");
  EXPECT_EQ(folder().memory.resident_bytes, plain_resident) << "what the index does not list";
  expect_same_memory(lab::describe_model(folder_.file("model.safetensors.index.json")), folder());
  for_each_case(R"(
{"weight_map": {"a": "../x.safetensors"}} => key 'weight_map' | holds '../x.safetensors' | file name
{"weight_map": {"a": 7}} => key 'weight_map' | holds no file name
{"weight_map": {}} => key 'weight_map' | is missing or empty
{ => model.safetensors.index.json: ends before its JSON does)",
                [&](auto index, auto part_of_it) {
                  folder_.write("model.safetensors.index.json", index);
                  refuse_folder({part_of_it});
                });
  folder_.write("model.safetensors.index.json",
                R"({"weight_map": {"a": "model-00003-of-00003.safetensors"}})");
  EXPECT_THAT(folder().notes, ElementsAre("1 of 1 .safetensors files are missing, first "
                                          "model-00003-of-00003.safetensors: all sizes are those "
                                          "of config.json"));
  std::filesystem::remove(folder_.file("config.json"));
  refuse_folder({"1 of 1 .safetensors files are missing", "all, or a config.json beside"});
  write(all);
  EXPECT_EQ(folder().memory.resident_bytes, plain_resident) << "one whole file comes first";
}

TEST_F(stored_models, a_tensor_in_two_files_is_refused) {
  folder_.write("a.safetensors", stored(plain_tensors()));
  folder_.write("b.safetensors", stored({{"lm_head.weight", "BF16", {10, 32}}}));
  refuse_folder({"b.safetensors: tensor 'lm_head.weight': is in another file of the model"});
}

TEST_F(stored_models, headers_of_files_that_were_cut_are_enough) {
  write_config(plain("mixtral"));
  const auto by_config = folder();
  const auto whole = stored(plain_tensors());
  const auto header = whole.rfind('}') + 1;
  for (const auto size : {header, header + 92, whole.size() - 1}) {
    folder_.write("model.safetensors", whole.substr(0, size));
    const auto out = folder();
    expect_same_memory(out, by_config);
    EXPECT_THAT(out.notes, ElementsAre("1 of 1 .safetensors files is cut short by " +
                                       lab::size_text(whole.size() - size) +
                                       " in all: headers are enough for a plan"));
  }
  folder_.write("model.safetensors", whole.substr(0, header - 1));
  refuse_folder({"passes the file's end"});
}

TEST_F(stored_models, layers_past_the_last_one_are_not_counted) {
  write_config(plain("mixtral"));
  write(plain_tensors(4));
  EXPECT_EQ(folder().memory.resident_bytes, plain_resident);
  EXPECT_THAT(told(folder()), StartsWith("3 layers"));
  EXPECT_THAT(told(folder()), HasSubstr("1 layer from 3 on not counted: config.json ends before"));
}

TEST_F(stored_models, multi_token_prediction_is_not_counted) {
  write_config(plain("mixtral"));
  auto tensors = plain_tensors();
  tensors.push_back({"mtp.layers.0.mlp.experts.gate_up_proj", "BF16", {4, 8, 32}});
  write(tensors);
  EXPECT_EQ(folder().memory.resident_bytes, plain_resident);
  EXPECT_THAT(folder().notes,
              ElementsAre("tensors of multi-token prediction, 2 KiB, are not counted"));
}

TEST_F(stored_models, files_that_contradict_the_config_are_refused) {
  write_config(plain("mixtral"));
  for_each_case(R"(
layers.1.block_sparse_moe.experts => layer 1: has no experts | is a file missing?
layers.2. => layer 2: has no experts
layers.2.block_sparse_moe.experts.3. => layer 2, 'w1.weight': is of 3 experts | accepted: 4, as elsewhere
layers.2.block_sparse_moe.experts.2.w2 => layer 2, 'w2.weight': has expert 3 where 2 should be)",
                [&](auto missing, auto part) { refuse_stored(plain_without({missing}), {part}); });
  auto tensors = plain_tensors();
  tensors.back().shape = {7, 32};
  refuse_stored(tensors, {"layer 2, 'w3.weight': expert 3 has 448 bytes", "512, as expert 0"});
  write_config(plain("mixtral", R"({"first_k_dense_replace": 1})"));
  refuse_stored(plain_tensors(), {"layer 0: has experts", "what config.json says"});
}

TEST_F(stored_models, headers_alone_leave_out_what_they_do_not_say) {
  write(plain_tensors());
  const auto out = lab::describe_model(folder_.file("model.safetensors"));
  EXPECT_EQ(out.memory.name, "model");
  EXPECT_EQ(out.memory.resident_bytes, plain_resident);
  EXPECT_THAT(
      told(out),
      StartsWith("3 layers of 4 experts, top 1; expert 1536; cache 3 x 64; "
                 "state 0; context 0; notes: no config.json beside it: top-k is taken as 1"));
  expect_same_memory(folder(), out);

  tensors_of latent_one = {
      {"model.layers.0.mlp.experts.0.up_proj.weight", "BF16", {2}},
      {"model.layers.0.mlp.experts.1.up_proj.weight", "BF16", {2}},
      {"language_model.model.layers.0.self_attn.kv_a_proj_with_mqa.weight", "BF16", {20, 8}}};
  write(latent_one);
  EXPECT_THAT(told(folder()), HasSubstr("cache 1 x 40;"));
  latent_one.pop_back();
  refuse_stored(latent_one,
                {"has no k_proj and v_proj", "a config.json with the keys of its attention"});
  refuse_stored({{"x", "BF16", {3}}},
                {"has 0 routed experts in a layer", "its largest tensor is 'x'",
                 "layers.0.mlp.experts.0", "or by hand --layers"});
}

TEST_F(stored_models, weights_are_wished_with_and_without_a_config) {
  auto tensors = plain_tensors();
  for (auto& t : tensors)
    if (has_part(t, "experts.")) t.shape = {32, 32};
  const auto as = [&](const char* weights) {
    return lab::describe_model(folder_.path().string(), {.weights = weights});
  };
  for (const auto* weights : {"bf16", "Q8_0", "Q4_K_M", "IQ2_XS", "MXFP4", "fp8", "4.5bpw"}) {
    folder_.write("config.json", plain("mixtral", R"({"intermediate_size": 32})").dump());
    write(tensors);
    const auto by_config = as(weights);
    std::filesystem::remove(folder_.file("config.json"));
    const auto out = as(weights);
    EXPECT_EQ(out.memory.experts.expert_bytes, by_config.memory.experts.expert_bytes) << weights;
    // A mixture's routers have 32 bits.
    const auto routers = lab::is_llama_mixture(weights) ? 3U * 2 * 4 * 32 : 0U;
    EXPECT_EQ(out.memory.resident_bytes + routers, by_config.memory.resident_bytes) << weights;
    EXPECT_THAT(out.notes, Contains(HasSubstr("as released 6 KiB"))) << weights;
  }
  const auto refuse_as = [&](tensors_of others, std::string_view part) {
    write(others);
    expect_refused([&] { (void)as("Q8_0"); }, {part, "a config.json beside it"});
  };
  for (auto& t : tensors)
    if (has_part(t, "w1")) t.dtype = "U8";
  refuse_as(tensors, "w1.weight' is packed");
  tensors = plain_without({"experts"});
  tensors.push_back({"model.layers.0.moe.lora.weight", "BF16", {4, 8, 32}});
  refuse_as(tensors, "'model.layers.0.moe.lora.weight': has no known role");
  tensors.back().name = "model.layers.0.mlp.w13";
  refuse_as(tensors, "the roles of its experts are unknown");
}

TEST_F(stored_models, experts_under_the_names_of_other_writers_are_read) {
  write_config(plain("mixtral", R"({"num_hidden_layers": 1})"));
  const auto expect = [&](const char* expert, tensors_of tensors,
                          const std::string& prefix = "model.layers.") {
    for (auto& t : tensors) t.name = prefix + "0" + t.name;
    tensors.push_back({prefix + "0.self_attn.k_proj.weight", "BF16", {16, 32}});
    write(tensors);
    EXPECT_THAT(told(folder()), HasSubstr(expert)) << tensors.front().name;
  };
  expect("expert 144;", {{".mlp.switch_mlp.up_proj.weight", "F32", {4, 8, 4}},
                         {".mlp.switch_mlp.up_proj.scales", "BF16", {4, 8, 1}}});
  expect("expert 1536;", {{".block_sparse_moe.input_linear.weight", "BF16", {4, 16, 32}},
                          {".block_sparse_moe.output_linear.weight", "BF16", {4, 32, 8}},
                          {".shared_mlp.input_linear.weight", "BF16", {16, 32}}});
  for (const auto* prefix : {"layers.", "backbone.layers.", "model.language_model.layers.",
                             "language_model.model.layers."})
    expect("expert 1024;", {{".mlp.experts.gate_up_proj", "BF16", {4, 16, 32}}}, prefix);
  expect("expert 512;",
         {{".ffn.experts.mlp.w1", "BF16", {32, 32}}, {".ffn.router.layer.weight", "BF16", {4, 32}}},
         "transformer.blocks.");
  expect("expert 1536;", {{".moe.up_proj.weight", "BF16", {4, 8, 32}},
                          {".moe.gate_proj.weight", "BF16", {4, 8, 32}},
                          {".moe.down_proj.weight", "BF16", {4, 32, 8}},
                          {".moe.gate.weight", "F32", {4, 32}}});
  // The router has as many rows as these stacks have experts, and the third has fewer.
  expect("expert 1536;", {{".feed_forward.w13", "BF16", {4, 16, 32}},
                          {".feed_forward.w2", "BF16", {4, 32, 8}},
                          {".feed_forward.other", "BF16", {3, 32, 8}},
                          {".feed_forward.router.weight", "BF16", {4, 32}}});
  EXPECT_THAT(folder().notes, Contains(HasSubstr("experts under unknown names")));
  // No part of the decoder.
  refuse_stored({{"model.visual.blocks.0.mlp.experts.w", "BF16", {4, 8}}},
                {"its largest tensor is 'model.visual.blocks.0.mlp.experts.w'",
                 "layers.0.mlp.switch_mlp.up_proj.weight"});
}

TEST_F(stored_models, an_unknown_family_is_read_by_its_headers) {
  write_config(json::parse(R"({"model_type": "some_moe", "text_config": {
"model_type": "some_moe_text", "num_experts_per_tok": 2, "num_hidden_layers": 3,
"max_position_embeddings": 500}})"));
  write(plain_tensors(4));  // the fourth is one of multi-token prediction
  const auto out = folder();
  EXPECT_TRUE(out.top_k_is_known);
  EXPECT_EQ(out.memory.resident_bytes, plain_resident);
  EXPECT_THAT(told(out), StartsWith("3 layers of 4 experts, top 2; expert 1536; cache 3 x 64; "
                                    "state 0; context 500; notes: "));
  EXPECT_THAT(told(out),
              HasSubstr("'some_moe_text' is no known model_type: it is read by its keys"));
  write_config({{"model_type", "some_moe"}});
  EXPECT_FALSE(folder().top_k_is_known);
  EXPECT_THAT(folder().notes, Contains(HasSubstr("it is taken as 1 unless --top-k")));
  write_config(plain("some_moe"));
  write(plain_without({"layers.0.block_sparse_moe.experts"}));
  EXPECT_THAT(told(folder()), StartsWith("2 layers of 4 experts, top 2;")) << "as the headers say";
  write_config(plain("some_moe", R"({"num_attention_heads": null})"));
  refuse_stored(plain_without({"k_proj", "v_proj"}),
                {"has no k_proj and v_proj", "or by hand --kv-bytes-per-token"});
}

TEST_F(stored_models, one_packed_column_has_no_rows_to_count) {
  auto tensors = plain_tensors();
  for (auto& t : tensors)
    if (has_part(t, "k_proj") || has_part(t, "v_proj")) t.shape = {256, 1};
  write(tensors);
  refuse_folder({"has no k_proj and v_proj"});
}

TEST(tiny_model, folder_config_and_weights_agree) {
  const auto folder = std::filesystem::path(HOTSET_SOURCE_DIR) / "examples/data/tiny-moe";
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "examples/data/tiny-moe is not in this checkout";
  const auto by_config = lab::describe_model((folder / "config.json").string());
  EXPECT_EQ(told(by_config),
            "12 layers of 32 experts, top 4; expert 23040; cache 12 x 384; "
            "state 0; context 2048; notes: ");
  EXPECT_EQ(by_config.memory.resident_bytes, 1012416U);
  EXPECT_EQ(by_config.memory.name, "tiny-moe");
  expect_same_memory(lab::describe_model(folder.string()), by_config);
  expect_same_memory(lab::describe_model((folder / "model.safetensors").string()), by_config);
}

}  // namespace
}  // namespace hotset::model_description_test
