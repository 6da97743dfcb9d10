// SPDX-License-Identifier: Apache-2.0
#include "hotset/lab/esft_config.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/adapters/adapter_layout.hpp"
#include "sim_samples.hpp"
#include "temporary_folder.hpp"

namespace hotset::lab::esft_config_test {
namespace {

using support::refusal;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const esft_base two_layers{.layers = 2, .experts = 8, .first_layer = {}};
const esft_base from_1{.layers = 3, .experts = 8, .first_layer = 1};

std::string refused(std::string_view text, const esft_base& base = two_layers) {
  return refusal<trace_error>([&] { (void)parse_esft_config(text, "a.json", base); });
}

TEST(esft_config, keeps_the_files_order_of_experts_and_sorts_layers_by_number) {
  const auto config = parse_esft_config(
      R"({"experts": {"10": [7, 0], "9": [3, 1, 2]}, "shared_experts": false, "non_expert_modules": false})",
      "a.json", two_layers);
  EXPECT_THAT(config.layer_numbers, ElementsAre(9, 10));
  EXPECT_THAT(config.tuned[0], ElementsAre(3, 1, 2));
  EXPECT_THAT(config.tuned[1], ElementsAre(7, 0));
  EXPECT_THAT(config.counts(), ElementsAre(3, 2));
}

TEST(esft_config, with_a_first_layer_unnamed_experts_are_the_base_models) {
  const auto config = parse_esft_config(R"({"experts": {"3": [5], "1": []}})", "a.json", from_1);
  EXPECT_THAT(config.layer_numbers, ElementsAre(1, 2, 3));
  EXPECT_THAT(config.tuned[0], IsEmpty());
  EXPECT_THAT(config.tuned[1], IsEmpty());
  EXPECT_THAT(config.tuned[2], ElementsAre(5));
}

TEST(esft_config, is_written_as_it_is_read) {
  const std::string text =
      "{\"experts\": {\"9\": [3, 1], \"10\": []}, \"shared_experts\": false, "
      "\"non_expert_modules\": false}\n";
  EXPECT_EQ(format_esft_config(parse_esft_config(text, "a.json", two_layers)), text);
}

TEST(esft_config, refuses_adapters_that_tuned_more_than_routed_experts) {
  EXPECT_EQ(refused(R"({"experts": {"1": [0], "2": [1]}, "shared_experts": true})"),
            "a.json: key 'shared_experts': is true; accepted: false: adapters that tuned routed "
            "experts and nothing else");
  EXPECT_THAT(refused(R"({"experts": {"1": [0], "2": [1]}, "non_expert_modules": true})"),
              HasSubstr("key 'non_expert_modules': is true"));
  EXPECT_EQ(refused(R"({"experts": {"1": [0], "2": [1]}, "shared_experts": 0})"),
            "a.json: key 'shared_experts': is 0; accepted: false");
}

TEST(esft_config, refuses_peft_by_name) {
  EXPECT_THAT(refused(R"({"peft_type": "LORA", "r": 16, "target_modules": ["q_proj"],
                          "target_parameters": null})"),
              HasSubstr("a.json: is a PEFT adapter (peft_type \"LORA\", r 16, target_modules "
                        "[\"q_proj\"]), which adds to weights; accepted: an ESFT"));
  const support::temporary_folder folder;
  folder.write("adapter_config.json", R"({"peft_type": "LORA"})");
  EXPECT_THAT(refusal<trace_error>([&] { (void)read_esft_config(folder.path(), two_layers); }),
              HasSubstr("adapter_config.json: is a PEFT adapter"));
  const std::string header =
      R"({"m.layers.1.mlp.experts.0.up_proj.lora_A.weight":{"dtype":"F32","shape":[2,128],"data_offsets":[0,1024]},)"
      R"("m.layers.1.self_attn.q_proj.lora_A.weight":{"dtype":"F32","shape":[2,128],"data_offsets":[1024,2048]}})";
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size() % 256);
  length[1] = static_cast<char>(header.size() / 256);
  folder.write("adapter_model.safetensors", length + header);
  EXPECT_THAT(refusal<trace_error>([&] { (void)read_esft_config(folder.path(), two_layers); }),
              HasSubstr("add 2 KiB (of which 1 KiB for the experts of 1 layers) to --resident-"));
}

TEST(esft_config, refuses_experts_that_there_are_not) {
  EXPECT_EQ(refused(R"({"experts": {"1": [0, 8], "2": [1]}})"),
            "a.json: layer 1: expert 1 is 8; accepted: 0..7");
  for (const char* bad : {"-1", "1.0", "\"3\"", "null", "[1]", "18446744073709551616"})
    EXPECT_THAT(refused(std::string(R"({"experts": {"1": [0, )") + bad + R"(], "2": [1]}})"),
                HasSubstr("a.json: layer 1: expert 1 is "))
        << bad;
  EXPECT_EQ(refused(R"({"experts": {"1": [4, 0, 4], "2": [1]}})"),
            "a.json: layer 1: expert 4 is there twice; accepted: each expert once");
}

