// SPDX-License-Identifier: Apache-2.0
#include "hotset/lab/expert_files.hpp"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf_samples.hpp"
#include "model_cases.hpp"
#include "trace_samples.hpp"

namespace expert_files_test {
namespace {
using namespace hotset;
using hotset::lab::find_experts;
using hotset::lab::open_experts;
using ::testing::ElementsAre;
using trace_samples::expect_refused;
namespace gguf = gguf_samples;

/// Each four bytes behind the header say where they lie, so that a wrong offset is seen.
std::string numbered(std::string bytes, std::size_t header) {
  for (std::size_t at = (header + 3) / 4 * 4; at + 4 <= bytes.size(); at += 4) {
    const auto number = static_cast<std::uint32_t>(at);
    std::memcpy(bytes.data() + at, &number, 4);
  }
  return bytes;
}
std::string with_data(const gguf::file& made) {
  return numbered(made.bytes(), made.header().size());
}
/// One U8 tensor a name, of as many bytes as it stacks experts, times eight.
std::string safetensors(const std::vector<std::pair<std::string, std::uint64_t>>& tensors) {
  model_cases::tensors_of all;
  for (const auto& [name, experts] : tensors)
    all.push_back({name, "U8", experts == 0 ? gguf::extents{8} : gguf::extents{experts, 8}});
  const auto file = model_cases::stored(all);
  return numbered(file, file.rfind('}') + 1);
}

class expert_files : public ::testing::Test {
 protected:
  /// Reads every tensor of every expert, and compares it with the file's bytes at its extent.
  static void expect_reads(const lab::expert_files& files, const std::vector<std::string>& bytes) {
    const auto source = open_experts(files);
    for (std::size_t k = 0; k < files.shape.keys(); ++k) {
      const auto key = files.shape.key(k);
      const auto extents = files.at(key);
      ASSERT_EQ(source.sizes(key, {}).size(), extents.size());
      for (std::size_t t = 0; t < extents.size(); ++t) {
        std::vector<std::byte> to(extents[t].bytes);
        ASSERT_TRUE(source.read(key, {}, t, 0, to));
        ASSERT_EQ(
            std::memcmp(to.data(), bytes[extents[t].file].data() + extents[t].offset, to.size()),
            0);
      }
    }
  }

  void refuse(const std::string& name, std::string_view bytes,
              std::initializer_list<std::string_view> parts) const {
    const auto path = folder_.write(name, bytes);
    expect_refused([&] { (void)find_experts(path); }, parts);
  }

