// SPDX-License-Identifier: Apache-2.0
// Spellings of configs: where the language model stands, kinds of layers, heads, mixers and formats. Sizes by hand.
#include "lab/models/hf_config.hpp"

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model_cases.hpp"
#include "trace_samples.hpp"

namespace hotset::hf_config_test {
namespace {

using json = nlohmann::json;
using model_cases::for_each_case;
using model_cases::parameters_of;
using model_cases::told;
using testing::HasSubstr;

class hf_configs : public testing::Test {
 protected:
  /// Six layers, width 32, two heads of 16 and one of keys: a layer caches 64 bytes a token. Four experts of width 8.
  const json plain_ = json::parse(R"({"model_type": "some_moe", "torch_dtype": "bfloat16",
"hidden_size": 32, "num_hidden_layers": 6, "vocab_size": 10, "num_attention_heads": 2,
"num_key_value_heads": 1, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
"intermediate_size": 8, "max_position_embeddings": 100, "tie_word_embeddings": false})");

  [[nodiscard]] lab::model_description describe(std::string_view patch) const {
    auto config = plain_;
    config.merge_patch(json::parse(patch));
    return lab::describe_model(folder_.write("config.json", config.dump()).string());
  }
  void expect_each(std::string_view lines) const {
    for_each_case(lines, [&](const auto& patch, const auto& part) {
      EXPECT_THAT(told(describe(patch)), HasSubstr(part)) << patch;
    });
  }
  void refuse_each(std::string_view lines) const {
    for_each_case(lines, [&](const auto& patch, const auto& part) {
      trace_samples::expect_refused([&] { (void)describe(patch); }, {part});
    });
  }
  /// Weights that a patch adds.
  [[nodiscard]] std::int64_t more(std::string_view patch, std::string_view than = "{}") const {
    return static_cast<std::int64_t>(parameters_of(describe(patch))) -
           static_cast<std::int64_t>(parameters_of(describe(than)));
  }
  trace_samples::temporary_folder folder_;
};

TEST_F(hf_configs, layers_are_told_by_words_letters_numbers_and_periods) {
  expect_each(R"(
{"layer_types": ["sliding_attention", "attention", "hybrid_sliding", "full_attention", "hybrid", "hybrid", "hybrid"], "sliding_window": 9} => cache 4 x 64, 2 x 64 in 9;
{"sliding_window_pattern": "LG", "sliding_window": 9} => cache 3 x 64, 3 x 64 in 9;
{"sliding_window_pattern": 3, "sliding_window": 9} => cache 2 x 64, 4 x 64 in 9;
{"global_attn_every_n_layers": 2, "sliding_window_size": 9} => cache 3 x 64, 3 x 64 in 9;
{"hybrid_layer_pattern": [0, 1, 1, 1, 1, 1], "sliding_window": 9} => cache 1 x 64, 5 x 64 in 9;
{"sliding_window_layout": [0, 1, 1, 0, 1, 1], "sliding_window_size": 9} => cache 2 x 64, 4 x 64 in 9;
{"sliding_window": 9, "use_sliding_window": false} => cache 6 x 64;
{"model_type": "exaone_moe", "sliding_window": 9, "first_k_dense_replace": 0} => cache 1 x 64, 5 x 64 in 9;
{"full_attn_idxs": [1, 4], "conv_L_cache": 3} => cache 2 x 64; state 512;
{"hybrid_override_pattern": "MEM*E-", "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 2, "n_groups": 1, "conv_kernel": 4} => 2 layers of 4 experts | cache 1 x 64; state 688;)");
  refuse_each(R"(
{"hybrid_layer_pattern": [0, 1]} => key 'hybrid_layer_pattern' | has 2 entries
{"layer_types": ["a", "b", "c", "d", "e", "f"]} => entry 0 is 'a' | by hand --kv-bytes-per-token and --resident-bytes
{"layer_types": ["a"]} => has 1 entries)");
}

TEST_F(hf_configs, layers_with_experts_are_told_by_words_and_texts_too) {
  expect_each(R"(
{"mlp_layer_types": ["dense", "sparse", "moe", "dense", "sparse", "sparse"]} => 4 layers of
{"moe_layers_enum": "1,3,5"} => 3 layers of
{"num_dense_layers": 2} => 4 layers of
{"is_moe_layer": [false, false, true, true, true, true]} => 4 layers of
{"moe_layer_layout": [0, 1, 0, 1, 0, 1]} => 3 layers of
{"moe_layer_frequency": 3} => 2 layers of
{"model_type": "glm4_moe_lite", "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4} => 5 layers of)");
  refuse_each(R"(
{"mlp_layer_types": ["dense"]} => key 'mlp_layer_types' | has 1 entries
{"moe_layers_enum": "1;3"} => key 'moe_layers_enum' | numbers of layers)");
}

TEST_F(hf_configs, experts_are_counted_under_many_names) {
  expect_each(R"(
{"torch_dtype": "torch.float32"} => expert 3072;
{"num_experts": null, "n_experts": 3} => of 3 experts, top 2;
{"num_experts": null, "num_moe_experts": 3, "num_experts_per_tok": null, "moe_router_topk": 1} => of 3 experts, top 1;
{"num_experts": null, "moe_num_primary_experts": 3, "num_experts_per_tok": null, "moe_num_active_primary_experts": 1} => of 3 experts, top 1;
The second group of two is of images:
{"num_experts": null, "moe_num_experts": [4, 5], "moe_intermediate_size": [8, 2], "moe_layer_start_index": [1, 1]} => 5 layers of 4 experts, top 2; expert 1536; | experts of images are not counted (moe_num_experts 5, moe_intermediate_size 2,)");
  refuse_each(R"(
{"num_experts": null, "experts_of_a_layer": 3} => there is 'experts_of_a_layer', 'num_experts_per_tok' | or by hand --experts)");
  auto config = plain_;
  config.erase("num_experts");
  config.erase("num_hidden_layers");
  const auto path = folder_.write("config.json", config.dump()).string();
  trace_samples::expect_refused([&] { (void)lab::describe_model(path, {.hand = {.experts = 4}}); },
                                {"or by hand --layers"});
  EXPECT_THAT(told(lab::describe_model(path, {.hand = {.layers = 6, .experts = 4}})),
              HasSubstr("6 layers of 4 experts, top 2; expert 1536; cache 6 x 64;"));
}

TEST_F(hf_configs, with_differences_alone_take_the_defaults_of_their_class) {
  for (const auto& [type, preset] :
       std::to_array<std::pair<const char*, const char*>>({{"mixtral", "mixtral-8x7b"},
                                                           {"qwen2_moe", "qwen1.5-moe-a2.7b"},
                                                           {"qwen3_next", "qwen3-next-80b-a3b"},
                                                           {"qwen3_5_moe", "qwen3.5-35b-a3b"},
                                                           {"deepseek_v3", "deepseek-v3"},
                                                           {"jamba", "jamba-v0.1"},
                                                           {"minimax_m2", "minimax-m2"},
                                                           {"gpt_oss", "gpt-oss-120b"},
                                                           {"glm4_moe", "glm-4.5-air"},
                                                           {"glm4_moe_lite", "glm-4.7-flash"},
                                                           {"glm_moe_dsa", "glm-5"},
                                                           {"llama4_text", "llama-4-scout"},
                                                           {"ernie4_5_moe", "ernie-4.5-21b-a3b"},
                                                           {"longcat_flash", "longcat-flash"}})) {
    const json differences = {{"model_type", type}, {"torch_dtype", "bfloat16"}};
    const auto path = folder_.write("config.json", differences.dump()).string();
    const auto out = lab::describe_model(path),
               like = lab::describe_model(preset, {.weights = "bf16"});
    EXPECT_EQ(out.memory.kv, like.memory.kv) << type;
    EXPECT_EQ(out.memory.experts.keys(), like.memory.experts.keys()) << type;
    EXPECT_EQ(out.memory.experts.expert_bytes, like.memory.experts.expert_bytes) << type;
    EXPECT_EQ(out.memory.experts.top_k, like.memory.experts.top_k) << type;
    EXPECT_THAT(told(out), HasSubstr("taken from the defaults of its class: ")) << type;
  }
  const auto parameters = [&](const char* config) {
    return parameters_of(lab::describe_model(folder_.write("config.json", config).string()));
  };
  EXPECT_EQ(parameters(R"({"text_config": {"model_type": "deepseek_v3", "q_lora_rank": null}})") -
                parameters(R"({"text_config": {"model_type": "deepseek_v3"}})"),
            61ULL * (7168 * 24576 - 1536 * (7168 + 24576 + 1)))
      << "null is a value";
  // An alias of a key counts as the key; 512 experts of 2048 x 512.
  const auto wide = folder_.write("config.json", R"({"model_type": "qwen3_next",
"torch_dtype": "bfloat16", "num_local_experts": 99, "hidden_size": 1024, "num_hidden_layers": 4})");
  EXPECT_THAT(told(lab::describe_model(wide.string())),
              HasSubstr("4 layers of 99 experts, top 10; expert 3145728; cache 1 x 2048;"));
}

TEST_F(hf_configs, layers_have_heads_of_their_own) {
  // Three window layers of two heads of keys, and three full ones of one head of 32 that is key and value.
  expect_each(R"(
{"sliding_window_pattern": "SF", "sliding_window": 9, "swa_num_key_value_heads": 2, "swa_v_head_dim": 8} => cache 3 x 64, 3 x 96 in 9;
{"sliding_window_pattern": "SF", "sliding_window": 9, "global_head_dim": 32, "attention_k_eq_v": true} => cache 3 x 128, 3 x 64 in 9;
{"v_head_dim": 8} => cache 6 x 48;
{"use_mla": false, "kv_lora_rank": null, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0} => cache 6 x 64;
{"num_kv_shared_layers": 2} => cache 4 x 64;
{"num_key_value_heads": null, "num_attention_groups": 1} => cache 6 x 64;)");
  const auto windows = R"({"sliding_window_pattern": "SF", "sliding_window": 9})";
  EXPECT_EQ(more(R"({"sliding_window_pattern": "SF", "sliding_window": 9,
"attention_other_setting": {"num_attention_heads": 3}})",
                 windows),
            3 * 2 * 16 * 32)
      << "queries and output of a head in three layers";
  EXPECT_EQ(more(R"({"num_attention_heads_per_layer": [2, 2, 2, 2, 2, 4]})"), 2 * 2 * 16 * 32);
  EXPECT_EQ(more(R"({"attn_output_gate": true})"), 6 * 32 * 32);
  EXPECT_EQ(more(R"({"use_head_wise_attn_gate": true})"), 6 * 2 * 32);
  EXPECT_EQ(more(R"({"share_q_dim": 4})"), 6 * (4 * 32 + 4 + 32 * 4 - 32 * 32));
  EXPECT_EQ(more(R"({"num_kv_shared_layers": 1})"), -2 * 16 * 32);
  EXPECT_EQ(more(R"({"use_qk_norm": true})"), 6 * 2 * 16);
  EXPECT_EQ(more(R"({"use_qk_norm": true, "qk_norm_type": "per_layer"})"), 6 * (32 + 16));
  EXPECT_EQ(more(R"({"use_qkv_bias": true})"), 6 * (32 + 2 * 16));
}

TEST_F(hf_configs, experts_may_be_latent_ungated_beside_others_or_without_weights) {
  expect_each(R"(
{} => expert 1536;
{"moe_latent_size": 16} => expert 768;
{"mlp_hidden_act": "relu2"} => expert 1024;)");
  EXPECT_EQ(more(R"({"zero_expert_num": 2})"), 6 * 2 * 32);
  EXPECT_EQ(more(R"({"scoring_func": "sigmoid"})"), 6 * 4);
  EXPECT_EQ(more(R"({"use_routing_bias": true})"), 6 * 4);
  EXPECT_EQ(more(R"({"scoring_func": "sigmoid", "use_expert_bias": false})"), 0);
  EXPECT_EQ(more(R"({"num_shared_experts": 2})"), 6 * 2 * 3 * 32 * 8);
  EXPECT_EQ(more(R"({"num_shared_experts": 2, "moe_shared_expert_intermediate_size": 4})"),
            6 * 2 * 3 * 32 * 4);
  EXPECT_EQ(more(R"({"share_expert_dim": 4})"), 6 * 3 * 32 * 4);
  EXPECT_EQ(more(R"({"residual_moe": true})"), 6 * 3 * 32 * 8) << "an MLP beside the experts";
  EXPECT_EQ(more(R"({"ngram_vocab_size_ratio": 3})"), 3 * 10 * 32);
}

TEST_F(hf_configs, sparse_attention_caches_the_keys_of_its_index) {
  const auto latent = R"({"kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4,
"v_head_dim": 4, "q_lora_rank": 6})";
  const auto indexed = R"({"kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4,
