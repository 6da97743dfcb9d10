// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "lab/models/hf_config.hpp"

namespace hotset::lab {
namespace {

using json = nlohmann::json;

/// Keys of a preset's numbers, in order.
constexpr const char* keys_of_numbers[] = {
    "hidden_size",         "num_hidden_layers",      "vocab_size",
    "num_attention_heads", "num_key_value_heads",    "head_dim",
    "num_experts",         "num_experts_per_tok",    "moe_intermediate_size",
    "intermediate_size",   "max_position_embeddings"};

/// Names with the keys that decide sizes: [name, model_type or a preset above, numbers, other keys]. A preset changes
/// the one above that it names. Number 0: as there, or no key.
constexpr std::string_view presets = R"json([
["olmoe-1b-7b", "olmoe", [2048, 16, 50304, 16, 0, 0, 64, 8, 0, 1024, 4096]],
["mixtral-8x7b", "mixtral", [4096, 32, 32000, 32, 8, 0, 8, 2, 0, 14336, 32768]],
["mixtral-8x22b", "mixtral-8x7b", [6144, 56, 0, 48, 0, 0, 0, 0, 0, 16384, 65536]],
["qwen1.5-moe-a2.7b", "qwen2_moe", [2048, 24, 151936, 16, 0, 0, 60, 4, 1408, 0, 8192],
{"shared_expert_intermediate_size": 5632}],
["qwen3-30b-a3b", "qwen3_moe", [2048, 48, 151936, 32, 4, 128, 128, 8, 768, 0, 40960]],
["qwen3-coder-30b-a3b", "qwen3-30b-a3b", [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 262144]],
["qwen3-235b-a22b", "qwen3-30b-a3b", [4096, 94, 0, 64, 0, 0, 0, 0, 1536]],
["qwen3-coder-480b-a35b", "qwen3-235b-a22b", [6144, 62, 0, 96, 8, 0, 160, 0, 2560, 0, 262144]],
["qwen3-next-80b-a3b", "qwen3_next", [2048, 48, 151936, 16, 2, 256, 512, 10, 512, 0, 262144],
{"shared_expert_intermediate_size": 512, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
"linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
"full_attention_interval": 4}],
["qwen3.5-35b-a3b", "qwen3-next-80b-a3b", [0, 40, 248320, 0, 0, 0, 256, 8],
{"model_type": "qwen3_5_moe_text", "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1}],
["qwen3.6-35b-a3b", "qwen3.5-35b-a3b", []],
["qwen3.5-122b-a10b", "qwen3.5-35b-a3b", [3072, 48, 0, 32, 0, 0, 0, 0, 1024],
{"shared_expert_intermediate_size": 1024, "linear_num_value_heads": 64}],
["qwen3.5-397b-a17b", "qwen3.5-122b-a10b", [4096, 60, 0, 0, 0, 0, 512, 10]],
["phi-3.5-moe", "phimoe", [4096, 32, 32064, 32, 8, 0, 16, 2, 0, 6400, 131072],
{"attention_bias": true, "lm_head_bias": true, "sliding_window": 131072}],
["deepseek-v2-lite", "deepseek_v2", [2048, 27, 102400, 16, 0, 0, 64, 6, 1408, 10944, 163840],
{"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
"n_shared_experts": 2, "first_k_dense_replace": 1}],
["deepseek-v2", "deepseek-v2-lite", [5120, 60, 0, 128, 0, 0, 160, 0, 1536, 12288],
{"q_lora_rank": 1536}],
["deepseek-v3", "deepseek-v2", [7168, 61, 129280, 0, 0, 0, 256, 8, 2048, 18432],
{"model_type": "deepseek_v3", "n_shared_experts": 1, "first_k_dense_replace": 3,
"num_nextn_predict_layers": 1, "quantization_config": {"quant_method": "fp8",
"weight_block_size": [128, 128]}}],
["deepseek-v3.1", "deepseek-v3", []],
["deepseek-v3.2", "deepseek-v3", [], {"model_type": "deepseek_v32", "index_n_heads": 64,
"index_head_dim": 128}],
["deepseek-v4-flash", "deepseek_v4", [4096, 43, 129280, 64, 0, 512, 256, 6, 2048, 0, 1048576],
{"q_lora_rank": 1024, "o_groups": 8, "o_lora_rank": 1024, "index_n_heads": 64,
"index_head_dim": 128, "sliding_window": 128, "hc_mult": 4, "n_shared_experts": 1,
"num_nextn_predict_layers": 1, "expert_dtype": "fp4", "compress_ratios": [0, 0, 4, 128, 4, 128, 4,
128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128,
4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4], "quantization_config": {"quant_method": "fp8",
"weight_block_size": [128, 128]}}],
["deepseek-v4-pro", "deepseek-v4-flash", [7168, 61, 0, 128, 0, 0, 384, 0, 3072],
{"q_lora_rank": 1536, "o_groups": 16, "compress_ratios": [128, 128, 4, 128, 4, 128, 4, 128, 4, 128,
4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4,
128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128,
4]}],
["kimi-vl-a3b", "kimi_vl", [], {"text_config": {"model_type": "deepseek_v3", "hidden_size": 2048,
"num_hidden_layers": 27, "vocab_size": 163840, "num_attention_heads": 16, "kv_lora_rank": 512,
"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64,
"num_experts_per_tok": 6, "n_shared_experts": 2, "moe_intermediate_size": 1408,
"intermediate_size": 11264, "first_k_dense_replace": 1}, "vision_config": {"hidden_size": 1152,
"intermediate_size": 4304, "num_hidden_layers": 27, "patch_size": 14, "init_pos_emb_height": 64,
"init_pos_emb_width": 64, "merge_kernel_size": [2, 2]}}],
["kimi-k2", "deepseek-v3", [0, 0, 163840, 64, 0, 0, 384, 0, 0, 0, 131072], {"model_type": "kimi_k2",
"first_k_dense_replace": 1, "num_nextn_predict_layers": null}],
["kimi-k2.5", "kimi-k2", [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 262144],
{"quantization_config": {"quant_method": "compressed-tensors",
"config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int",
"strategy": "group", "group_size": 32}}}, "ignore": ["lm_head", "re:.*self_attn.*",
"re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]}}],
["kimi-linear-48b-a3b", "kimi_linear", [2304, 27, 163840, 32, 0, 0, 256, 8, 1024, 9216, 1048576],
{"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
"num_shared_experts": 1, "first_k_dense_replace": 1, "linear_attn_config": {"num_heads": 32,
"head_dim": 128, "short_conv_kernel_size": 4, "full_attn_layers": [4, 8, 12, 16, 20, 24, 27]}}],
["kimi-k3", "kimi-linear-48b-a3b", [7168, 93, 0, 96, 0, 0, 896, 16, 3072, 33792],
{"q_lora_rank": 1536, "mla_use_output_gate": true, "num_shared_experts": 2,
"routed_expert_hidden_size": 3584, "linear_attn_config": {"num_heads": 96,
"use_full_rank_gate": true, "full_attn_layers": [4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52,
56, 60, 64, 68, 72, 76, 80, 84, 88, 92, 93]},
"quantization_config": {"quant_method": "compressed-tensors",
"config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float",
"strategy": "group", "group_size": 32}}}, "ignore": ["lm_head", "re:.*self_attn.*",
"re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]}}],
["jamba-v0.1", "jamba", [4096, 32, 65536, 32, 8, 0, 16, 2, 0, 14336, 262144],
{"attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1,
"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256}],
["jamba-1.5-large", "jamba-v0.1", [8192, 72, 0, 64, 0, 0, 0, 0, 0, 24576], {"mamba_dt_rank": 512}],
["minimax-m2", "minimax_m2", [3072, 62, 200064, 48, 8, 128, 256, 8, 0, 1536, 196608],
{"use_mtp": true, "num_mtp_modules": 3, "quantization_config": {"quant_method": "fp8",
"weight_block_size": [128, 128]}}],
["minimax-m2.5", "minimax-m2", []],
["minimax-m3", "minimax-m2", [6144, 60, 0, 64, 4, 0, 128, 4, 3072, 3072, 1048576],
{"model_type": "minimax_m3", "dense_intermediate_size": 12288, "shared_intermediate_size": 3072,
"first_k_dense_replace": 3, "index_n_heads": 4, "index_head_dim": 128,
"sparse_attention_config": {"sparse_attention_freq": [0, 0, 0]}, "use_mtp": false,
"num_nextn_predict_layers": 1, "quantization_config": null}],
["gpt-oss-20b", "gpt_oss", [2880, 24, 201088, 64, 8, 64, 32, 4, 0, 2880, 131072],
{"sliding_window": 128, "quantization_config": {"quant_method": "mxfp4"}}],
["gpt-oss-120b", "gpt-oss-20b", [0, 36, 0, 0, 0, 0, 128]],
["llada-moe", "llada", [2048, 16, 157184, 16, 0, 0, 64, 8, 1024, 0, 8192]],
["glm-4.5-air", "glm4_moe", [4096, 46, 151552, 96, 8, 128, 128, 8, 1408, 10944, 131072],
{"attention_bias": true, "n_shared_experts": 1, "first_k_dense_replace": 1,
"num_nextn_predict_layers": 1}],
["glm-4.5", "glm-4.5-air", [5120, 92, 0, 0, 0, 0, 160, 0, 1536, 12288], {"use_qk_norm": true,
"first_k_dense_replace": 3}],
["glm-4.6", "glm-4.5", [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 202752]],
["glm-4.7", "glm-4.6", []],
["glm-4.7-flash", "deepseek-v2-lite", [0, 47, 154880, 20, 0, 0, 0, 4, 1536, 10240, 202752],
{"model_type": "glm4_moe_lite", "q_lora_rank": 768, "qk_nope_head_dim": 192, "v_head_dim": 256,
"n_shared_experts": 1, "num_nextn_predict_layers": 1}],
["glm-5", "glm-4.7-flash", [6144, 78, 0, 64, 0, 0, 256, 8, 2048, 12288],
{"model_type": "glm_moe_dsa", "q_lora_rank": 2048, "index_n_heads": 32, "index_head_dim": 128,
"first_k_dense_replace": 3}],
["glm-5.1", "glm-5", []],
["glm-5.2", "glm-5", [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1048576], {"index_topk_freq": 4,
"index_skip_topk_offset": 3}],
["llama-4-scout", "llama4", [], {"text_config": {"model_type": "llama4_text", "hidden_size": 5120,
"num_hidden_layers": 48, "vocab_size": 202048, "num_attention_heads": 40, "num_key_value_heads": 8,
"head_dim": 128, "num_local_experts": 16, "num_experts_per_tok": 1, "intermediate_size": 8192,
"intermediate_size_mlp": 16384, "attention_chunk_size": 8192, "max_position_embeddings": 10485760},
"vision_config": {"hidden_size": 1408, "intermediate_size": 5632, "num_hidden_layers": 34,
"image_size": 336, "patch_size": 14, "projector_input_dim": 4096, "projector_output_dim": 4096,
"vision_output_dim": 4096}}],
["llama-4-maverick", "llama-4-scout", [], {"text_config": {"num_local_experts": 128,
"interleave_moe_layer_step": 2, "max_position_embeddings": 1048576}}],
["gemma-4-26b-a4b", "gemma4_text", [2816, 30, 262144, 16, 8, 256, 128, 8, 704, 2112, 262144],
{"global_head_dim": 512, "num_global_key_value_heads": 2, "attention_k_eq_v": true,
"sliding_window": 1024}],
["granite-4-h-small", "granitemoehybrid", [4096, 40, 100352, 32, 8, 0, 72, 10, 0, 768, 131072],
{"tie_word_embeddings": true, "attn_layer_period": 10, "attn_layer_offset": 5,
"expert_layer_period": 1, "expert_layer_offset": 0, "shared_intermediate_size": 1536,
"mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_d_conv": 4}],
["granite-4-h-tiny", "granite-4-h-small", [1536, 0, 0, 12, 4, 0, 64, 6, 0, 512],
{"shared_intermediate_size": 1024, "mamba_n_heads": 48}],
["lfm2-8b-a1b", "lfm2_moe", [2048, 24, 65536, 32, 8, 0, 32, 4, 1792, 7168, 128000],
{"full_attn_idxs": [2, 6, 10, 14, 18, 21], "conv_L_cache": 3, "num_dense_layers": 2}],
["nemotron-3-nano-30b-a3b", "nemotron_h", [2688, 0, 131072, 32, 2, 128, 128, 6, 1856, 0, 262144],
{"hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
"n_shared_experts": 1, "moe_shared_expert_intermediate_size": 3712, "mamba_num_heads": 64,
"mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4}],
["nemotron-3-super-120b-a12b", "nemotron-3-nano-30b-a3b", [4096, 0, 0, 0, 0, 0, 512, 22, 2688],
{"hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
"moe_latent_size": 1024, "moe_shared_expert_intermediate_size": 5376, "mamba_num_heads": 128}],
["ernie-4.5-21b-a3b", "ernie4_5_moe", [2560, 28, 103424, 20, 4, 0, 64, 6, 1536, 12288, 131072],
{"moe_num_shared_experts": 2, "moe_layer_start_index": 1}],
["ling-flash-2.0", "bailing_moe_v2", [4096, 32, 157184, 32, 4, 128, 256, 8, 1024, 9216, 32768],
{"use_qk_norm": true, "moe_router_enable_expert_bias": true, "num_shared_experts": 1,
"first_k_dense_replace": 1}],
["ling-mini-2.0", "ling-flash-2.0", [2048, 20, 0, 16, 0, 0, 0, 0, 512, 5120]],
["hunyuan-a13b", "hunyuan_v1_moe", [4096, 32, 128167, 32, 8, 128, 64, 8, 3072, 0, 32768],
{"tie_word_embeddings": true, "num_shared_expert": 1}],
["dbrx", "dbrx", [6144, 40, 100352, 48, 8, 0, 16, 4, 0, 10752, 32768]],
["dots.llm1", "dots1", [4096, 62, 152064, 32, 0, 128, 128, 6, 1408, 10944, 32768],
{"n_shared_experts": 2, "first_k_dense_replace": 1}],
["step-3.5-flash", "step3p5", [4096, 45, 128896, 64, 8, 128, 288, 8, 1280, 11264, 262144],
{"attention_other_setting": {"num_attention_heads": 96}, "sliding_window_pattern": "FSSS",
"sliding_window": 512, "share_expert_dim": 1280, "num_nextn_predict_layers": 3}],
["mimo-v2-flash", "mimo_v2_flash", [4096, 48, 152576, 64, 4, 192, 256, 8, 2048, 16384, 262144],
{"swa_num_key_value_heads": 8, "v_head_dim": 128,
"sliding_window_pattern": "FSSSSFSSSSSFSSSSSFSSSSSFSSSSSFSSSSSFSSSSSFSSSSSF", "sliding_window": 128,
"add_swa_attention_sink_bias": true, "first_k_dense_replace": 1,
"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}],
["longcat-flash", "deepseek-v2", [6144, 28, 131072, 64, 0, 0, 512, 12, 2048, 0, 131072],
{"model_type": "longcat_flash", "zero_expert_num": 256, "n_shared_experts": null,
"first_k_dense_replace": 0}],
["solar-open-100b", "solar_open", [4096, 48, 196608, 64, 8, 128, 128, 8, 1280, 0, 131072],
{"n_shared_experts": 1}],
["trinity-mini", "afmoe", [2048, 32, 200192, 32, 4, 128, 128, 8, 1024, 6144, 131072],
{"sliding_window": 2048, "num_shared_experts": 1, "num_dense_layers": 2}]
])json";

const json* find_preset(const json& all, std::string_view name) {
  const auto at = std::ranges::find_if(all, [&](const json& one) { return one[0] == name; });
  return at == all.end() ? nullptr : &*at;
}

json config_of(const json& all, const json& one) {
  const auto& of = one[1];
  const auto* const base = of == one[0] ? nullptr : find_preset(all, of.get<std::string>());
  auto config = base == nullptr ? json{{"torch_dtype", "bfloat16"}, {"model_type", of}}
                                : config_of(all, *base);
  for (std::size_t i = 0; i < one[2].size(); ++i)
    if (one[2][i] != 0) config[keys_of_numbers[i]] = one[2][i];
  if (one.size() > 3) config.merge_patch(one[3]);
  return config;
}

/// Presets whose numbers are the defaults of their classes.
constexpr std::array default_presets = {
    "mixtral-8x7b", "qwen1.5-moe-a2.7b", "qwen3-next-80b-a3b", "qwen3.5-35b-a3b", "deepseek-v3",
    "jamba-v0.1",   "minimax-m2",        "gpt-oss-120b",       "glm-4.5-air",     "glm-4.7-flash",
    "glm-5",        "llama-4-scout",     "ernie-4.5-21b-a3b",  "longcat-flash"};

/// Two names of one class: that of a language model may end in "_text".
bool is_same_class(std::string_view a, std::string_view b) {
  constexpr std::string_view text = "_text";
  for (auto* name : {&a, &b})
    if (name->ends_with(text)) name->remove_suffix(text.size());
  return a == b;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& one : json::parse(presets)) names.push_back(one[0]);
  return names;
}

std::string preset_config(std::string_view name) {
  const auto all = json::parse(presets);
  const auto* const found = find_preset(all, name);
  return found == nullptr ? std::string() : config_of(all, *found).dump();
}

std::string class_defaults(std::string_view type) {
  const auto all = json::parse(presets);
  auto out = json::object();
  for (const auto* name : default_presets) {
    auto config = config_of(all, *find_preset(all, name));
    if (config.contains("text_config")) config = json(config["text_config"]);
    if (!is_same_class(type, config["model_type"].get<std::string>())) continue;
    config.erase("max_position_embeddings");  // a preset's is longer
    for (const auto& [key, value] : config.items())
      if (value.is_number()) out[key] = value;
  }
  return out.dump();
}

}  // namespace hotset::lab
