// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/model/model.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "hotset/core/error.hpp"
#include "tiny_moe/model/engine.hpp"
#include "tiny_moe/studies/reference_check.hpp"

namespace model_test {
namespace {

using namespace tiny_moe;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write(const std::filesystem::path& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  ASSERT_TRUE(out.flush()) << path;
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
}

// A copy of the model that a test may damage.
class model_folder : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("hotset_tiny_moe_" + std::to_string(::getpid()) + "_" + test->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    const std::filesystem::path source = HOTSET_TINY_MOE_DIR;
    config_ = read(source / "config.json");
    tensors_ = read(source / "model.safetensors");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void save() const {
    write(folder_ / "config.json", config_);
    write(folder_ / "model.safetensors", tensors_);
  }

  // What opening the folder says; every message is one line.
  [[nodiscard]] std::string refusal() const {
    save();
    try {
      const model opened(folder_);
    } catch (const hotset::trace_error& error) {
      EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
      return error.what();
    }
    return "accepted";
  }

  // The header keeps its length: blanks at its end make up for what an edit adds.
  void edit_header(std::string_view from, std::string_view to) {
    std::uint64_t length = 0;
    std::memcpy(&length, tensors_.data(), sizeof length);
    std::string header = tensors_.substr(8, length);
    replace(header, from, to);
    length = header.size();
    tensors_ = std::string(reinterpret_cast<const char*>(&length), sizeof length) + header +
               tensors_.substr(8 + length_of_original());
  }

  [[nodiscard]] static std::size_t length_of_original() {
    const hotset::lab::safetensors_file file(std::filesystem::path(HOTSET_TINY_MOE_DIR) /
                                             "model.safetensors");
    return static_cast<std::size_t>(file.at(file.names().front()).offset) - 8;
  }

  std::filesystem::path folder_;
  std::string config_;
  std::string tensors_;
};

TEST_F(model_folder, as_it_is_opens) {
  EXPECT_EQ(refusal(), "accepted");
  const model opened(folder_);
  EXPECT_EQ(opened.config().layers, 12U);
  EXPECT_EQ(opened.config().experts, 32U);
  EXPECT_EQ(opened.config().top_k, 4U);
  EXPECT_EQ(opened.config().heads, 4U);
  EXPECT_EQ(opened.config().head_size, 24U);
  EXPECT_EQ(opened.config().hidden_size, 96U);
  EXPECT_EQ(opened.config().inner_size, 40U);
  EXPECT_EQ(opened.config().max_positions, 2048U);
}

TEST_F(model_folder, a_missing_file_is_named) {
  save();
  std::filesystem::remove(folder_ / "config.json");
  try {
    const model opened(folder_);
    FAIL();
  } catch (const hotset::trace_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("config.json"));
  }
  write(folder_ / "config.json", config_);
  std::filesystem::remove(folder_ / "model.safetensors");
  try {
    const model opened(folder_);
    FAIL();
  } catch (const hotset::trace_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.safetensors"));
  }
}

TEST_F(model_folder, a_config_that_is_no_json_object_is_refused) {
  for (const std::string_view text :
       {"", "{", "{\"a\": }", "[]", "3", "null", "{\"x\": 1e999}", "\xFF\xFE"}) {
    config_ = text;
    EXPECT_THAT(refusal(), AllOf(HasSubstr("config.json"), HasSubstr("JSON object"))) << text;
  }
  config_.assign(100000, '[');
  EXPECT_THAT(refusal(), HasSubstr("config.json"));
}

TEST_F(model_folder, a_config_value_out_of_range_is_named_with_its_range) {
  const struct {
    std::string_view from, to, key, accepted;
  } cases[] = {
      {"\"num_experts\": 32", "\"num_experts\": 0", "'num_experts'", "a multiple of 8 in 8..4096"},
      {"\"num_experts\": 32", "\"num_experts\": -32", "'num_experts'", "8..4096"},
      {"\"num_experts\": 32", "\"num_experts\": 33", "'num_experts'", "8..4096"},
      {"\"num_experts\": 32", "\"num_experts\": 32.0", "'num_experts'", "8..4096"},
      {"\"num_experts\": 32", "\"num_experts\": \"32\"", "'num_experts'", "8..4096"},
      {"\"num_experts\": 32", "\"other\": 32", "'num_experts'", "missing"},
      {"\"num_experts_per_tok\": 4", "\"num_experts_per_tok\": 33", "'num_experts_per_tok'",
       "1..32"},
      {"\"num_hidden_layers\": 12", "\"num_hidden_layers\": 18446744073709551615",
       "'num_hidden_layers'", "1..512"},
      {"\"hidden_size\": 96", "\"hidden_size\": 98", "'hidden_size'", "a multiple of 8"},
      {"\"head_dim\": 24", "\"head_dim\": 4", "'head_dim'", "8..512"},
      {"\"vocab_size\": 256", "\"vocab_size\": 32000", "'vocab_size'", "256"},
      {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "'hidden_act'", "silu"},
      {"\"norm_topk_prob\": true", "\"norm_topk_prob\": false", "'norm_topk_prob'", "true"},
      {"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 0", "'rms_norm_eps'", "1e-12..1"},
      {"\"rope_theta\": 10000.0", "\"rope_theta\": null", "'rope_theta'", "1..1e+09"},
      {"\"max_position_embeddings\": 2048", "\"max_position_embeddings\": 0",
       "'max_position_embeddings'", "1..1048576"},
  };
  const std::string original = config_;
  for (const auto& one : cases) {
    config_ = original;
    replace(config_, one.from, one.to);
    EXPECT_THAT(refusal(),
                AllOf(HasSubstr("config.json"), HasSubstr(one.key), HasSubstr(one.accepted)))
        << one.to;
  }
}

TEST_F(model_folder, a_config_of_another_shape_than_the_tensors_is_refused) {
  replace(config_, "\"moe_intermediate_size\": 40", "\"moe_intermediate_size\": 48");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("model.safetensors"),
                               HasSubstr("model.layers.0.mlp.experts.0.gate_proj.weight"),
                               HasSubstr("[40, 96]"), HasSubstr("[48, 96]")));
}