"v_head_dim": 4, "q_lora_rank": 6, "index_head_dim": 4, "index_n_heads": 2})";
  EXPECT_THAT(told(describe(latent)), HasSubstr("cache 6 x 24;"));
  EXPECT_THAT(told(describe(indexed)), HasSubstr("cache 6 x 32;"));
  EXPECT_EQ(more(indexed, latent), 6 * (2 * 4 * 6 + 4 * 32 + 2 * 4 + 2 * 32));
  expect_each(R"(
{"index_head_dim": 4, "index_topk_freq": 2, "index_skip_topk_offset": 2} => cache 2 x 64, 4 x 72;
{"index_head_dim": 4, "indexer_types": ["full", "shared", "shared", "shared", "shared", "shared"]} => cache 5 x 64, 1 x 72;
{"index_head_dim": 4, "layer_types": ["full_attention", "minimax_m3_sparse", "indexed_attention", "full_attention", "indexed_attention", "indexed_attention"]} => cache 2 x 64, 4 x 72;
{"index_head_dim": 4, "index_topk_pattern": "FSSFSS"} => cache 4 x 64, 2 x 72;
{"sparse_attention_config": {"sparse_index_dim": 4, "sparse_attention_freq": [0, 0, 1, 1, 1, 1]}} => cache 2 x 64, 4 x 72;)");
}

