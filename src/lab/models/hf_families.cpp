// SPDX-License-Identifier: Apache-2.0
#include "lab/models/hf_families.hpp"

#include <algorithm>
#include <array>

namespace hotset::lab {
namespace {

using enum trait;
using enum qk_norm;

constexpr trait_set corrected = set_of(correction_bias);
constexpr trait_set f32_correction = set_of(correction_bias, correction_in_f32);
constexpr trait_set wide_mlps = set_of(mlp_wide);
constexpr trait_set qwen3 = set_of(window_needs_asking, window_from_a_layer);
constexpr auto families = std::to_array<hf_family>({
    {"bailing_moe bailing_moe_v2 deepseek_v2 mistral4 step3 tiny_moe"},
    {"aria dbrx granitemoe granitemoehybrid granitemoeshared jamba mixtral", wide_mlps},
    {"deepseek_v4", f32_correction},
    {"kimi_k2 kimi_linear mimo_v2_flash solar_open", corrected},
    {"deepseek_v3 deepseek_v32", corrected, none, {}, 2, 3},
    {"glm_moe_dsa", f32_correction, none, {}, 2, 3},
    {"glm4_moe_lite", f32_correction, none, {}, 2, 1},
    {"sarvam_mla", corrected, none, {}, 2, 1},
    {"hy_v3 sarvam_moe", corrected, per_head, {}, 2, 1},
    {"axk1", corrected, none, {}, 2, 1, 1},
    {"glm4_moe", f32_correction | set_of(plain_output)},
    {"glm4v_moe", f32_correction | set_of(plain_output, attention_bias)},
    {"olmoe flex_olmo", wide_mlps, whole},
    {"qwen2_moe", qwen3 | set_of(input_bias, gated_shared)},
    {"qwen3_moe qwen3_omni_moe qwen3_vl_moe", qwen3, per_head},
    {"qwen3_next qwen3_5_moe", set_of(gated_attention, gated_shared), per_head, "MMMF"},
    {"phimoe", set_of(norm_bias, mlp_wide)},
    {"dots1", f32_correction | set_of(window_from_a_layer), per_head},
    {"ernie4_5_moe ernie4_5_moe_vl ernie4_5_vl_moe", f32_correction | set_of(tied_embeddings)},
    {"exaone_moe", corrected, per_head, "SSSF", 2, 1},
    {"afmoe", set_of(correction_bias, gated_attention), per_head, "SSSF", 4},
    {"cohere2_moe", set_of(mlp_wide, tied_embeddings), none, "SSSF", 1},
    // The scales of a router count as a norm and as corrections.
    {"gemma4", set_of(correction_bias, tied_embeddings, dense_beside), per_head, "SSSSSF", 4, 0, 4},
    {"gpt_oss", set_of(attention_bias, biased_experts, has_sinks, mlp_wide), none, "SF"},
    {"grok-1", wide_mlps, none, {}, 4},
    {"hunyuan hunyuan_v1_moe", set_of(shared_expert, router_in_f32, mlp_wide), per_head},
    {"laguna", set_of(correction_bias, head_gates), per_head, {}, 2, 1},
    {"step3p5", set_of(correction_bias, head_gates), per_head, {}, 2, 3},
    {"lfm2_moe", set_of(tied_embeddings, correction_bias), per_head},
    {"llada lladamoe", set_of(non_causal), per_head},
    {"llama4", set_of(shared_expert, mlp_wide, weightless_norms), none, "CCCF"},
    {"longcat_flash longcat_flash_ngram",
     set_of(correction_bias, dense_beside, double_layers),
     none,
     {},
     4},
    {"mellum", 0, per_head},
    {"minimax", set_of(mlp_wide, lightning), none, "FM"},
    {"minimax_m1 minimax_text_01", set_of(mlp_wide, lightning)},
    {"minimax_m2", set_of(correction_bias, router_in_f32, mlp_wide), whole},
    {"minimax_m3 minimax_m3_vl", corrected | wide_mlps, per_head},
    {"nemotron_h", set_of(correction_bias, ungated_mlps, state_in_f32)},
    {"bailing_moe_linear", set_of(lightning)},
    {"bailing_hybrid", set_of(correction_bias, head_gates, lightning)},
});

/// Whether the words hold this one whole.
constexpr bool holds(std::string_view words, std::string_view word) noexcept {
  for (auto at = words.find(word); at != words.npos; at = words.find(word, at + 1)) {
    const auto end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' '))
      return true;
  }
  return false;
}

}  // namespace

const hf_family* find_family(std::string_view type) noexcept {
  if (type.ends_with("_text")) type.remove_suffix(5);
  const auto* const at = std::ranges::find_if(
      families, [&](const hf_family& one) { return !type.empty() && holds(one.types, type); });
  return at == families.end() ? nullptr : at;
}

}  // namespace hotset::lab