  trace_samples::temporary_folder folder_;
};

TEST_F(expert_files, of_a_gguf_file_are_slices_of_its_stacks) {
  const auto bytes = with_data(gguf::small_model());
  const auto files = find_experts(folder_.write("m.gguf", bytes));
  EXPECT_EQ(files.shape.layers, 2);
  EXPECT_EQ(files.shape.experts, 4);
  EXPECT_EQ(files.shape.top_k, 2) << "the file says so";
  EXPECT_THAT(files.layers, ElementsAre(0, 1));
  ASSERT_EQ(files.layouts.size(), 1U);
  ASSERT_EQ(files.layouts[0].tensors.size(), 3U);
  EXPECT_EQ(files.layouts[0].tensors[0].name, "ffn_down_exps.weight");
  EXPECT_EQ(files.layouts[0].tensors[0].bytes, 64U * 32 * 2);
  const auto first = files.at({0_layer, 0_expert})[2];
  const auto third = files.at({0_layer, 2_expert})[2];
  EXPECT_EQ(third.offset - first.offset, 2 * 64U * 32 * 2);
  EXPECT_EQ(first.offset % 32, 0U) << "of the file, not of its data";
  expect_reads(files, {bytes});
}

TEST_F(expert_files, of_several_parts_are_found_beside_any_of_them) {
  auto first = gguf::model("qwen3moe");
  first.number("split.count", 2);
  gguf::add_experts(first, 0);
  gguf::file second;
  second.number("split.count", 2);
  gguf::add_experts(second, 1, gguf::q4_0);
  const std::vector<std::string> bytes{with_data(first), with_data(second)};
  folder_.write("m-00001-of-00002.gguf", bytes[0]);
  const auto path = folder_.write("m-00002-of-00002.gguf", bytes[1]);
  const auto files = find_experts(path);
  EXPECT_EQ(files.shape.layers, 2);
  EXPECT_EQ(files.shape.top_k, 2) << "of the first part";
  EXPECT_EQ(files.layouts.size(), 2U) << "two precisions are two classes";
  EXPECT_THAT(files.shape.layer_size_class, ElementsAre(size_class_id{0}, size_class_id{1}));
  EXPECT_EQ(files.at({1_layer, 3_expert})[0].file, 1U);
  expect_reads(files, bytes);
}

TEST_F(expert_files, of_multi_token_prediction_are_left_out) {
  auto made = gguf::small_model();
  gguf::add_experts(made, 2);
  made.tensor("blk.2.nextn.eh_proj.weight", {64}, gguf::f32);
  EXPECT_EQ(find_experts(folder_.write("m.gguf", made.bytes())).shape.layers, 2);
}

TEST_F(expert_files, of_safetensors_lie_apart_in_any_file_of_the_folder) {
  const std::vector<std::string> bytes{
      safetensors({{"model.layers.1.mlp.experts.1.up_proj.weight", 0},
                   {"model.layers.1.mlp.experts.0.down_proj.weight", 0},
                   {"model.layers.1.mlp.gate.weight", 0}}),
      safetensors({{"model.layers.1.mlp.experts.0.up_proj.weight", 0},
                   {"model.layers.1.mlp.shared_experts.up_proj.weight", 0},
                   {"model.layers.1.mlp.experts.1.down_proj.weight", 0}})};
  folder_.write("model-00001-of-00002.safetensors", bytes[0]);
  folder_.write("model-00002-of-00002.safetensors", bytes[1]);
  const auto files = find_experts(folder_.path());
  EXPECT_EQ(files.shape.layers, 1);
  EXPECT_EQ(files.shape.experts, 2);
  EXPECT_EQ(files.shape.top_k, 1) << "no file says it";
  EXPECT_THAT(files.layers, ElementsAre(1)) << "layer 0 is dense";
  EXPECT_EQ(files.layouts[0].tensors[1].name, "up_proj.weight");
  EXPECT_EQ(files.at({0_layer, 1_expert})[1].file, 0U);
  expect_reads(files, bytes);
}

TEST_F(expert_files, of_safetensors_may_be_stacked) {
  const auto bytes = safetensors({{"model.layers.0.mlp.experts.gate_up_proj", 4},
                                  {"model.layers.0.mlp.experts.down_proj", 4}});
  const auto files = find_experts(folder_.write("model.safetensors", bytes));
  EXPECT_EQ(files.shape.experts, 4);
  expect_reads(files, {bytes});
}

TEST_F(expert_files, of_each_family_are_found_under_its_names) {
  // Two experts in layer 1: apart, with '#' in place of the number, or in stacks.
  struct family {
    const char* name;
    std::vector<std::string> parts;
    const char* other;
  };
  const std::vector<family> families = {
      {"DeepSeek",
       {"model.layers.1.mlp.experts.#.up_proj.weight",
        "model.layers.1.mlp.experts.#.up_proj.weight_scale_inv"},
       "model.layers.1.mlp.shared_experts.up_proj.weight"},
      {"DeepSeek's own", {"layers.1.ffn.experts.#.w1.weight"}, "mtp.0.ffn.experts.0.w1.weight"},
      {"Kimi K2",
       {"language_model.model.layers.1.mlp.experts.#.up_proj.weight_packed",
        "language_model.model.layers.1.mlp.experts.#.up_proj.weight_scale",
        "language_model.model.layers.1.mlp.experts.#.up_proj.weight_shape"},
       "vision_tower.encoder.blocks.1.mlp.fc0.weight"},
      {"Kimi Linear", {"model.layers.1.block_sparse_moe.experts.#.w1.weight"}, "lm_head.weight"},
      {"Nemotron", {"backbone.layers.1.mixer.experts.#.up_proj.weight"}, "mtp.layers.0.x"},
      {"GraniteMoeHybrid",
       {"model.layers.1.block_sparse_moe.input_linear.weight",
        "model.layers.1.block_sparse_moe.output_linear.weight"},
       "model.layers.1.shared_mlp.input_linear.weight"},
      {"Llama 4",
       {"language_model.model.layers.1.feed_forward.experts.gate_up_proj"},
       "language_model.model.layers.1.feed_forward.shared_expert.up_proj.weight"},
      {"gpt-oss",
       {"model.layers.1.mlp.experts.gate_up_proj_blocks",
        "model.layers.1.mlp.experts.gate_up_proj_scales",
        "model.layers.1.mlp.experts.gate_up_proj_bias"},
       "model.norm.weight"},
      {"LongCat",
       {"model.layers.1.mlp.experts.#.up_proj.weight"},
       "model.layers.1.mlps.0.up_proj.weight"},
      {"Gemma 4",
       {"model.language_model.layers.1.experts.gate_up_proj"},
       "model.vision_tower.encoder.layers.1.mlp.experts.0.up_proj"},
      {"Qwen3.5",
       {"model.language_model.layers.1.mlp.experts.down_proj"},
       "mtp.layers.0.mlp.experts.down_proj"},
      {"MLX", {"model.layers.1.mlp.switch_mlp.up_proj.weight"}, "model.layers.1.mlp.gate.weight"},
  };
  for (const auto& [name, parts, other] : families) {
    std::vector<std::pair<std::string, std::uint64_t>> tensors{{other, 0}};
    for (const auto& part : parts) {
      const auto at = part.find('#');
      if (at == part.npos) tensors.emplace_back(part, 2);
      for (const auto* e : {"1", "0"})
        if (at != part.npos) tensors.emplace_back(std::string(part).replace(at, 1, e), 0);
    }
    const auto bytes = safetensors(tensors);
    const auto files = find_experts(folder_.write("model.safetensors", bytes));
    EXPECT_THAT(files.layers, ElementsAre(1)) << name;
    EXPECT_EQ(files.shape.experts, 2) << name;
    EXPECT_EQ(files.layouts[0].tensors.size(), parts.size()) << name;
    expect_reads(files, {bytes});
  }
}

TEST_F(expert_files, what_is_missing_is_named) {
  const std::string layer = "model.layers.0.mlp.";
  const auto name = "model.safetensors";
  refuse(name, safetensors({{layer + "up_proj.weight", 0}}), {"no tensors of routed experts"});
  refuse(name, safetensors({{layer + "experts.0.up", 0}, {layer + "experts.2.up", 0}}),
         {"layer 0, 'up'", "has expert 2 where 1 should be", "is a file missing?"});
  std::vector<std::pair<std::string, std::uint64_t>> many;
  for (int t = 0; t < 9; ++t) many.emplace_back(layer + "experts.t" + std::to_string(t), 2);
  refuse(name, safetensors(many), {"layer 0", "has experts of 9 tensors", "1..8"});
  expect_refused([&] { (void)find_experts(folder_.path() / "absent.gguf"); }, {"absent.gguf"});
}

TEST_F(expert_files, a_file_that_was_cut_is_refused) {
  const auto bytes = gguf::small_model().bytes();
  refuse("m.gguf", std::string_view(bytes).substr(0, bytes.size() - 1), {"pass the file's end"});
}

}  // namespace
}  // namespace expert_files_test
