// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/experts/adapter_files.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/files/safetensors.hpp"
#include "paging_samples.hpp"
#include "tiny_moe/studies/quality.hpp"
#include "trace_samples.hpp"

namespace adapter_files_test {
namespace {

using namespace hotset::literals;
using namespace paging_samples;
using testing::ElementsAre;
using testing::IsEmpty;
using trace_samples::expect_refused;
using trace_samples::temporary_folder;

const model_config& shape() { return weights().config(); }
std::size_t matrix_halves() { return shape().hidden_size * shape().inner_size; }

/// Neighbouring weights differ, and none is infinite.
adapter_weights sample() {
  tuned_experts tuned(shape().layers);
  tuned[0] = {1_expert, 30_expert};
  tuned[5] = {7_expert};
  tuned[11] = {0_expert, 1_expert, 31_expert};
  std::vector<std::uint16_t> halves(6 * 3 * matrix_halves());
  for (std::size_t i = 0; i < halves.size(); ++i)
    halves[i] = static_cast<std::uint16_t>(i % 0x7BFF);
  return {shape(), "sample", std::move(tuned), std::move(halves)};
}

std::vector<std::uint16_t> halves_of(const std::uint16_t* matrix) {
  return {matrix, matrix + matrix_halves()};
}
void expect_same(const adapter_weights& a, const adapter_weights& b) {
  ASSERT_EQ(a.tuned(), b.tuned());
  for (std::size_t l = 0; l < a.tuned().size(); ++l)
    for (std::size_t i = 0; i < a.tuned()[l].size(); ++i) {
      SCOPED_TRACE(testing::Message() << "layer " << l << ", place " << i);
      EXPECT_EQ(halves_of(a.expert(l, i).gate), halves_of(b.expert(l, i).gate));
      EXPECT_EQ(halves_of(a.expert(l, i).up), halves_of(b.expert(l, i).up));
      EXPECT_EQ(halves_of(a.expert(l, i).down), halves_of(b.expert(l, i).down));
    }
}

TEST(adapter_files, the_format_is_that_of_the_models_own_file) {
  const auto format = format_of(shape());
  EXPECT_EQ(format.base.layers, 12);
  EXPECT_EQ(format.base.experts, 32);
  EXPECT_EQ(format.base.first_layer, 0);
  EXPECT_EQ(format.dtype, "F16");
  EXPECT_THAT(format.expert_bytes(), ElementsAre(7680, 7680, 7680));
  const hotset::lab::safetensors_file file(std::filesystem::path(HOTSET_TINY_MOE_DIR) /
                                           "model.safetensors");
  for (const auto& weight : format.weights) {
    ASSERT_EQ(weight.size(), 1U);
    const auto& matrix = weight.front();
    const auto& tensor = file.at("model.layers.3.mlp.experts.17." + matrix.name + ".weight");
    EXPECT_EQ(tensor.dtype, "F16");
    EXPECT_THAT(tensor.shape, ElementsAre(matrix.rows, matrix.columns));
  }
}

TEST(adapter_files, an_adapter_is_read_as_it_was_written) {
  const temporary_folder folder;
  const auto wanted = sample();
  write_adapter(folder.path() / "law", shape(), wanted);
  const auto found = read_adapter(shape(), folder.path() / "law");
  EXPECT_EQ(found.name(), "law") << "the folder's name and not the writer's";
  expect_same(found, wanted);
}

// ESFT lists a layer's experts by score.
TEST(adapter_files, experts_may_be_listed_in_any_order) {
  const temporary_folder folder;
  const auto wanted = sample();
  write_adapter(folder.path(), shape(), wanted);
  folder.write("expert_cfg.json",
               R"({"experts": {"11": [31, 0, 1], "0": [30, 1], "5": [7]}, "shared_experts": false,)"
               R"( "non_expert_modules": false})");
  expect_same(read_adapter(shape(), folder.path()), wanted);
}

TEST(adapter_files, an_adapter_is_called_as_its_folder) {
  EXPECT_EQ(adapter_name("somewhere/law"), "law");
  EXPECT_EQ(adapter_name("somewhere/law/"), "law");
  EXPECT_EQ(adapter_name("somewhere/law/."), "law");
  EXPECT_EQ(adapter_name("law.v2"), "law.v2");
  EXPECT_EQ(adapter_name("."), std::filesystem::current_path().filename().string());
}

TEST(adapter_files, an_adapter_of_another_model_is_refused) {
  const temporary_folder folder;
  write_adapter(folder.path(), shape(), sample());
  const auto refused = [&](std::size_t model_config::*member, std::size_t value,
                           std::string_view place) {
    auto other = shape();
    other.*member = value;
    expect_refused([&] { (void)read_adapter(other, folder.path()); },
                   {folder.path().string(), place});
  };
  refused(&model_config::layers, 11, "layer 11");
  refused(&model_config::experts, 24, "layer 0: expert 1 is 30");
  refused(&model_config::inner_size, 48, "experts.1.");
  refused(&model_config::hidden_size, 48, "experts.1.");
}

TEST(adapter_files, a_folder_that_is_none_of_an_adapter_is_refused) {
  const temporary_folder folder;
  const auto read = [&] { (void)read_adapter(shape(), folder.path()); };
  expect_refused(read, {(folder.path() / "expert_cfg.json").string()});
  write_adapter(folder.path(), shape(), sample());
  folder.write("expert_cfg.json", R"({"experts": {"0": [1]}})");
  expect_refused(read, {folder.path().string()});
  std::filesystem::remove(folder.path() / "model.safetensors");
  expect_refused(read, {folder.path().string()});
}

// Adapters that the repository contains.

constexpr std::string_view scripture =
    R"(Therefore let every one of you bear the burden of his brother, and be not weary: for he that giveth shall receive.
And when the elders were gathered together, one of them stood up and said, What shall we answer unto them that sent us?
Now I beseech you, brethren, that ye walk in peace one toward another, being patient in all things.
)";

/// The tool adapter's gain (its README.md) is too small to show in a text of this length.
struct committed {
  const char* name;
  bool is_cheaper = true;
};
void PrintTo(const committed& one, std::ostream* out) { *out << one.name; }

class committed_adapters : public testing::TestWithParam<committed> {};

TEST_P(committed_adapters, are_read_and_change_the_cost_of_their_kind_of_text) {
  const auto folder = std::filesystem::path(HOTSET_TINY_MOE_DIR) / "adapters" / GetParam().name;
  const auto adapter = read_adapter(shape(), folder);
  EXPECT_EQ(adapter.name(), GetParam().name);
  for (const auto& of_layer : adapter.tuned()) EXPECT_THAT(of_layer, testing::Not(IsEmpty()));
  const auto prompt = [](const char* number) {
    return trace_samples::read_all(std::filesystem::path(HOTSET_TINY_MOE_DIR) / "prompts" /
                                   (GetParam().name + std::string(number)));
  };
  // The prose prompts are from another period than the adapter's training text.
  const auto words =
      bytes_of(GetParam().name == std::string_view("prose") ? std::string(scripture)
                                                            : prompt("-1.txt") + prompt("-2.txt"));
  resident_experts resident(weights());
  merged_experts merged(weights(), adapter);
  const auto base = bits_per_byte(weights(), resident, words);
  const auto tuned = bits_per_byte(weights(), merged, words);
  EXPECT_NE(tuned, base);
  EXPECT_TRUE(!GetParam().is_cheaper || tuned < base) << tuned << " " << base;
}

INSTANTIATE_TEST_SUITE_P(tiny_moe, committed_adapters,
                         testing::Values(committed{"code"}, committed{"prose"},
                                         committed{"tool", false}),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace adapter_files_test
