// SPDX-License-Identifier: Apache-2.0
// Every reader of models on damaged input: it returns a valid memory model or throws trace_error only.
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "damage.hpp"
#include "gguf_samples.hpp"
#include "lab/models/model_description.hpp"
#include "trace_samples.hpp"

namespace model_readers_test {
namespace {
using namespace hotset;

struct named_file {
  std::string name, bytes;
};
/// `name`: file name, which selects the reader. `beside`: another file; the folder of both is then described.
void fuzz(const std::string& name, const std::string& sample, std::uint64_t rounds,
          const std::optional<named_file>& beside = std::nullopt) {
  const trace_samples::temporary_folder folder;
  if (beside) folder.write(beside->name, beside->bytes);
  const auto describe = [&](const std::string& bytes) {
    const auto path = folder.write(name, bytes);
    return lab::describe_model((beside ? folder.path() : path).string());
  };
  ASSERT_FALSE(describe(sample).memory.validate()) << "the undamaged sample";
  fuzz_reader(sample, rounds, [&](const std::string& bytes, splitmix64&) {
    const auto out = describe(bytes);
    const auto bad = out.memory.validate();
    EXPECT_FALSE(bad) << bad->message;
    EXPECT_GE(out.memory.kv_bytes(100000), out.memory.kv_bytes(1));
    return true;
  });
}

TEST(fuzz_models, gguf) {
  auto small = gguf_samples::model("qwen3moe", 2);
  small.numbers("qwen3moe.attention.head_count_kv", {2, 0})
      .number("qwen3moe.ssm.conv_kernel", 4)
      .number("qwen3moe.ssm.inner_size", 8)
      .number("qwen3moe.ssm.state_size", 2)
      .number("qwen3moe.attention.sliding_window", 100)
      .flags("qwen3moe.attention.sliding_window_pattern", {true, false})
      .tensor("blk.1.ffn_gate_exps.weight", {4, 2, 4}, gguf_samples::f32)
      .tensor("output.weight", {4}, gguf_samples::f16);
  fuzz("small.gguf", small.bytes(), 3000);
}

TEST(fuzz_models, config) {
  fuzz("config.json", R"({"model_type": "gpt_oss", "torch_dtype": "bfloat16", "hidden_size": 64,
"num_hidden_layers": 4, "vocab_size": 100, "num_attention_heads": 8, "num_key_value_heads": 2,
"head_dim": 16, "sliding_window": 16, "num_local_experts": 8, "num_experts_per_tok": 2,
"layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
"intermediate_size": 32, "mlp_only_layers": [0], "max_position_embeddings": 1024,
"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 16]}})",
       3000);
}

TEST(fuzz_models, hybrid_config) {
  fuzz("config.json", R"({"model_type": "jamba", "hidden_size": 64, "num_hidden_layers": 6,
"vocab_size": 100, "num_attention_heads": 8, "num_experts": 4, "num_experts_per_tok": 2,
"attn_layer_period": 3, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
"intermediate_size": 32, "mamba_d_state": 4, "mamba_d_conv": 4, "mamba_expand": 2,
"mamba_dt_rank": "auto", "quantization_config": {"quant_method": "mxfp4"}})",
       2000);
}

TEST(fuzz_models, delta_config_of_compressed_tensors) {
  fuzz("config.json", R"({"model_type": "qwen3_next", "hidden_size": 64, "num_hidden_layers": 4,
"vocab_size": 100, "num_attention_heads": 8, "head_dim": 8, "num_experts": 4,
"num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
"linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 4,
"linear_value_head_dim": 4, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
"quantization_config": {"quant_method": "compressed-tensors", "ignore": ["lm_head",
"re:.*layers.1.self_attn.*"], "config_groups": {"group_0": {"targets": ["Linear"],
"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 16}}}}})",
       2000);
}

TEST(fuzz_models, nested_config_of_gptq) {
  fuzz("config.json", R"({"model_type": "llama4", "torch_dtype": "bfloat16",
"text_config": {"model_type": "llama4_text", "hidden_size": 64, "num_hidden_layers": 4,
"vocab_size": 100, "num_attention_heads": 8, "num_local_experts": 4, "num_experts_per_tok": 1,
"intermediate_size": 16, "intermediate_size_mlp": 32, "interleave_moe_layer_step": 2,
"attention_chunk_size": 16, "no_rope_layers": [1, 1, 1, 0], "moe_layers": [1, 3]},
"vision_config": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2,
"image_size": 28, "patch_size": 14, "projector_input_dim": 8, "projector_output_dim": 8,
"vision_output_dim": 8},
"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1,
"dynamic": {"-:.*attn.*": {}}, "modules_in_block_to_quantize": [["feed_forward.experts"]]}})",
       2000);
}