// transformers 5.19 saves Gemma 4 so, and drops the keys of its full layers.
TEST_F(hf_configs, layers_have_heads_under_their_own_number) {
  constexpr auto* saved = R"({"model_type": "gemma4_text", "sliding_window": 9,
"num_key_value_heads": 2, "attention_k_eq_v": true, "per_layer_config": {"05": {"head_dim": 32, "num_key_value_heads": 1}}})";
  constexpr auto* hub = R"({"model_type": "gemma4_text", "sliding_window": 9,
"num_key_value_heads": 2, "attention_k_eq_v": true, "global_head_dim": 32, "num_global_key_value_heads": 1})";
  EXPECT_EQ(told(describe(saved)), told(describe(hub)));
  EXPECT_EQ(more(saved, hub), 0);
  EXPECT_EQ(
      more(R"({"per_layer_config": {"0": {"num_attention_heads": 4}, "6": {"head_dim": 1}}})"),
      2 * 2 * 16 * 32);
  refuse_each(R"(
{"per_layer_config": {"05": {"head_dim": 0}}} => key 'per_layer_config.head_dim')");
}

TEST_F(hf_configs, a_residual_mlp_is_as_wide_as_the_model) {
  EXPECT_EQ(more(R"({"use_residual": true, "intermediate_size": 24, "moe_intermediate_size": 8})"),
            6 * 3 * 32 * 32);
}

