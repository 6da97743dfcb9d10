// SPDX-License-Identifier: Apache-2.0
#include "hotset/lab/expert_files.hpp"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf_samples.hpp"
#include "trace_samples.hpp"

namespace expert_files_test {
namespace {
using namespace hotset;
using hotset::lab::find_experts;
using hotset::lab::open_experts;
using ::testing::ElementsAre;
using trace_samples::expect_refused;
namespace gguf = gguf_samples;

/// Bytes of which each four say where they lie, so that a wrong offset is seen.
std::string numbered(std::string bytes) {
  for (std::size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    const auto number = static_cast<std::uint32_t>(at);
    std::memcpy(bytes.data() + at, &number, 4);
  }
  return bytes;
}
/// A GGUF file whose data is numbered by its place in the file.
std::string with_data(const gguf::file& made) {
  const auto header = made.header().size();
  auto bytes = made.bytes();
  const auto data = numbered(bytes);
  return bytes.substr(0, header) + data.substr(header);
}

class expert_files : public ::testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    return folder_.write(name, bytes);
  }
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

  trace_samples::temporary_folder folder_;
};

TEST_F(expert_files, of_a_gguf_file_are_slices_of_its_stacks) {
  const auto bytes = with_data(gguf::small_model());
  const auto files = find_experts(write("m.gguf", bytes));
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
  (void)write("m-00001-of-00002.gguf", bytes[0]);
  const auto path = write("m-00002-of-00002.gguf", bytes[1]);
  const auto files = find_experts(path);
  EXPECT_EQ(files.shape.layers, 2);
  EXPECT_EQ(files.shape.top_k, 2) << "of the first part";
  EXPECT_EQ(files.layouts.size(), 2U) << "two precisions are two classes";
  EXPECT_THAT(files.shape.layer_size_class, ElementsAre(size_class_id{0}, size_class_id{1}));
  EXPECT_EQ(files.at({1_layer, 3_expert})[0].file, 1U);
  expect_reads(files, bytes);

  std::filesystem::remove(folder_.path() / "m-00001-of-00002.gguf");
  expect_refused([&] { (void)find_experts(path); },
                 {"m-00001-of-00002.gguf: is missing: part 1 of 2"});
}

TEST_F(expert_files, of_a_gguf_part_under_another_name_are_refused) {
  auto part = gguf::model("qwen3moe");
  part.number("split.count", 3);
  gguf::add_experts(part, 0);
  const auto path = write("m.gguf", part.bytes());
  expect_refused([&] { (void)find_experts(path); },
                 {"key 'split.count'", "one of as many parts", "1, as its name says"});
}

TEST_F(expert_files, of_multi_token_prediction_are_left_out) {
  auto made = gguf::small_model();
  gguf::add_experts(made, 2);
  made.tensor("blk.2.nextn.eh_proj.weight", {64}, gguf::f32);
  EXPECT_EQ(find_experts(write("m.gguf", made.bytes())).shape.layers, 2);
}

/// One U8 tensor a name, of as many bytes as it stacks experts, times eight.
std::string safetensors(const std::vector<std::pair<std::string, std::uint64_t>>& tensors) {
  std::string header = "{";
  std::uint64_t end = 0;
  for (const auto& [name, experts] : tensors) {
    const auto shape = experts == 0 ? std::string("[8]") : "[" + std::to_string(experts) + ",8]";
    const auto bytes = 8 * std::max<std::uint64_t>(1, experts);
    header += (header.size() > 1 ? ",\"" : "\"") + name + R"(":{"dtype":"U8","shape":)" + shape +
              R"(,"data_offsets":[)" + std::to_string(end) + "," + std::to_string(end + bytes) +
              "]}";
    end += bytes;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  auto file = trace_samples::safetensors_bytes(header, std::string(end, '\0'));
  return file.substr(0, 8 + header.size()) + numbered(file).substr(8 + header.size());
}

TEST_F(expert_files, of_safetensors_lie_apart_in_any_file_of_the_folder) {
  const std::vector<std::string> bytes{
      safetensors({{"model.layers.1.mlp.experts.1.up_proj.weight", 0},
                   {"model.layers.1.mlp.experts.0.down_proj.weight", 0},
                   {"model.layers.1.mlp.gate.weight", 0}}),
      safetensors({{"model.layers.1.mlp.experts.0.up_proj.weight", 0},
                   {"model.layers.1.mlp.shared_experts.up_proj.weight", 0},
                   {"model.layers.1.mlp.experts.1.down_proj.weight", 0}})};
  (void)write("model-00001-of-00002.safetensors", bytes[0]);
  (void)write("model-00002-of-00002.safetensors", bytes[1]);
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
  const auto files = find_experts(write("model.safetensors", bytes));
  EXPECT_EQ(files.shape.experts, 4);
  expect_reads(files, {bytes});
}

TEST_F(expert_files, what_is_missing_is_named) {
  const auto refuse = [&](const std::vector<std::pair<std::string, std::uint64_t>>& tensors,
                          std::initializer_list<std::string_view> parts) {
    const auto path = write("model.safetensors", safetensors(tensors));
    expect_refused([&] { (void)find_experts(path); }, parts);
  };
  refuse({{"model.layers.0.mlp.up_proj.weight", 0}}, {"no tensors of routed experts"});
  refuse({{"model.layers.0.mlp.experts.0.up", 0}, {"model.layers.0.mlp.experts.2.up", 0}},
         {"layer 0, 'up'", "has expert 2 where 1 should be", "is a file missing?"});
  refuse({{"model.layers.0.mlp.experts.0.up", 0},
          {"model.layers.0.mlp.experts.1.up", 0},
          {"model.layers.1.mlp.experts.0.up", 0}},
         {"layer 1, 'up'", "is of 1 experts", "2, as elsewhere"});
  refuse({{"model.layers.0.mlp.experts.0.up", 0}, {"model.layers.0.mlp.experts.1.up", 2}},
         {"expert 1 has 16 bytes", "8, as expert 0"});
  std::vector<std::pair<std::string, std::uint64_t>> many;
  for (int t = 0; t < 9; ++t)
    many.emplace_back("model.layers.0.mlp.experts.t" + std::to_string(t), 2);
  refuse(many, {"layer 0", "has experts of 9 tensors", "1..8"});
  expect_refused([&] { (void)find_experts(folder_.path() / "absent.gguf"); }, {"absent.gguf"});
}

TEST_F(expert_files, a_file_that_was_cut_is_refused) {
  const auto bytes = gguf::small_model().bytes();
  const auto path = write("m.gguf", std::string_view(bytes).substr(0, bytes.size() - 1));
  expect_refused([&] { (void)find_experts(path); }, {"pass the file's end"});
}

}  // namespace
}  // namespace expert_files_test
