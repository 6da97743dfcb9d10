// SPDX-License-Identifier: Apache-2.0
#include "lab/models/module_patterns.hpp"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::module_patterns_test {
namespace {

using enum lab::model_module;
using lab::module_set;
using lab::modules_named;
using lab::set_of;

constexpr auto experts = lab::expert_modules;
constexpr auto shared = lab::shared_modules;
constexpr auto dense = lab::dense_modules;
constexpr auto attention = lab::attention_modules;
constexpr auto linear = lab::linear_attention_modules;

/// Modules of a pattern without alternatives; nothing if it is not understood.
std::optional<module_set> one(std::string_view pattern) {
  const auto found = modules_named(pattern);
  if (!found) return std::nullopt;
  EXPECT_EQ(found->size(), 1U) << pattern;
  return found->front().modules;
}

TEST(module_patterns, names_globs_and_expressions_mean_the_same_modules) {
  for (const auto* pattern :
       {"self_attn", "*self_attn*", "re:.*self_attn.*", "-:.*\\.self_attn\\..*",
        "model.layers.*.self_attn", "model.layers.3.self_attn.", "Llama4TextAttention"})
    EXPECT_EQ(one(pattern), attention) << pattern;
  EXPECT_EQ(one("*.attn*"), attention | linear) << "either kind";
  EXPECT_EQ(one("model.layers.0.linear_attn"), linear);
  EXPECT_EQ(one("lm_head"), set_of(head));
  EXPECT_EQ(one("head"), set_of(head));
  EXPECT_EQ(one("re:.*embed_tokens"), set_of(embeddings));
  for (const auto* pattern : {"mlp.gate", "re:.*mlp.gate$", "*block_sparse_moe.gate*", "gate",
                              "*router*", "model.layers.1.mlp.shared_expert_gate"})
    EXPECT_EQ(one(pattern), set_of(router)) << pattern;
  for (const auto* pattern :
       {"re:vision_model.*", "visual", "model.norm", "e_score_correction_bias",
        "mtp.layers.0.eh_proj", "re:.*multi_modal_projector.*", "talker", "code2wav.*",
        "model.layers.46.shared_head.head", "model.layers.0.self_attn.g_proj",
        "model.layers.0.linear_attn.dt_bias", "model.layers.3.mlp.experts.lora.a"})
    EXPECT_EQ(one(pattern), module_set{0}) << pattern;
}

TEST(module_patterns, parts_of_an_mlp_go_by_the_words_behind_it) {
  EXPECT_EQ(one("*mlp*"), experts | shared | dense);
  EXPECT_EQ(modules_named("model.layers.0.mlp*", true)->front().modules, dense) << "Gemma 4's";
  EXPECT_EQ(one("re:.*feed_forward.*"), experts | shared | dense);
  EXPECT_EQ(one("model.layers.0.block_sparse_moe"), experts | shared | dense);
  EXPECT_EQ(one("model.layers.0.mlp.down_proj"), set_of(dense_down));
  EXPECT_EQ(one("re:.*mlp.*down_proj"), set_of(expert_down, shared_down, dense_down));
  EXPECT_EQ(one("*down_proj*"), set_of(expert_down, shared_down, dense_down));
  EXPECT_EQ(one("mlp.shared_experts"), shared);
  EXPECT_EQ(one("mlp.experts.*.gate_up_proj"), set_of(expert_gate, expert_up));
  EXPECT_EQ(one("block_sparse_moe.experts.*.w2"), set_of(expert_down));
  EXPECT_EQ(one("model.layers.0.mlp.switch_mlp.up_proj"), set_of(expert_up));
  EXPECT_EQ(one("layers.0.block_sparse_moe.input_linear"), set_of(expert_gate, expert_up));
  EXPECT_EQ(one("layers.0.shared_mlp.output_linear.weight"), set_of(shared_down));
  EXPECT_EQ(one("model.layers.3.share_expert.up_proj"), set_of(shared_up));
  EXPECT_EQ(one("model.layers.0.attention.query_key_value"), set_of(query, key, value));
  EXPECT_EQ(one("model.layers.0.attention.dense"), set_of(output));
  EXPECT_EQ(one("layers.0.attn.wkv"), set_of(key_value_low));
  EXPECT_EQ(one("layers.0.attn.wq_b"), set_of(query));
  EXPECT_EQ(one("model.layers.0.self_attn.embed_q"), set_of(key_value));
  EXPECT_EQ(one("self_attn.qkv_proj"), set_of(query, key, value));
  EXPECT_EQ(one("self_attn.kv_a_proj_with_mqa"), set_of(key_value_low));
  EXPECT_EQ(one("linear_attn.out_proj"), set_of(linear_out));
  EXPECT_EQ(one("self_attn.out_proj"), set_of(output));
  EXPECT_EQ(one("model.layers.1.self_attn.output_gate"), set_of(output_gate));
}

TEST(module_patterns, a_layer_or_an_expert_is_named_by_its_number) {
  const auto found = modules_named("model.layers.12.mlp.experts.7.up_proj");
  ASSERT_TRUE(found && found->size() == 1);
  EXPECT_EQ(found->front().modules, set_of(expert_up));
  EXPECT_EQ(found->front().layer, 12U);
  EXPECT_EQ(found->front().expert, 7U);
  for (const auto* pattern : {"model.layers.2", "model.layers.2*", "re:model\\.layers\\.2\\..*"}) {
    const auto whole = modules_named(pattern);
    ASSERT_TRUE(whole && whole->size() == 1) << pattern;
    EXPECT_EQ(whole->front().modules, experts | shared | dense | attention | linear) << pattern;
    EXPECT_EQ(whole->front().layer, 2U) << pattern;
  }
  for (const auto* pattern :
       {"layers.*.mlp.experts.*", "re:.*layers\\.\\d+\\.mlp\\.experts\\.[0-9]+.*",
        "re:layers\\.[^.]+\\.mlp\\.experts.*"}) {
    const auto all = modules_named(pattern);
    ASSERT_TRUE(all && all->size() == 1) << pattern;
    EXPECT_FALSE(all->front().layer || all->front().expert) << pattern;
  }
  EXPECT_FALSE(modules_named("layers.1.mlp.shared_experts.0.up_proj")->front().expert);
}

TEST(module_patterns, alternatives_are_told_apart) {
  const auto found = modules_named("re:.*layers\\.(?:0|31)\\.(self_attn|mlp)\\.(?:o|down)_proj");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->size(), 8U) << "those that no model has are empty";
  module_set all = 0;
  for (const auto& named : *found) {
    EXPECT_TRUE(named.layer == 0U || named.layer == 31U);
    all |= named.modules;
  }
  EXPECT_EQ(all, set_of(output, dense_down));
  EXPECT_EQ(modules_named("lm_head|re:.*router")->size(), 2U);
  EXPECT_EQ(modules_named("model.layers.[0-3].self_attn*")->size(), 4U);
  const auto ranges = modules_named("re:layers\\.([02]|1[0-1])\\.self_attn");
  ASSERT_TRUE(ranges);
  std::set<std::uint64_t> layers;
  for (const auto& named : *ranges) layers.insert(named.layer.value());
  EXPECT_THAT(layers, testing::UnorderedElementsAre(0, 2, 10, 11));
}

TEST(module_patterns, what_is_not_understood_is_nothing) {
  for (const auto* pattern :
       {"", "Linear", "re:(?!.*experts).*", "re:.*(?=x)experts", "re:.*\\.18\\..*gate_proj",
        "model.layers.[a-c].self_attn", "re:layers\\.\\d\\.self_attn",
        "re:layers\\.[1-9]+\\.self_attn", "re:layers.(0|1)+.self_attn", "h.0.self_attn",
        "(self_attn", "self_attn)", "model.layers"})
    EXPECT_FALSE(modules_named(pattern)) << pattern;
  EXPECT_FALSE(modules_named("self_attn" + std::string(2000, 'x')));
  std::string many = "re:";
  for (int i = 0; i < 12; ++i) many += "(a|b)";
  EXPECT_FALSE(modules_named(many + "self_attn")) << "4096 alternatives";
}

}  // namespace
}  // namespace hotset::module_patterns_test