TEST_F(model_folder, more_layers_than_the_file_holds_are_refused) {
  replace(config_, "\"num_hidden_layers\": 12", "\"num_hidden_layers\": 13");
  EXPECT_THAT(refusal(), HasSubstr("model.layers.12.input_layernorm.weight"));
}

TEST_F(model_folder, a_truncated_file_is_refused_wherever_it_ends) {
  const std::string original = tensors_;
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{100}, std::size_t{139263},
        std::size_t{139264}, original.size() / 2, original.size() - 1}) {
    tensors_ = original.substr(0, size);
    EXPECT_THAT(refusal(), HasSubstr("model.safetensors")) << size;
  }
}

TEST_F(model_folder, a_header_length_of_two_to_the_63_is_refused) {
  const std::uint64_t length = std::uint64_t{1} << 63U;
  std::memcpy(tensors_.data(), &length, sizeof length);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("model.safetensors"), HasSubstr("header length")));
}

TEST_F(model_folder, another_dtype_is_refused) {
  edit_header(R"("model.norm.weight":{"dtype":"F16")", R"("model.norm.weight":{"dtype":"BF16")");
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("model.norm.weight"), HasSubstr("BF16"), HasSubstr("F16 [96]")));
}

TEST_F(model_folder, a_missing_expert_is_named) {
  edit_header("experts.31.up_proj", "experts.99.up_proj");
  EXPECT_THAT(refusal(), HasSubstr("model.layers.0.mlp.experts.31.up_proj.weight"));
}

TEST_F(model_folder, a_dense_weight_that_is_not_finite_is_refused) {
  const std::uint16_t infinity = 0x7C00;
  std::memcpy(tensors_.data() + 8 + length_of_original(), &infinity, sizeof infinity);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("model.embed_tokens.weight"), HasSubstr("element 0"),
                               HasSubstr("finite")));
}

TEST_F(model_folder, tensors_at_odd_addresses_give_the_same_bytes) {
  save();
  const model even(folder_);
  const auto other = folder_ / "odd";
  std::filesystem::create_directories(other);
  edit_header("{", "{ ");  // one byte more: the data moves by one
  write(other / "config.json", config_);
  write(other / "model.safetensors", tensors_);
  const model odd(other);

  const auto logits_of = [](const model& weights) {
    resident_experts experts(weights);
    engine decoder(weights, experts);
    const std::vector<std::uint8_t> tokens{'o', 'd', 'd'};
    const auto logits = decoder.forward(tokens);
    return std::vector<float>(logits.begin(), logits.end());
  };
  EXPECT_EQ(logits_of(even), logits_of(odd));
}

TEST_F(model_folder, a_reference_that_does_not_fit_is_refused) {
  save();
  const model opened(folder_);
  resident_experts experts(opened);
  try {
    (void)check_reference(opened, experts, folder_ / "model.safetensors");
    FAIL();
  } catch (const hotset::trace_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no prompts"));
  }
}

}  // namespace
}  // namespace model_test