TEST(esft_config, refuses_layers_that_have_no_experts) {
  EXPECT_EQ(refused(R"({"experts": {"1": [0], "2": [0], "3": [0]}})"),
            "a.json: key 'experts': has 3 layers; accepted: those with experts, 2");
  EXPECT_EQ(
      refused(R"({"experts": {"1": [0]}})"),
      "a.json: key 'experts': has 1 layers; accepted: 2, or fewer where the first MoE layer is "
      "given");
  EXPECT_EQ(refused(R"({"experts": {"0": [0]}})", from_1),
            "a.json: layer 0: is no MoE layer; accepted: 1..3");
  EXPECT_THAT(refused(R"({"experts": {"4": [0]}})", from_1), HasSubstr("layer 4"));
  for (const char* bad : {"", "one", "-1", "01", "1 ", "65536", "99999999999"})
    EXPECT_THAT(refused(std::string(R"({"experts": {")") + bad + R"(": [0], "2": [1]}})"),
                HasSubstr("is no layer's number; accepted: 0..65535"))
        << bad;
}

TEST(esft_config, refuses_invalid_configurations) {
  for (const auto& [text, said] :
       {std::pair("",
                  "ends before its JSON does (is it cut short?); accepted: an ESFT "
                  "configuration, a JSON object"),
        {"{}", "key 'experts': is missing; accepted: an object of layer: [expert, ...]"},
        {R"({"experts": [1]})",
         "key 'experts': is an array of 1; accepted: an object of layer: [expert, ...]"},
        {R"({"experts": {"1": 4, "2": []}})", "layer 1: is 4; accepted: an array of experts"},
        {R"({"experts": {"1": [1], "1": [2], "2": []}})",
         "key '1': is there twice; accepted: each key once"}})
    EXPECT_EQ(refused(text), std::string("a.json: ") + said);
}

class published_configurations : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string_view(HOTSET_DATA_DIR).empty())
      GTEST_SKIP() << "HOTSET_DATA_DIR is empty: published configurations are not available";
    if (!std::filesystem::exists(folder()))
      GTEST_SKIP() << "HOTSET_DATA_DIR holds no folder 'adapters/esft'";
  }
  static std::filesystem::path folder() {
    return std::filesystem::path(HOTSET_DATA_DIR) / "adapters" / "esft";
  }
  static esft_config read(const std::string& name) {
    return read_esft_config(folder() / (name + ".json"),
                            {.layers = 26, .experts = 64, .first_layer = 1});
  }
  /// intent, law, summary, translation, and again from the first.
  static adapter_layout layout(std::size_t adapters, std::vector<std::uint64_t> tensors) {
    const std::vector<std::string> names{"intent", "law", "summary", "translation"};
    adapter_layout::config setup{
        .layers = 26, .experts = 64, .tensor_bytes = std::move(tensors), .tuned = {}};
    for (std::size_t a = 0; a < adapters; ++a)
      std::ranges::copy(read(names[a % 4]).counts(), std::back_inserter(setup.tuned));
    return adapter_layout::create(std::move(setup)).value();
  }
};

TEST_F(published_configurations, have_the_known_sparsity) {
  const auto all = layout(4, {1});
  const std::vector<double> sparsity{.21, .35, .38, .20};
  const std::vector<std::int32_t> most{6, 9, 8, 4};
  const std::vector<std::uint64_t> tuned{124, 153, 128, 83};
  for (std::size_t a = 0; a < 4; ++a) {
    EXPECT_NEAR(all.sparsity(a), sparsity[a], .0051) << a;
    EXPECT_EQ(all.most_tuned(a), most[a]) << a;
    EXPECT_EQ(all.tuned(a), tuned[a]) << a;
  }
}

TEST_F(published_configurations, name_all_layers_so_that_their_order_is_enough) {
  const auto by_order =
      read_esft_config(folder() / "law.json", {.layers = 26, .experts = 64, .first_layer = {}});
  EXPECT_EQ(by_order.layer_numbers, read("law").layer_numbers);
  EXPECT_EQ(by_order.tuned, read("law").tuned);
}

// Experts of 0.9 MB: a page holds two, so one page per run needs more memory than padding for one adapter.
TEST_F(published_configurations, of_small_experts_are_smallest_without_gaps) {
  const auto added = [](std::uint64_t bytes) {
    constexpr std::uint64_t base = 26 * 64 * 900'000;
    return (static_cast<double>(bytes) - static_cast<double>(base)) / (1024.0 * 1024 * 1024);
  };
  const auto ten = layout(10, {600'000, 300'000});
  EXPECT_NEAR(added(ten.exact_bytes()), 1.05, .0051);
  EXPECT_NEAR(added(ten.virtual_bytes()), 1.83, .0051);
  EXPECT_NEAR(added(ten.padding_bytes()), 1.96, .0051);
  EXPECT_NEAR(added(ten.dense_bytes()), 1.10, .0051);
  const auto one = layout(1, {600'000, 300'000});
  EXPECT_NEAR(added(one.virtual_bytes()), .140, .00051);
  EXPECT_NEAR(added(one.padding_bytes()), .131, .00051);
}

TEST(esft_config, a_folder_means_its_expert_cfg) {
  const support::temporary_folder folder;
  folder.write("expert_cfg.json", R"({"experts": {"1": [2], "2": [3]}})");
  folder.write("model.safetensors", "not looked at");
  EXPECT_THAT(read_esft_config(folder.path(), two_layers).tuned,
              ElementsAre(ElementsAre(2), ElementsAre(3)));
  const auto gone = folder.path() / "gone";
  EXPECT_THAT(refusal<trace_error>([&] { (void)read_esft_config(gone, two_layers); }),
              HasSubstr(gone.string()));
}

}  // namespace
}  // namespace hotset::lab::esft_config_test
