// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/model/model.hpp"

#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/error.hpp"
#include "sim_samples.hpp"
#include "tiny_moe/model/engine.hpp"
#include "tiny_moe/studies/reference_check.hpp"
#include "trace_samples.hpp"

namespace model_test {
namespace {

using namespace tiny_moe;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using trace_samples::expect_refused;
using trace_samples::read_all;

void replace(std::string& text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
}

// A copy of the model that a test may damage.
class model_folder : public testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path source = HOTSET_TINY_MOE_DIR;
    config_ = read_all(source / "config.json");
    tensors_ = read_all(source / "model.safetensors");
  }
  void save() const {
    folder_.write("config.json", config_);
    folder_.write("model.safetensors", tensors_);
  }

  // The error message when the folder is opened; always one line.
  [[nodiscard]] std::string refusal() const {
    save();
    auto said =
        hotset::support::refusal<hotset::trace_error>([&] { const model opened(folder_.path()); });
    EXPECT_THAT(said, Not(HasSubstr("\n")));
    return said;
  }

  // Trailing blanks keep the header's length after an edit.
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

  trace_samples::temporary_folder folder_;
  std::string config_;
  std::string tensors_;
};

TEST_F(model_folder, as_it_is_opens) {
  save();
  const model opened(folder_.path());
  const auto& c = opened.config();
  EXPECT_THAT((std::array{c.layers, c.experts, c.top_k, c.heads, c.head_size, c.hidden_size,
                          c.inner_size, c.max_positions}),
              testing::ElementsAre(12U, 32U, 4U, 4U, 24U, 96U, 40U, 2048U));
}

TEST_F(model_folder, a_missing_file_is_named) {
  for (const char* name : {"config.json", "model.safetensors"}) {
    save();
    std::filesystem::remove(folder_.path() / name);
    expect_refused([&] { const model opened(folder_.path()); }, {name});
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
    std::string key, from, to, accepted;
  } cases[] = {
      {"num_experts", "32", "0", "a multiple of 8 in 8..4096"},
      {"num_experts", "32", "-32", "8..4096"},
      {"num_experts", "32", "33", "8..4096"},
      {"num_experts", "32", "32.0", "8..4096"},
      {"num_experts", "32", "\"32\"", "8..4096"},
      {"num_experts_per_tok", "4", "33", "1..32"},
      {"num_hidden_layers", "12", "18446744073709551615", "1..512"},
      {"hidden_size", "96", "98", "a multiple of 8"},
      {"head_dim", "24", "4", "8..512"},
      {"vocab_size", "256", "32000", "256"},
      {"hidden_act", "\"silu\"", "\"gelu\"", "silu"},
      {"norm_topk_prob", "true", "false", "true"},
      {"rms_norm_eps", "1e-05", "0", "1e-12..1"},
      {"rope_theta", "10000.0", "null", "1..1e+09"},
      {"max_position_embeddings", "2048", "0", "1..1048576"},
  };
  const std::string original = config_;
  const auto expect_named = [&](const std::string& key, std::string_view accepted) {
    EXPECT_THAT(refusal(),
                AllOf(HasSubstr("config.json"), HasSubstr("'" + key + "'"), HasSubstr(accepted)));
  };
  for (const auto& one : cases) {
    config_ = original;
    const auto name = "\"" + one.key + "\": ";
    replace(config_, name + one.from, name + one.to);
    expect_named(one.key, one.accepted);
  }
  config_ = original;
  replace(config_, "\"num_experts\"", "\"other\"");
  expect_named("num_experts", "missing");
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
  const model even(folder_.path());
  const trace_samples::temporary_folder other;
  edit_header("{", "{ ");  // one byte more: the data moves by one
  other.write("config.json", config_);
  other.write("model.safetensors", tensors_);
  const model odd(other.path());

  const auto logits_of = [](const model& weights) {
    resident_experts experts(weights);
    engine decoder(weights, experts);
    const auto logits = decoder.forward(std::vector<std::uint8_t>{'o', 'd', 'd'});
    return std::vector<float>(logits.begin(), logits.end());
  };
  EXPECT_EQ(logits_of(even), logits_of(odd));
}

TEST_F(model_folder, a_reference_that_does_not_fit_is_refused) {
  save();
  const model opened(folder_.path());
  resident_experts experts(opened);
  expect_refused(
      [&] { (void)check_reference(opened, experts, folder_.path() / "model.safetensors"); },
      {"no prompts"});
}

}  // namespace
}  // namespace model_test