TEST(fuzz_models, lists_by_layer_and_lightning) {
  fuzz("config.json", R"({"model_type": "hunyuan", "hidden_size": 64, "num_hidden_layers": 3,
"vocab_size": 100, "num_attention_heads": 8, "num_experts": [4, 4, 4], "moe_topk": [2, 2, 2],
"moe_intermediate_size": [16, 16, 16], "num_shared_expert": [1, 1, 1], "use_cla": true,
"cla_share_factor": 2, "moe_layer_num_skipped": 1, "intermediate_size": 16,
"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 8}})",
       1500);
  fuzz("config.json", R"({"model_type": "minimax_m1", "hidden_size": 64, "num_hidden_layers": 3,
"vocab_size": 100, "num_attention_heads": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
"intermediate_size": 16, "attn_type_list": [0, 0, 1], "quantization_config":
{"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}})",
       1500);
}

TEST(fuzz_models, bits_by_module_and_a_scaled_context) {
  fuzz("config.json", R"({"model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 3,
"vocab_size": 100, "num_attention_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
"moe_intermediate_size": 16, "intermediate_size": 32, "n_shared_experts": 1,
"first_k_dense_replace": 1, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8,
"qk_rope_head_dim": 4, "v_head_dim": 8, "max_position_embeddings": 64, "nobody": [NaN, -Infinity],
"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
"quantization_config": {"quant_method": "auto-round", "bits": 4, "group_size": 8,
"kv_cache_scheme": {"num_bits": 8}, "extra_config": {"model.layers.1.self_attn.kv_b_proj":
{"bits": 16}, "model.layers.(1|2).mlp.experts.*.down_proj": {"bits": 8, "group_size": 16},
"model.layers.2.mlp.experts.*.up_proj": {"bits": 4}}}})",
       2000);
  fuzz("config.json", R"({"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2,
"vocab_size": 100, "num_attention_heads": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
"intermediate_size": 32, "torch_dtype": "bfloat16", "quantization": {"group_size": 32, "bits": 4,
"mode": "affine", "model.layers.0.mlp.gate": {"group_size": 32, "bits": 8}, "lm_head": false}})",
       1500);
}

TEST(fuzz_models, configs_of_many_keys) {
  fuzz("config.json", R"({"model_type": "a", "text_config": {"model_type": "nemotron_h",
"hidden_size": 64, "hybrid_override_pattern": "ME*-E", "vocab_size": 100, "num_attention_heads": 4,
"swa_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
"moe_shared_expert_intermediate_size": 32, "n_shared_experts": 1, "moe_latent_size": 8,
"intermediate_size": 32, "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 8,
"n_groups": 2, "conv_kernel": 4, "mamba_ssm_dtype": "float32", "index_head_dim": 8}})",
       1500);
  fuzz("config.json", R"({"model_type": "deepseek_v4", "d_model": 64, "num_hidden_layers": 3,
"vocab_size": 100, "n_heads": 4, "head_dim": 8, "q_lora_rank": 8, "o_groups": 2, "o_lora_rank": 4,
"index_n_heads": 2, "index_head_dim": 8, "sliding_window": 16, "hc_mult": 4, "zero_expert_num": 2,
"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
"compress_ratios": [0, 4, 128], "expert_dtype": "fp4", "quantization_config":
{"quant_method": "fp8", "quantized_layers": {"layers.0.attn": {"quant_algo": "MXFP8"}}}})",
       1500);
  fuzz("config.json", R"({"model_type": "kimi_linear", "hidden_size": 64, "num_hidden_layers": 3,
"vocab_size": 100, "num_attention_heads": 4, "kv_lora_rank": 8, "qk_nope_head_dim": 8,
"qk_rope_head_dim": 4, "v_head_dim": 8, "mla_use_output_gate": true, "num_experts": 4,
"num_experts_per_token": 2, "moe_intermediate_size": 16, "moe_layers_enum": "1,2",
"intermediate_size": 32, "linear_attn_config": {"num_heads": 2, "head_dim": 8,
"short_conv_kernel_size": 4, "full_attn_layers": [2]}})",
       1500);
}

TEST(fuzz_models, an_unknown_family_beside_weights) {
  fuzz("config.json",
       R"({"model_type": "other", "text_config": {"num_experts_per_tok": 2, "num_hidden_layers": 1,
"max_position_embeddings": 64, "rope_parameters": {"rope_type": "linear", "factor": 2}}})",
       1000,
       named_file{"model.safetensors",
                  trace_samples::safetensors_bytes(
                      R"({"layers.0.mlp.switch_mlp.up":{"dtype":"U8","shape":[2,3],)"
                      R"("data_offsets":[0,6]},"layers.0.attention.wk.weight":)"
                      R"({"dtype":"U8","shape":[2,3],"data_offsets":[6,12]}})",
                      std::string(12, '\0'))});
}

TEST(fuzz_models, quantisation_beside_a_config) {
  fuzz("hf_quant_config.json",
       R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4",
"group_size": 16, "exclude_modules": ["lm_head", "model.layers.1.self_attn*"]}})",
       1000, named_file{"config.json", R"({"model_type": "mixtral", "hidden_size": 64,
"num_hidden_layers": 2, "vocab_size": 100, "num_attention_heads": 8, "num_local_experts": 4,
"num_experts_per_tok": 2, "intermediate_size": 16, "torch_dtype": "bfloat16"})"});
}

TEST(fuzz_models, safetensors) {
  fuzz("model.safetensors",
       trace_samples::safetensors_bytes(
           R"({"model.layers.0.mlp.experts.0.w1":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
           R"("model.layers.0.mlp.experts.1.w1":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},)"
           R"("model.layers.1.mlp.experts.up":{"dtype":"U8","shape":[2,3],"data_offsets":[4,10]},)"
           R"("model.layers.0.self_attn.k_proj.weight":)"
           R"({"dtype":"U8","shape":[2,3],"data_offsets":[10,16]}})",
           std::string(16, '\0')),
       3000);
}

}  // namespace
}  // namespace model_readers_test
