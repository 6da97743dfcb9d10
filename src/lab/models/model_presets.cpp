// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lab/models/hf_config.hpp"

namespace hotset::lab {
namespace {

/// Keys of a config that decide sizes, as a JSON merge patch of the config of another preset.
struct preset {
  std::string_view name;
  std::string_view base;  ///< empty: none
  std::string_view keys;
};
constexpr auto presets = std::to_array<preset>({
    {"olmoe-1b-7b", "",
     R"("model_type": "olmoe", "hidden_size": 2048, "num_hidden_layers": 16, "vocab_size":
50304, "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8,
"intermediate_size": 1024, "max_position_embeddings": 4096)"},
    {"mixtral-8x7b", "",
     R"("model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size":
32000, "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8,
"num_experts_per_tok": 2, "intermediate_size": 14336, "max_position_embeddings": 32768)"},
    {"mixtral-8x22b", "mixtral-8x7b",
     R"("hidden_size": 6144, "num_hidden_layers": 56, "num_attention_heads": 48,
"intermediate_size": 16384, "max_position_embeddings": 65536)"},
    {"qwen1.5-moe-a2.7b", "",
     R"("model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24, "vocab_size":
151936, "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4,
"moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
"max_position_embeddings": 8192)"},
    {"qwen3-30b-a3b", "",
     R"("model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "vocab_size":
151936, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
"max_position_embeddings": 40960)"},
    {"qwen3-coder-30b-a3b", "qwen3-30b-a3b", R"("max_position_embeddings": 262144)"},
    {"qwen3-235b-a22b", "qwen3-30b-a3b",
     R"("hidden_size": 4096, "num_hidden_layers": 94, "num_attention_heads": 64,
"moe_intermediate_size": 1536)"},
    {"qwen3-coder-480b-a35b", "qwen3-235b-a22b",
     R"("hidden_size": 6144, "num_hidden_layers": 62, "num_attention_heads": 96,
"num_key_value_heads": 8, "num_experts": 160, "moe_intermediate_size": 2560,
"max_position_embeddings": 262144)"},
    {"qwen3-next-80b-a3b", "",
     R"("model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "vocab_size":
151936, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
"num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
"shared_expert_intermediate_size": 512, "linear_num_key_heads": 16,
"linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
"linear_conv_kernel_dim": 4, "full_attention_interval": 4, "max_position_embeddings":
262144)"},
    {"qwen3.5-35b-a3b", "qwen3-next-80b-a3b",
     R"("model_type": "qwen3_5_moe_text", "num_hidden_layers": 40, "vocab_size": 248320,
"num_experts": 256, "num_experts_per_tok": 8, "mtp_num_hidden_layers": 1)"},
    {"qwen3.6-35b-a3b", "qwen3.5-35b-a3b", R"()"},
    {"qwen3.5-122b-a10b", "qwen3.5-35b-a3b",
     R"("hidden_size": 3072, "num_hidden_layers": 48, "num_attention_heads": 32,
"moe_intermediate_size": 1024, "shared_expert_intermediate_size": 1024,
"linear_num_value_heads": 64)"},
    {"qwen3.5-397b-a17b", "qwen3.5-122b-a10b",
     R"("hidden_size": 4096, "num_hidden_layers": 60, "num_experts": 512, "num_experts_per_tok":
10)"},
    {"phi-3.5-moe", "",
     R"("model_type": "phimoe", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size":
32064, "num_attention_heads": 32, "num_key_value_heads": 8, "attention_bias": true,
"lm_head_bias": true, "sliding_window": 131072, "num_local_experts": 16,
"num_experts_per_tok": 2, "intermediate_size": 6400, "max_position_embeddings": 131072)"},
    {"deepseek-v2-lite", "",
     R"("model_type": "deepseek_v2", "hidden_size": 2048, "num_hidden_layers": 27, "vocab_size":
102400, "num_attention_heads": 16, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
"qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64,
"num_experts_per_tok": 6, "n_shared_experts": 2, "moe_intermediate_size": 1408,
"intermediate_size": 10944, "first_k_dense_replace": 1, "max_position_embeddings":
163840)"},
    {"deepseek-v2", "deepseek-v2-lite",
     R"("hidden_size": 5120, "num_hidden_layers": 60, "num_attention_heads": 128, "q_lora_rank":
1536, "n_routed_experts": 160, "moe_intermediate_size": 1536, "intermediate_size": 12288)"},
    {"deepseek-v3", "deepseek-v2",
     R"("model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "vocab_size":
129280, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
"moe_intermediate_size": 2048, "intermediate_size": 18432, "first_k_dense_replace": 3,
"num_nextn_predict_layers": 1, "quantization_config": {"quant_method": "fp8",
"weight_block_size": [128, 128]})"},
    {"deepseek-v3.1", "deepseek-v3", R"()"},
    {"deepseek-v3.2", "deepseek-v3",
     R"("model_type": "deepseek_v32", "index_n_heads": 64, "index_head_dim": 128)"},
    {"deepseek-v4-flash", "",
     R"("model_type": "deepseek_v4", "hidden_size": 4096, "num_hidden_layers": 43, "vocab_size":
129280, "num_attention_heads": 64, "head_dim": 512, "q_lora_rank": 1024, "o_groups": 8,
"o_lora_rank": 1024, "index_n_heads": 64, "index_head_dim": 128, "sliding_window": 128,
"hc_mult": 4, "n_routed_experts": 256, "num_experts_per_tok": 6, "n_shared_experts": 1,
"moe_intermediate_size": 2048, "num_nextn_predict_layers": 1, "max_position_embeddings":
1048576, "expert_dtype": "fp4", "compress_ratios": [0, 0, 4, 128, 4, 128, 4, 128, 4,
128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4,
128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4], "quantization_config": {"quant_method":
"fp8", "weight_block_size": [128, 128]})"},
    {"deepseek-v4-pro", "deepseek-v4-flash",
     R"("hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "q_lora_rank":
1536, "o_groups": 16, "n_routed_experts": 384, "moe_intermediate_size": 3072,
"compress_ratios": [128, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4,
128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4,
128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4])"},
    {"kimi-vl-a3b", "",
     R"("model_type": "kimi_vl", "text_config": {"model_type": "deepseek_v3", "hidden_size":
2048, "num_hidden_layers": 27, "vocab_size": 163840, "num_attention_heads": 16,
"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
"n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2,
"moe_intermediate_size": 1408, "intermediate_size": 11264, "first_k_dense_replace": 1},
"vision_config": {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers":
27, "patch_size": 14, "init_pos_emb_height": 64, "init_pos_emb_width": 64,
"merge_kernel_size": [2, 2]})"},
    {"kimi-k2", "deepseek-v3",
     R"("model_type": "kimi_k2", "num_attention_heads": 64, "vocab_size": 163840,
"n_routed_experts": 384, "first_k_dense_replace": 1, "num_nextn_predict_layers": null,
"max_position_embeddings": 131072)"},
    {"kimi-k2.5", "kimi-k2",
     R"("max_position_embeddings": 262144, "quantization_config": {"quant_method":
"compressed-tensors", "config_groups": {"group_0": {"targets": ["Linear"], "weights":
{"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}}}, "ignore":
["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
"re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]})"},
    {"kimi-linear-48b-a3b", "",
     R"("model_type": "kimi_linear", "hidden_size": 2304, "num_hidden_layers": 27, "vocab_size":
163840, "num_attention_heads": 32, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
"qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts": 256, "num_experts_per_token":
8, "num_shared_experts": 1, "moe_intermediate_size": 1024, "intermediate_size": 9216,
"first_k_dense_replace": 1, "linear_attn_config": {"num_heads": 32, "head_dim": 128,
"short_conv_kernel_size": 4, "full_attn_layers": [4, 8, 12, 16, 20, 24, 27]},
"max_position_embeddings": 1048576)"},
    {"kimi-k3", "kimi-linear-48b-a3b",
     R"("hidden_size": 7168, "num_hidden_layers": 93, "num_attention_heads": 96, "q_lora_rank":
1536, "mla_use_output_gate": true, "num_experts": 896, "num_experts_per_token": 16,
"num_shared_experts": 2, "routed_expert_hidden_size": 3584, "moe_intermediate_size":
3072, "intermediate_size": 33792, "linear_attn_config": {"num_heads": 96,
"use_full_rank_gate": true, "full_attn_layers": [4, 8, 12, 16, 20, 24, 28, 32, 36, 40,
44, 48, 52, 56, 60, 64, 68, 72, 76, 80, 84, 88, 92, 93]}, "quantization_config":
{"quant_method": "compressed-tensors", "config_groups": {"group_0": {"targets":
["Linear"], "weights": {"num_bits": 4, "type": "float", "strategy": "group",
"group_size": 32}}}, "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
"re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]})"},
    {"jamba-v0.1", "",
     R"("model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size":
65536, "num_attention_heads": 32, "num_key_value_heads": 8, "attn_layer_period": 8,
"attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1,
"num_experts": 16, "num_experts_per_tok": 2, "intermediate_size": 14336,
"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256,
"max_position_embeddings": 262144)"},
    {"jamba-1.5-large", "jamba-v0.1",
     R"("hidden_size": 8192, "num_hidden_layers": 72, "num_attention_heads": 64,
"intermediate_size": 24576, "mamba_dt_rank": 512)"},
    {"minimax-m2", "",
     R"("model_type": "minimax_m2", "hidden_size": 3072, "num_hidden_layers": 62, "vocab_size":
200064, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128,
"num_local_experts": 256, "num_experts_per_tok": 8, "intermediate_size": 1536,
"use_mtp": true, "num_mtp_modules": 3, "max_position_embeddings": 196608,
"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]})"},
    {"minimax-m2.5", "minimax-m2", R"()"},
    {"minimax-m3", "minimax-m2",
     R"("model_type": "minimax_m3", "hidden_size": 6144, "num_hidden_layers": 60,
"num_attention_heads": 64, "num_key_value_heads": 4, "num_local_experts": 128,
"num_experts_per_tok": 4, "intermediate_size": 3072, "moe_intermediate_size": 3072,
"dense_intermediate_size": 12288, "shared_intermediate_size": 3072,
"first_k_dense_replace": 3, "index_n_heads": 4, "index_head_dim": 128,
"sparse_attention_config": {"sparse_attention_freq": [0, 0, 0]}, "use_mtp": false,
"num_nextn_predict_layers": 1, "max_position_embeddings": 1048576,
"quantization_config": null)"},
    {"gpt-oss-20b", "",
     R"("model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24, "vocab_size":
201088, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
"sliding_window": 128, "num_local_experts": 32, "num_experts_per_tok": 4,
"intermediate_size": 2880, "max_position_embeddings": 131072, "quantization_config":
{"quant_method": "mxfp4"})"},
    {"gpt-oss-120b", "gpt-oss-20b", R"("num_hidden_layers": 36, "num_local_experts": 128)"},
    {"llada-moe", "",
     R"("model_type": "llada", "hidden_size": 2048, "num_hidden_layers": 16, "vocab_size":
157184, "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8,
"expert_intermediate_size": 1024, "max_position_embeddings": 8192)"},
    {"glm-4.5-air", "",
     R"("model_type": "glm4_moe", "hidden_size": 4096, "num_hidden_layers": 46, "vocab_size":
151552, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
"attention_bias": true, "n_routed_experts": 128, "num_experts_per_tok": 8,
"n_shared_experts": 1, "moe_intermediate_size": 1408, "intermediate_size": 10944,
"first_k_dense_replace": 1, "num_nextn_predict_layers": 1, "max_position_embeddings":
131072)"},
    {"glm-4.5", "glm-4.5-air",
     R"("hidden_size": 5120, "num_hidden_layers": 92, "use_qk_norm": true, "n_routed_experts":
160, "moe_intermediate_size": 1536, "intermediate_size": 12288, "first_k_dense_replace":
3)"},
    {"glm-4.6", "glm-4.5", R"("max_position_embeddings": 202752)"},
    {"glm-4.7", "glm-4.6", R"()"},
    {"glm-4.7-flash", "deepseek-v2-lite",
     R"("model_type": "glm4_moe_lite", "num_hidden_layers": 47, "vocab_size": 154880,
"num_attention_heads": 20, "q_lora_rank": 768, "qk_nope_head_dim": 192, "v_head_dim":
256, "num_experts_per_tok": 4, "n_shared_experts": 1, "moe_intermediate_size": 1536,
"intermediate_size": 10240, "num_nextn_predict_layers": 1, "max_position_embeddings":
202752)"},
    {"glm-5", "glm-4.7-flash",
     R"("model_type": "glm_moe_dsa", "hidden_size": 6144, "num_hidden_layers": 78,
"num_attention_heads": 64, "q_lora_rank": 2048, "index_n_heads": 32, "index_head_dim":
128, "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
"intermediate_size": 12288, "first_k_dense_replace": 3)"},
    {"glm-5.1", "glm-5", R"()"},
    {"glm-5.2", "glm-5",
     R"("index_topk_freq": 4, "index_skip_topk_offset": 3, "max_position_embeddings": 1048576)"},
    {"llama-4-scout", "",
     R"("model_type": "llama4", "text_config": {"model_type": "llama4_text", "hidden_size":
5120, "num_hidden_layers": 48, "vocab_size": 202048, "num_attention_heads": 40,
"num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 16,
"num_experts_per_tok": 1, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
"attention_chunk_size": 8192, "max_position_embeddings": 10485760}, "vision_config":
{"hidden_size": 1408, "intermediate_size": 5632, "num_hidden_layers": 34, "image_size":
336, "patch_size": 14, "projector_input_dim": 4096, "projector_output_dim": 4096,
"vision_output_dim": 4096})"},
    {"llama-4-maverick", "llama-4-scout",
     R"("text_config": {"num_local_experts": 128, "interleave_moe_layer_step": 2,
"max_position_embeddings": 1048576})"},
    {"gemma-4-26b-a4b", "",
     R"("model_type": "gemma4_text", "hidden_size": 2816, "num_hidden_layers": 30, "vocab_size":
262144, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
"global_head_dim": 512, "num_global_key_value_heads": 2, "attention_k_eq_v": true,
"sliding_window": 1024, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size":
704, "intermediate_size": 2112, "max_position_embeddings": 262144)"},
    {"granite-4-h-small", "",
     R"("model_type": "granitemoehybrid", "hidden_size": 4096, "num_hidden_layers": 40,
"vocab_size": 100352, "tie_word_embeddings": true, "num_attention_heads": 32,
"num_key_value_heads": 8, "attn_layer_period": 10, "attn_layer_offset": 5,
"expert_layer_period": 1, "expert_layer_offset": 0, "num_local_experts": 72,
"num_experts_per_tok": 10, "intermediate_size": 768, "shared_intermediate_size": 1536,
"mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_d_conv": 4,
"max_position_embeddings": 131072)"},
    {"granite-4-h-tiny", "granite-4-h-small",
     R"("hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 4,
"num_local_experts": 64, "num_experts_per_tok": 6, "intermediate_size": 512,
"shared_intermediate_size": 1024, "mamba_n_heads": 48)"},
    {"lfm2-8b-a1b", "",
     R"("model_type": "lfm2_moe", "hidden_size": 2048, "num_hidden_layers": 24, "vocab_size":
65536, "num_attention_heads": 32, "num_key_value_heads": 8, "full_attn_idxs": [2, 6, 10,
14, 18, 21], "conv_L_cache": 3, "num_experts": 32, "num_experts_per_tok": 4,
"moe_intermediate_size": 1792, "intermediate_size": 7168, "num_dense_layers": 2,
"max_position_embeddings": 128000)"},
    {"nemotron-3-nano-30b-a3b", "",
     R"("model_type": "nemotron_h", "hidden_size": 2688, "hybrid_override_pattern":
"MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "vocab_size": 131072,
"num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
"n_routed_experts": 128, "num_experts_per_tok": 6, "n_shared_experts": 1,
"moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712,
"mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8,
"conv_kernel": 4, "max_position_embeddings": 262144)"},
    {"nemotron-3-super-120b-a12b", "nemotron-3-nano-30b-a3b",
     R"("hidden_size": 4096, "hybrid_override_pattern":
"MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
"n_routed_experts": 512, "num_experts_per_tok": 22, "moe_latent_size": 1024,
"moe_intermediate_size": 2688, "moe_shared_expert_intermediate_size": 5376,
"mamba_num_heads": 128)"},
    {"ernie-4.5-21b-a3b", "",
     R"("model_type": "ernie4_5_moe", "hidden_size": 2560, "num_hidden_layers": 28,
"vocab_size": 103424, "num_attention_heads": 20, "num_key_value_heads": 4,
"moe_num_experts": 64, "moe_k": 6, "moe_num_shared_experts": 2, "moe_intermediate_size":
1536, "intermediate_size": 12288, "moe_layer_start_index": 1, "max_position_embeddings":
131072)"},
    {"ling-flash-2.0", "",
     R"("model_type": "bailing_moe_v2", "hidden_size": 4096, "num_hidden_layers": 32,
"vocab_size": 157184, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim":
128, "use_qk_norm": true, "moe_router_enable_expert_bias": true, "num_experts": 256,
"num_experts_per_tok": 8, "num_shared_experts": 1, "moe_intermediate_size": 1024,
"intermediate_size": 9216, "first_k_dense_replace": 1, "max_position_embeddings": 32768)"},
    {"ling-mini-2.0", "ling-flash-2.0",
     R"("hidden_size": 2048, "num_hidden_layers": 20, "num_attention_heads": 16,
"moe_intermediate_size": 512, "intermediate_size": 5120)"},
    {"hunyuan-a13b", "",
     R"("model_type": "hunyuan_v1_moe", "hidden_size": 4096, "num_hidden_layers": 32,
"vocab_size": 128167, "tie_word_embeddings": true, "num_attention_heads": 32,
"num_key_value_heads": 8, "head_dim": 128, "num_experts": 64, "moe_topk": 8,
"num_shared_expert": 1, "moe_intermediate_size": 3072, "max_position_embeddings": 32768)"},
    {"dbrx", "",
     R"("model_type": "dbrx", "d_model": 6144, "n_layers": 40, "vocab_size": 100352, "n_heads":
48, "attn_config": {"kv_n_heads": 8}, "ffn_config": {"ffn_hidden_size": 10752,
"moe_num_experts": 16, "moe_top_k": 4}, "max_seq_len": 32768)"},
    {"dots.llm1", "",
     R"("model_type": "dots1", "hidden_size": 4096, "num_hidden_layers": 62, "vocab_size":
152064, "num_attention_heads": 32, "head_dim": 128, "n_routed_experts": 128,
"num_experts_per_tok": 6, "n_shared_experts": 2, "moe_intermediate_size": 1408,
"intermediate_size": 10944, "first_k_dense_replace": 1, "max_position_embeddings": 32768)"},
    {"step-3.5-flash", "",
     R"("model_type": "step3p5", "hidden_size": 4096, "num_hidden_layers": 45, "vocab_size":
128896, "num_attention_heads": 64, "num_attention_groups": 8, "head_dim": 128,
"attention_other_setting": {"num_attention_heads": 96}, "sliding_window_pattern":
"FSSS", "sliding_window": 512, "moe_num_experts": 288, "moe_top_k": 8,
"moe_intermediate_size": 1280, "share_expert_dim": 1280, "intermediate_size": 11264,
"num_nextn_predict_layers": 3, "max_position_embeddings": 262144)"},
    {"mimo-v2-flash", "",
     R"("model_type": "mimo_v2_flash", "hidden_size": 4096, "num_hidden_layers": 48,
"vocab_size": 152576, "num_attention_heads": 64, "num_key_value_heads": 4,
"swa_num_key_value_heads": 8, "head_dim": 192, "v_head_dim": 128,
"sliding_window_pattern": "FSSSSFSSSSSFSSSSSFSSSSSFSSSSSFSSSSSFSSSSSFSSSSSF",
"sliding_window": 128, "add_swa_attention_sink_bias": true, "n_routed_experts": 256,
"num_experts_per_tok": 8, "moe_intermediate_size": 2048, "intermediate_size": 16384,
"first_k_dense_replace": 1, "max_position_embeddings": 262144, "quantization_config":
{"quant_method": "fp8", "weight_block_size": [128, 128]})"},
    {"longcat-flash", "deepseek-v2",
     R"("model_type": "longcat_flash", "hidden_size": 6144, "num_hidden_layers": 28,
"vocab_size": 131072, "num_attention_heads": 64, "zero_expert_num": 256,
"n_routed_experts": 512, "num_experts_per_tok": 12, "n_shared_experts": null,
"moe_intermediate_size": 2048, "first_k_dense_replace": 0, "max_position_embeddings":
131072)"},
    {"solar-open-100b", "",
     R"("model_type": "solar_open", "hidden_size": 4096, "num_hidden_layers": 48, "vocab_size":
196608, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
"n_routed_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 1,
"moe_intermediate_size": 1280, "max_position_embeddings": 131072)"},
    {"trinity-mini", "",
     R"("model_type": "afmoe", "hidden_size": 2048, "num_hidden_layers": 32, "vocab_size":
200192, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
"sliding_window": 2048, "num_experts": 128, "num_experts_per_tok": 8,
"num_shared_experts": 1, "num_dense_layers": 2, "moe_intermediate_size": 1024,
"intermediate_size": 6144, "max_position_embeddings": 131072)"},
});

nlohmann::json config_of(const preset& one) {
  auto config = nlohmann::json{{"torch_dtype", "bfloat16"}};
  if (!one.base.empty()) config = config_of(*std::ranges::find(presets, one.base, &preset::name));
  config.merge_patch(nlohmann::json::parse(fmt::format("{{{}}}", one.keys)));
  return config;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& one : presets) names.emplace_back(one.name);
  return names;
}

std::string preset_config(std::string_view name) {
  const auto* const at = std::ranges::find(presets, name, &preset::name);
  return at == presets.end() ? std::string() : config_of(*at).dump();
}

}  // namespace hotset::lab
