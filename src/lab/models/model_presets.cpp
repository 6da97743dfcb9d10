// SPDX-License-Identifier: Apache-2.0
#include "lab/models/model_presets.hpp"

#include <array>

namespace hotset::lab {
namespace {

constexpr std::array<model_preset, 13> presets{{
    {"olmoe-1b-7b", R"({
"model_type": "olmoe", "torch_dtype": "bfloat16",
"hidden_size": 2048, "num_hidden_layers": 16, "vocab_size": 50304,
"num_attention_heads": 16, "num_key_value_heads": 16, "attention_bias": false,
"num_experts": 64, "num_experts_per_tok": 8, "intermediate_size": 1024,
"max_position_embeddings": 4096, "tie_word_embeddings": false})"},
    {"mixtral-8x7b", R"({
"model_type": "mixtral", "torch_dtype": "bfloat16",
"hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 32000,
"num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": null,
"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 14336,
"max_position_embeddings": 32768, "tie_word_embeddings": false})"},
    {"qwen1.5-moe-a2.7b", R"({
"model_type": "qwen2_moe", "torch_dtype": "bfloat16",
"hidden_size": 2048, "num_hidden_layers": 24, "vocab_size": 151936,
"num_attention_heads": 16, "num_key_value_heads": 16,
"use_sliding_window": false, "sliding_window": 32768, "max_window_layers": 21,
"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
"shared_expert_intermediate_size": 5632, "intermediate_size": 5632,
"decoder_sparse_step": 1, "mlp_only_layers": [],
"max_position_embeddings": 8192, "tie_word_embeddings": false})"},
    {"qwen3-30b-a3b", R"({
"model_type": "qwen3_moe", "torch_dtype": "bfloat16",
"hidden_size": 2048, "num_hidden_layers": 48, "vocab_size": 151936,
"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "attention_bias": false,
"use_sliding_window": false, "sliding_window": null,
"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
"intermediate_size": 6144, "decoder_sparse_step": 1, "mlp_only_layers": [],
"max_position_embeddings": 40960, "tie_word_embeddings": false})"},
    {"phi-3.5-moe", R"({
"model_type": "phimoe", "torch_dtype": "bfloat16",
"hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 32064,
"num_attention_heads": 32, "num_key_value_heads": 8, "attention_bias": true, "lm_head_bias": true,
"sliding_window": 131072,
"num_local_experts": 16, "num_experts_per_tok": 2, "intermediate_size": 6400,
"max_position_embeddings": 131072, "tie_word_embeddings": false})"},
    {"deepseek-v2-lite", R"({
"model_type": "deepseek_v2", "torch_dtype": "bfloat16",
"hidden_size": 2048, "num_hidden_layers": 27, "vocab_size": 102400,
"num_attention_heads": 16, "num_key_value_heads": 16, "q_lora_rank": null, "kv_lora_rank": 512,
"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
"n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2,
"moe_intermediate_size": 1408, "intermediate_size": 10944,
"first_k_dense_replace": 1, "moe_layer_freq": 1,
"max_position_embeddings": 163840, "tie_word_embeddings": false})"},
    {"deepseek-v3", R"({
"model_type": "deepseek_v3", "torch_dtype": "bfloat16",
"hidden_size": 7168, "num_hidden_layers": 61, "vocab_size": 129280,
"num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
"n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
"moe_intermediate_size": 2048, "intermediate_size": 18432,
"first_k_dense_replace": 3, "moe_layer_freq": 1, "num_nextn_predict_layers": 1,
"max_position_embeddings": 163840, "tie_word_embeddings": false,
"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}})"},
    {"kimi-vl-a3b", R"({
"model_type": "kimi_vl",
"text_config": {"model_type": "deepseek_v3", "torch_dtype": "bfloat16",
"hidden_size": 2048, "num_hidden_layers": 27, "vocab_size": 163840,
"num_attention_heads": 16, "num_key_value_heads": 16, "q_lora_rank": null, "kv_lora_rank": 512,
"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
"n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2,
"moe_intermediate_size": 1408, "intermediate_size": 11264,
"first_k_dense_replace": 1, "moe_layer_freq": 1, "tie_word_embeddings": false},
"vision_config": {"model_type": "moonvit", "hidden_size": 1152, "intermediate_size": 4304,
"num_hidden_layers": 27, "num_attention_heads": 16, "patch_size": 14,
"init_pos_emb_height": 64, "init_pos_emb_width": 64, "merge_kernel_size": [2, 2]}})"},
    {"jamba-v0.1", R"({
"model_type": "jamba", "torch_dtype": "bfloat16",
"hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 65536,
"num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": null,
"attn_layer_period": 8, "attn_layer_offset": 4,
"expert_layer_period": 2, "expert_layer_offset": 1,
"num_experts": 16, "num_experts_per_tok": 2, "intermediate_size": 14336,
"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256,
"mamba_conv_bias": true, "mamba_proj_bias": false,
"max_position_embeddings": 262144, "tie_word_embeddings": false})"},
    {"minimax-m2", R"({
"model_type": "minimax_m2", "torch_dtype": "bfloat16",
"hidden_size": 3072, "num_hidden_layers": 62, "vocab_size": 200064,
"num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "use_qk_norm": true,
"num_local_experts": 256, "num_experts_per_tok": 8, "intermediate_size": 1536,
"shared_intermediate_size": 0, "use_mtp": true, "num_mtp_modules": 3,
"max_position_embeddings": 196608, "tie_word_embeddings": false,
"quantization_config": {"quant_method": "fp8", "fmt": "float8_e4m3fn",
"weight_block_size": [128, 128],
"modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"]}})"},
    {"gpt-oss-20b", R"({
"model_type": "gpt_oss", "torch_dtype": "bfloat16",
"hidden_size": 2880, "num_hidden_layers": 24, "vocab_size": 201088,
"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "attention_bias": true,
"sliding_window": 128,
"num_local_experts": 32, "num_experts_per_tok": 4, "intermediate_size": 2880,
"max_position_embeddings": 131072, "tie_word_embeddings": false,
"quantization_config": {"quant_method": "mxfp4"}})"},
    {"gpt-oss-120b", R"({
"model_type": "gpt_oss", "torch_dtype": "bfloat16",
"hidden_size": 2880, "num_hidden_layers": 36, "vocab_size": 201088,
"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "attention_bias": true,
"sliding_window": 128,
"num_local_experts": 128, "num_experts_per_tok": 4, "intermediate_size": 2880,
"max_position_embeddings": 131072, "tie_word_embeddings": false,
"quantization_config": {"quant_method": "mxfp4"}})"},
    {"llada-moe", R"({
"model_type": "llada", "torch_dtype": "bfloat16",
"hidden_size": 2048, "num_hidden_layers": 16, "vocab_size": 157184,
"num_attention_heads": 16, "num_key_value_heads": 16, "attention_bias": false,
"qk_layernorm": true,
"num_experts": 64, "num_experts_per_tok": 8, "expert_intermediate_size": 1024,
"dense_intermediate_size": 8192, "shared_expert_intermediate_size": null,
"moe_layer_freq": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
"max_position_embeddings": 8192, "tie_word_embeddings": false})"},
}};

}  // namespace

std::span<const model_preset> model_presets() noexcept { return presets; }

}  // namespace hotset::lab
