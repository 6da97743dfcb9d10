// SPDX-License-Identifier: Apache-2.0
/// Memory models of GGUF files: one of each accepted architecture, and what is refused.

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "block_sums.hpp"
#include "gguf_samples.hpp"
#include "lab/models/model_description.hpp"
#include "lab/sizes.hpp"
#include "trace_samples.hpp"

namespace model_description_gguf_test {
namespace {
using namespace hotset;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using trace_samples::expect_refused;
namespace gguf = gguf_samples;

class gguf_models : public ::testing::Test {
 protected:
  [[nodiscard]] lab::model_description describe(const gguf::file& file,
                                                const lab::model_options& options = {}) const {
    auto out = lab::describe_model(folder_.write("small.gguf", file.bytes()).string(), options);
    support::expect_blocks_add_up(out.memory);
    return out;
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
  EXPECT_THAT(out.notes, IsEmpty());
  EXPECT_EQ(m.experts.layers, 2);
  EXPECT_EQ(m.experts.experts, 4);
  EXPECT_EQ(m.experts.top_k, 2);
  EXPECT_THAT(m.experts.expert_bytes, ElementsAre(f16_expert)) << "one entry for equal layers";
  EXPECT_EQ(m.expert_slot_bytes(), 2 * f16_expert);
  EXPECT_EQ(m.resident_bytes, 6400U * 2 + 2 * 64 * 4);
  EXPECT_THAT(m.kv, ElementsAre(kv_layers{2, 2 * (32 + 16) * 2, 0}));
  EXPECT_EQ(m.max_context, 4096U);
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
  const auto m = describe(made).memory;
  EXPECT_THAT(m.experts.expert_bytes,
              ElementsAre(3 * 32 * 144, 2 * 32 * 144 + 32 * 210, 3 * 32 * 144));
  EXPECT_EQ(m.all_expert_bytes(), 4U * (8 * 32 * 144 + 32 * 210));
  EXPECT_THAT(m.kv, ElementsAre(kv_layers{3, 2 * 64 * 2, 0})) << "every head, 64 / 4 wide";
}

TEST_F(gguf_models, shared_experts_and_dense_layers_are_resident) {
  auto made = gguf::model("qwen2moe", 2);
  made.tensor("blk.0.ffn_up.weight", {64, 128}, gguf::f16);
  gguf::add_experts(made, 1);
  made.tensor("blk.1.ffn_up_shexp.weight", {64, 32}, gguf::f16)
      .tensor("blk.1.ffn_gate_inp.weight", {64, 4}, gguf::f32)
      .tensor("blk.1.ffn_gate_up_exps.weight", {64, 8, 4}, gguf::f16)
      .tensor("blk.1.ffn_up_chexps.weight", {64, 4, 4}, gguf::f16);
  const auto m = describe(made).memory;
  EXPECT_EQ(m.experts.layers, 1);
  EXPECT_THAT(m.experts.expert_bytes, ElementsAre(f16_expert + 64 * 8 * 2 + 64 * 4 * 2));
  EXPECT_EQ(m.resident_bytes, 64U * 128 * 2 + 64 * 32 * 2 + 64 * 4 * 4);
}

TEST_F(gguf_models, every_accepted_architecture_is_read) {
  for (const auto* name :
       {"olmoe", "llama", "qwen2moe", "qwen3moe", "phimoe", "deepseek2", "jamba", "minimax-m2",
        "gpt-oss", "llada-moe", "glm4moe", "dots1", "ernie4_5-moe", "hunyuan-moe", "qwen3vlmoe"}) {
    auto made = gguf::model(name, 1);
    const auto m = describe(gguf::add_experts(made, 0)).memory;
    EXPECT_EQ(m.all_expert_bytes(), 4 * f16_expert) << name;
    EXPECT_EQ(m.kv_bytes_per_token(), 2U * 64 * 2) << name;
  }
}

gguf::file latent_model(bool newer) {
  auto made = gguf::model("deepseek2", 3);
  made.number("deepseek2.leading_dense_block_count", 1)
      .number("deepseek2.attention.kv_lora_rank", 512)
      .number("deepseek2.rope.dimension_count", 64)
      .number("deepseek2.attention.head_count_kv", newer ? 1 : 4)
      .number("deepseek2.attention.key_length", newer ? 576 : 192)
      .number("deepseek2.attention.value_length", newer ? 512 : 128);
  if (newer)
    made.number("deepseek2.attention.key_length_mla", 192)
        .number("deepseek2.attention.value_length_mla", 128);
  made.tensor("blk.0.ffn_down.weight", {64, 64}, gguf::f16);
  gguf::add_experts(made, 1);
  return gguf::add_experts(made, 2);
}

TEST_F(gguf_models, latent_attention_keeps_one_vector_where_the_file_says_so) {
  const auto newer = describe(latent_model(true));
  EXPECT_EQ(newer.memory.experts.layers, 2);
  EXPECT_THAT(newer.memory.kv, ElementsAre(kv_layers{3, 576 * 2, 0}));
  EXPECT_THAT(newer.notes, Contains(HasSubstr("keys alone are kept")));
  const auto older = describe(latent_model(false));
  EXPECT_THAT(older.memory.kv, ElementsAre(kv_layers{3, 4 * (192 + 128) * 2, 0}));
  EXPECT_THAT(older.notes, Contains(HasSubstr("an older form")));
}

TEST_F(gguf_models, blocks_of_multi_token_prediction_are_not_counted) {
  auto made = latent_model(true);
  const auto without = describe(made).memory;
  gguf::file with = gguf::model("deepseek2", 4);
  with.number("deepseek2.attention.kv_lora_rank", 512)
      .number("deepseek2.attention.head_count_kv", 1)
      .number("deepseek2.attention.key_length", 576)
      .number("deepseek2.attention.key_length_mla", 192)
      .tensor("blk.0.ffn_down.weight", {64, 64}, gguf::f16);
  for (int block = 1; block < 4; ++block) gguf::add_experts(with, block);
  with.tensor("blk.3.nextn.eh_proj.weight", {128, 64}, gguf::f16)
      .tensor("blk.3.attn_norm.weight", {64}, gguf::f32);
  const auto out = describe(with);
  EXPECT_EQ(out.memory.experts.layers, without.experts.layers);
  EXPECT_EQ(out.memory.all_expert_bytes(), without.all_expert_bytes());
  EXPECT_EQ(out.memory.resident_bytes, without.resident_bytes);
  EXPECT_EQ(out.memory.kv, without.kv) << "though block_count counts it";
  EXPECT_EQ(out.memory.blocks.size(), 3U);
  EXPECT_FALSE(out.memory.blocks[0].is_moe);
  EXPECT_TRUE(out.memory.blocks[1].is_moe && out.memory.blocks[2].is_moe);
  EXPECT_THAT(out.notes, Contains(HasSubstr("multi-token prediction (1 layer) is not counted")));
}

// Jamba v0.1's own extents: attention in blocks 4, 12, 20 and 28 of 32.
TEST_F(gguf_models, blocks_without_heads_have_a_recurrent_state) {
  auto made = gguf::model("jamba", 32);
  std::vector<std::int32_t> heads(32, 0);
  for (const std::size_t block : {4U, 12U, 20U, 28U}) heads[block] = 8;
  made.numbers("jamba.attention.head_count_kv", heads)
      .number("jamba.attention.key_length", 128)
      .number("jamba.attention.value_length", 128)
      .number("jamba.ssm.conv_kernel", 4)
      .number("jamba.ssm.inner_size", 8192)
      .number("jamba.ssm.state_size", 16);
  gguf::add_experts(made, 1);
  const auto out = describe(made);
  EXPECT_THAT(out.memory.kv, ElementsAre(kv_layers{4, 2 * 8 * 128 * 2, 0}));
  EXPECT_EQ(out.memory.kv_bytes_per_token(), 16384U);
  EXPECT_EQ(out.memory.state_bytes_per_sequence, 17432576U);
  EXPECT_THAT(out.notes, Contains(HasSubstr("recurrent state of 28 layers in F32")));
  gguf::file none = gguf::model("jamba", 1);
  none.number("jamba.attention.head_count_kv", 0);
  refuse(gguf::add_experts(none, 0), {"key 'jamba.ssm.inner_size'", "is missing"});
}

TEST_F(gguf_models, windows_of_gpt_oss_alternate_and_biases_belong_to_the_experts) {
  auto made = gguf::model("gpt-oss", 3);
  made.number("gpt-oss.attention.sliding_window", 128)
      .number("gpt-oss.attention.head_count_kv", 2)
      .number("gpt-oss.attention.key_length", 64)
      .number("gpt-oss.attention.value_length", 64);
  for (int block = 0; block < 3; ++block) {
    gguf::add_experts(made, block, gguf::mxfp4);
    made.tensor("blk." + std::to_string(block) + ".ffn_gate_exps.bias", {32, 4}, gguf::f32);
  }
  const auto out = describe(made);
  EXPECT_THAT(out.memory.experts.expert_bytes,
              ElementsAre(gguf::expert_elements / 32 * 17 + 32 * 4));
  EXPECT_THAT(out.memory.kv, ElementsAre(kv_layers{1, 512, 0}, kv_layers{2, 512, 128}));
  EXPECT_EQ(out.memory.kv_bytes(1000), 512U * 1000 + 2 * 512 * 128);
  EXPECT_THAT(out.notes, ElementsAre(HasSubstr("sliding window 128 of 2 layers")));
}

TEST_F(gguf_models, windows_follow_their_pattern) {
  const auto with = [](auto change) {
    auto made = gguf::model("qwen3moe", 6);
    made.number("qwen3moe.attention.sliding_window", 100);
    change(made);
    return gguf::add_experts(made, 0);
  };
  const std::string pattern = "qwen3moe.attention.sliding_window_pattern";
  EXPECT_THAT(describe(with([&](auto& f) { f.number(pattern, 4); })).memory.kv,
              ElementsAre(kv_layers{1, 256, 0}, kv_layers{5, 256, 100}))
      << "block 3 alone has none";
  EXPECT_THAT(describe(with([&](auto& f) { f.number(pattern, 1); })).memory.kv,
              ElementsAre(kv_layers{6, 256, 0}));
  EXPECT_THAT(describe(with([&](auto& f) {
                f.flags(pattern, {true, false, true, true, true, true});
              })).memory.kv,
              ElementsAre(kv_layers{1, 256, 0}, kv_layers{5, 256, 100}));
  const auto none = describe(with([](auto&) {}));
  EXPECT_THAT(none.memory.kv, ElementsAre(kv_layers{6, 256, 0}));
  EXPECT_THAT(none.notes, Contains(HasSubstr("sliding window 100 is not used")));
  const auto own = describe(with([&](auto& f) {
    f.number(pattern, 2)
        .number("qwen3moe.attention.key_length_swa", 8)
        .number("qwen3moe.attention.value_length_swa", 4);
  }));
  EXPECT_THAT(own.memory.kv, ElementsAre(kv_layers{3, 256, 0}, kv_layers{3, 96, 100}));
  refuse(with([&](auto& f) { f.flags(pattern, {true}); }),
         {"key '" + pattern + "'", "is an array of 1", "an array of 6 integers, one a layer"});
}

TEST_F(gguf_models, a_window_of_the_whole_context_is_none) {
  auto made = gguf::model("phimoe", 1);
  made.number("phimoe.attention.sliding_window", 4096);
  const auto out = describe(gguf::add_experts(made, 0));
  EXPECT_THAT(out.memory.kv, ElementsAre(kv_layers{1, 256, 0}));
  EXPECT_THAT(out.notes, IsEmpty());
}

TEST_F(gguf_models, a_model_that_is_not_causal_keeps_nothing) {
  auto made = gguf::model("llada-moe", 1);
  made.flag("llada-moe.attention.causal", false);
  const auto out = describe(gguf::add_experts(made, 0));
  EXPECT_FALSE(out.memory.is_causal);
  EXPECT_FALSE(out.memory.has_kv());
  EXPECT_THAT(out.notes, ElementsAre(HasSubstr("no KV cache")));
}

TEST_F(gguf_models, what_cannot_be_described_is_refused) {
  const auto made = [] { return gguf::model("qwen3moe", 2); };
  gguf::file nameless;
  nameless.number("general.architecture", 3);
  refuse(gguf::file(),
         {"key 'general.architecture'", "is missing", "by hand --layers", "qwen3moe"});
  refuse(nameless, {"is missing, or no string"});
  auto other = gguf::model("gemma3");
  refuse(gguf::add_experts(other, 0), {"is 'gemma3'", "olmoe, llama"});
  auto dense = gguf::file();
  dense.word("general.architecture", "llama").number("llama.block_count", 2);
  refuse(dense, {"key 'llama.expert_count'", "a dense model has no experts"});
  refuse(gguf::model("qwen3moe"), {"has no tensor blk.*.ffn_*_exps"});
  const auto with = [&](auto file, std::initializer_list<std::string_view> parts) {
    refuse(gguf::add_experts(file, 0), parts);
  };
  with(made().number("split.count", 3),
       {"key 'split.count'", "is 3: the file is one of as many parts"});
  EXPECT_EQ(describe(gguf::add_experts(made().number("split.count", 1), 0)).memory.experts.layers,
            1);
  with(made().tensor("blk.1.ffn_up_exps.weight", {64, 3}, gguf::f16),
       {"layer 1, 'ffn_up_exps.weight'", "is of 3 experts", "4, as elsewhere"});
  with(made().tensor("blk.2.ffn_up_exps.weight", {64, 4}, gguf::f16),
       {"layer 2: has experts", "layers 0..1, by block_count"});
  with(made().numbers("qwen3moe.attention.head_count_kv", {1, 2, 3}),
       {"qwen3moe.attention.head_count_kv'", "is an array of 3", "an array of 2 integers"});
  with(made().numbers("qwen3moe.attention.head_count_kv", {1, -2}),
       {"head_count_kv'", "entry 1 is \"no integer of 0 or more\""});
  with(made().word("qwen3moe.attention.key_length", "128"), {"key_length'", "is \"no integer"});
  with(made().numbers("qwen3moe.attention.key_length", {1, 2}),
       {"key_length'", "entry 1 is 2, entry 0 is 1"});
  with(made().number("qwen3moe.attention.key_length", 1U << 25U),
       {"key_length'", "is 33554432", "0..16777216"});
}

TEST_F(gguf_models, keys_that_must_be_there_are_named) {
  for (const auto* missing : {"block_count", "expert_used_count"}) {
    gguf::file made;
    made.word("general.architecture", "olmoe");
    for (const auto* key : {"block_count", "expert_count", "expert_used_count"})
      if (std::string_view(key) != missing) made.number(std::string("olmoe.") + key, 4);
    refuse(gguf::add_experts(made, 0), {std::string("key 'olmoe.") + missing + "'", "is missing"});
  }
  gguf::file headless;
  headless.word("general.architecture", "olmoe")
      .number("olmoe.block_count", 1)
      .number("olmoe.expert_count", 4)
      .number("olmoe.expert_used_count", 5)
      .number("olmoe.attention.head_count_kv", 2);
  refuse(gguf::add_experts(headless, 0), {"head_count'", "is missing or 0"});
  headless.number("olmoe.attention.key_length", 8).number("olmoe.attention.value_length", 8);
  refuse(headless, {"top_k = 5, accepted: 1..4"});
}

// A download that was cut short still plans; cut inside the header, it says nothing.
TEST_F(gguf_models, a_header_alone_is_enough) {
  const auto made = gguf::small_model();
  const auto whole = made.bytes();
  const auto header = made.header().size();
  const auto described = [&](std::size_t size) {
    const auto path = folder_.write("short.gguf", std::string_view(whole).substr(0, size));
    return lab::describe_model(path.string());
  };
  const auto all = describe(made);
  for (const auto size : {header, header + 1, (header + whole.size()) / 2, whole.size() - 1}) {
    const auto out = described(size);
    EXPECT_EQ(out.memory.experts.expert_bytes, all.memory.experts.expert_bytes) << size;
    EXPECT_EQ(out.memory.resident_bytes, all.memory.resident_bytes) << size;
    EXPECT_EQ(out.memory.kv, all.memory.kv) << size;
    EXPECT_THAT(out.notes, ElementsAre(HasSubstr("B: its header is enough for a plan"))) << size;
  }
  EXPECT_THAT(described(header).notes,
              ElementsAre(HasSubstr("by " + lab::size_text(made.data_bytes()) + ":")));
  for (std::size_t size = 0; size < header; ++size)
    expect_refused([&] { (void)described(size); }, {"short.gguf"});
  auto huge = gguf::model("olmoe", 1);
  huge.tensor_at("blk.0.ffn_up_exps.weight", {1U << 30U, 1U << 20U, 4}, gguf::f16, 0, 0);
  const auto path = folder_.write("huge.gguf", huge.header());
  expect_refused([&] { (void)lab::describe_model(path.string()); }, {"pass the file's end"});
}

TEST_F(gguf_models, qwen3next_keeps_a_state_in_three_of_four_blocks) {
  auto made = gguf::model("qwen3next", 8);
  made.number("qwen3next.attention.head_count_kv", 2)
      .number("qwen3next.attention.key_length", 32)
      .number("qwen3next.attention.value_length", 32)
      .number("qwen3next.ssm.conv_kernel", 4)
      .number("qwen3next.ssm.inner_size", 24)
      .number("qwen3next.ssm.state_size", 5)
      .number("qwen3next.ssm.group_count", 2);
  const auto m = describe(gguf::add_experts(made, 0)).memory;
  EXPECT_THAT(m.kv, ElementsAre(kv_layers{2, 2 * 64 * 2, 0}));
  EXPECT_EQ(m.state_bytes_per_sequence, 4U * 6 * (24 * 5 + (24 + 2 * 2 * 5) * 3));
}

TEST_F(gguf_models, llama4_attends_in_chunks_but_in_every_fourth_block) {
  auto made = gguf::model("llama4", 4);
  made.number("llama4.attention.sliding_window", 100);
  EXPECT_THAT(describe(gguf::add_experts(made, 0)).memory.kv,
              ElementsAre(kv_layers{1, 2 * 64 * 2, 0}, kv_layers{3, 2 * 64 * 2, 100}));
}

TEST_F(gguf_models, parts_are_read_as_the_one_file_that_they_were) {
  auto first = gguf::model("qwen3moe");
  first.number("split.count", 2).number("split.no", 0);
  gguf::add_experts(first, 0);
  gguf::file second;
  second.number("split.count", 2).number("split.no", 1);
  gguf::add_experts(second, 1);
  auto together = gguf::model("qwen3moe");
  gguf::add_experts(together, 0);
  gguf::add_experts(together, 1);
  const auto one = describe(together).memory;
  const auto path = folder_.write("big-00001-of-00002.gguf", first.bytes());
  const auto last = folder_.write("big-00002-of-00002.gguf", second.bytes());
  for (const auto& part : {path, last}) {
    const auto out = lab::describe_model(part.string());
    EXPECT_EQ(out.memory.name, "big");
    EXPECT_THAT(out.source, HasSubstr("tensors in 2 parts"));
    EXPECT_EQ(out.memory.experts.expert_bytes, one.experts.expert_bytes);
    EXPECT_EQ(out.memory.experts.layers, one.experts.layers);
    EXPECT_EQ(out.memory.resident_bytes, one.resident_bytes);
    EXPECT_EQ(out.memory.kv, one.kv);
    EXPECT_EQ(out.memory.blocks, one.blocks);
  }
  folder_.write("big-00002-of-00002.gguf", first.bytes());
  expect_refused([&] { (void)lab::describe_model(path.string()); },
                 {"big-00002-of-00002.gguf", "key 'split.no'", "is 0", "1, as its name says"});
  first.number("split.tensors.count", 99);
  folder_.write("big-00001-of-00002.gguf", first.bytes());
  folder_.write("big-00002-of-00002.gguf", second.bytes());
  expect_refused([&] { (void)lab::describe_model(path.string()); },
                 {"big-00001-of-00002.gguf", "key 'split.tensors.count'", "is 99"});
  std::filesystem::remove(last);
  expect_refused([&] { (void)lab::describe_model(path.string()); },
                 {"big-00002-of-00002.gguf", "is missing: part 2 of 2", "all parts in one folder"});
}

}  // namespace
}  // namespace model_description_gguf_test