TEST_F(hf_configs, a_window_of_minus_one_is_none) {
  expect_each(R"(
{"sliding_window_size": -1} => cache 6 x 64;
{"sliding_window": -1} => cache 6 x 64;)");
}

TEST_F(hf_configs, states_may_be_in_float32) {
  // Mamba-2 in five layers: 32 x 2 elements, and three of 36 that are convolved.
  constexpr auto* mamba = R"({"attn_layer_period": 6, "attn_layer_offset": 0,
"expert_layer_period": 1, "expert_layer_offset": 0, "mamba_n_heads": 4, "mamba_d_head": "auto",
"mamba_expand": 1, "mamba_d_state": 2, "mamba_d_conv": 4})";
  EXPECT_THAT(told(describe(mamba)), HasSubstr("cache 1 x 64; state 1720;"));
  auto wide = json::parse(mamba);
  wide["mamba_ssm_dtype"] = "float32";
  EXPECT_THAT(told(describe(wide.dump())), HasSubstr("state 2360;"));
  EXPECT_THAT(told(describe(wide.dump())), HasSubstr("recurrent state in float32"));
  // Kimi Delta Attention in five: two heads of 4 x 4 in float32, as vLLM has it, and three of 24.
  expect_each(R"(
{"linear_attn_config": {"num_heads": 2, "head_dim": 4, "short_conv_kernel_size": 4, "full_attn_layers": [1]}} => cache 1 x 64; state 1360; | recurrent state in float32, with a convolution
Nemotron-H's is in float32, too, unless its config says otherwise:
{"model_type": "nemotron_h", "hybrid_override_pattern": "MEM*E-", "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 2, "n_groups": 1, "conv_kernel": 4} => state 944; | recurrent state in float32, with a convolution
{"model_type": "nemotron_h", "mamba_ssm_cache_dtype": "bfloat16", "hybrid_override_pattern": "MEM*E-", "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 2, "n_groups": 1, "conv_kernel": 4} => state 688; | recurrent state in the model's dtype)");
}

TEST_F(hf_configs, formats_by_module_and_of_experts) {
  expect_each(R"(
NVFP4 has 4 bits, a scale of 8 bits for 16 elements and 8 bytes a weight; MXFP8 a scale for 32; experts in MXFP4 fill blocks of 32:
{"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"model.layers.0.mlp.experts": {"quant_algo": "W4A16_NVFP4"}}}} => expert 472, 1536, 1536, 1536, 1536, 1536;
{"quantization_config": {"quant_method": "modelopt", "quant_algo": "MXFP8"}} => expert 816;
4 bits with two scales of 16 bits a row, and 16 bits an input; 8 bits with scales of 4 bytes; three blocks:
{"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}} => expert 624;
{"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}} => expert 960;
{"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}} => expert 780;
A byte for 32 elements of a row, or for 16 with 8 bytes a weight; as without a kernel's name:
{"quantization_config": {"quant_method": "auto-round", "bits": 4, "group_size": 32, "data_type": "mx_fp"}} => expert 432;
{"quantization_config": {"quant_method": "auto-round", "bits": 4, "group_size": 16, "data_type": "nv_fp"}} => expert 472;
{"quantization_config": {"quant_method": "intel/auto-round", "bits": 4, "group_size": 8}} => expert 624;
{"quantization_config": {"quant_method": "awq_marlin", "bits": 4, "group_size": 8}} => expert 624;
A layer by a range, and Gemma 4's 'mlp', which is beside its experts:
{"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 8, "modules_to_not_convert": ["model.layers.[1-5].mlp.experts"]}} => expert 624, 1536, 1536, 1536, 1536, 1536;
{"model_type": "gemma4", "sliding_window": 9, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 8, "modules_to_not_convert": ["model.layers.*.mlp*"]}} => expert 624;
{"expert_dtype": "fp4", "quantization_config": {"quant_method": "fp8"}} => expert 816;)");
  const auto attention = R"({"quantization_config": {"quant_method": "fp8", "ignore": [%]}})";
  const auto leaving_out = [&](std::string_view name) {
    std::string text = attention;
    return describe(text.replace(text.find('%'), 1, name)).memory.resident_bytes;
  };
  EXPECT_EQ(leaving_out(R"("model.layers.0.self_attn.indexers_proj")"), leaving_out(""))
      << "a part of the attention that is not quantised, and not all of it";
  EXPECT_GT(leaving_out(R"("model.layers.0.self_attn")"), leaving_out(""));
  refuse_each(R"(
{"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"lm_head": {"quant_algo": "X"}}}} => 'quantized_layers' gives 'lm_head' the format 'X'
{"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"lm_head": 3}}} => 'lm_head' is no object)");
}

}  // namespace
}  // namespace hotset::hf_config_test
