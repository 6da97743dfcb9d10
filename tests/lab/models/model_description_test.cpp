// SPDX-License-Identifier: Apache-2.0
#include "lab/models/model_description.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "block_sums.hpp"
#include "lab/errors.hpp"
#include "lab/sizes.hpp"
#include "sim_samples.hpp"
#include "trace_samples.hpp"

namespace hotset::model_description_test {
namespace {

using json = nlohmann::ordered_json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using trace_samples::expect_refused;

// Published files have these bytes: all routed + the rest is the size of OLMoE, of DeepSeek-V3 (less its prediction
// layer), Kimi-VL (less 3456 of rotary buffers), MiniMax-M2, both gpt-oss and LLaDA-MoE; of the others it is twice the
// parameters.
struct known_model {
  const char* name;
  int layers, experts, top_k;
  std::uint64_t expert, resident, kv_token, max_context;
  std::uint64_t published;  ///< bytes of the files
};
constexpr known_model known_models[] = {
    {"olmoe-1b-7b", 16, 64, 8, 12582912, 953421824, 131072, 4096, 2 * 6919161856U},
    {"mixtral-8x7b", 32, 8, 2, 352321536, 3211272192, 131072, 32768, 2 * 46702792704U},
    {"qwen1.5-moe-a2.7b", 24, 60, 4, 17301504, 3717402624, 196608, 8192, 2 * 14315784192U},
    {"qwen3-30b-a3b", 48, 128, 8, 9437184, 3082186752, 98304, 40960, 2 * 30532122624U},
    {"phi-3.5-moe", 32, 16, 2, 157286400, 3215669888, 131072, 131072, 2 * 41873153344U},
    {"deepseek-v2-lite", 26, 64, 6, 17301504, 2623265792, 31104, 163840, 2 * 15706484224U},
    {"deepseek-v3", 58, 256, 8, 44050944, 19082195296, 70272, 163840, 688574839360U - 15424227552U},
    {"kimi-vl-a3b", 26, 64, 6, 17301504, 3130517760 + 895091680, 31104, 0, 32815315552U - 3456U},
    {"jamba-v0.1", 16, 16, 2, 352321536, 12946333440, 16384, 262144, 2 * 51570323328U},
    {"minimax-m2", 62, 256, 8, 14159232, 5386300416, 253952, 196608, 230121630720U},
    {"gpt-oss-20b", 24, 32, 4, 13236480, 3595648128, 24576, 131072, 13761264768U},
    {"gpt-oss-120b", 36, 128, 4, 13236480, 4255115904, 36864, 131072, 65248815744U},
    {"llada-moe", 16, 64, 8, 12582912, 1828859904, 0, 8192, 14713761792U},
};

TEST(model_presets, agree_with_the_published_files_to_the_byte) {
  std::vector<std::string> names;
  for (const auto& known : known_models) {
    const auto out = lab::describe_model(known.name);
    const auto& m = out.memory;
    names.emplace_back(known.name);
    ASSERT_FALSE(m.validate()) << known.name;
    EXPECT_EQ(m.name, known.name);
    EXPECT_THAT(out.source, HasSubstr(known.name));
    EXPECT_EQ(m.experts.layers, known.layers) << known.name;
    EXPECT_EQ(m.experts.experts, known.experts) << known.name;
    EXPECT_EQ(m.experts.top_k, known.top_k) << known.name;
    EXPECT_THAT(m.experts.expert_bytes, ElementsAre(known.expert)) << known.name;
    EXPECT_EQ(m.resident_bytes, known.resident) << known.name;
    EXPECT_EQ(m.kv_bytes_per_token(), known.kv_token) << known.name;
    EXPECT_EQ(m.max_context, known.max_context) << known.name;
    EXPECT_EQ(m.all_expert_bytes() + m.resident_bytes, known.published) << known.name;
  }
  EXPECT_EQ(lab::model_names(), names);
}

TEST(model_presets, windows_and_states_are_those_of_their_layers) {
  const auto small = lab::describe_model("gpt-oss-20b");
  EXPECT_THAT(small.memory.kv, ElementsAre(kv_layers{12, 2048, 0}, kv_layers{12, 2048, 128}));
  EXPECT_EQ(small.memory.kv_bytes(1000), 24576U * 1000 + 3145728);
  EXPECT_THAT(small.notes, Contains(HasSubstr("sliding window 128 of 12 layers")));
  const auto large = lab::describe_model("gpt-oss-120b").memory;
  EXPECT_EQ(large.kv_bytes(128), 73728U * 128);
  EXPECT_EQ(large.kv_bytes(129), 36864U * 129 + 4718592);
  const auto jamba = lab::describe_model("jamba-v0.1");
  EXPECT_THAT(jamba.memory.kv, ElementsAre(kv_layers{4, 4096, 0}));
  EXPECT_EQ(jamba.memory.state_bytes_per_sequence, 8716288U);
  EXPECT_THAT(jamba.notes, Contains(HasSubstr("a convolution state of 3 (as vLLM keeps it)")));
  EXPECT_THAT(lab::describe_model("phi-3.5-moe").notes,
              ElementsAre(HasSubstr("sliding window 131072 never binds")));
}

TEST(model_presets, blocks_are_the_whole_decoder) {
  for (const auto& name : lab::model_names()) {
    const auto m = lab::describe_model(name).memory;
    support::expect_blocks_add_up(m);
    std::uint64_t inside = 0;
    for (const auto& b : m.blocks) inside += b.resident_bytes;
    EXPECT_LT(inside, m.resident_bytes) << "the embeddings are in none";
  }
  const auto is_moe = [](const char* name, std::size_t block) {
    return lab::describe_model(name).memory.blocks.at(block).is_moe;
  };
  EXPECT_TRUE(!is_moe("deepseek-v3", 2) && is_moe("deepseek-v3", 3)) << "behind three dense ones";
  EXPECT_TRUE(is_moe("deepseek-v3", 60));
  EXPECT_TRUE(!is_moe("deepseek-v2-lite", 0) && is_moe("deepseek-v2-lite", 1));
  EXPECT_TRUE(!is_moe("jamba-v0.1", 2) && is_moe("jamba-v0.1", 3)) << "every other one";
  // Layer 0 of DeepSeek-V2-Lite: two norms, latent attention, and an MLP of 10,944.
  constexpr std::uint64_t latent = 3072 * 2048 + 576 * 2048 + 512 + 4096 * 512 + 2048 * 2048;
  EXPECT_EQ(lab::describe_model("deepseek-v2-lite").memory.blocks[0].resident_bytes,
            2 * (2 * 2048 + latent + 3 * 10944 * 2048));
}

TEST(model_presets, what_was_assumed_or_left_out_is_noted) {
  EXPECT_THAT(lab::describe_model("qwen3-30b-a3b").notes, IsEmpty());
  const auto llada = lab::describe_model("llada-moe");
  EXPECT_FALSE(llada.memory.is_causal);
  EXPECT_FALSE(llada.memory.has_kv());
  EXPECT_THAT(llada.notes, ElementsAre(testing::AllOf(HasSubstr("no KV cache in its plain sampler"),
                                                      HasSubstr("128 KiB a token"))));
  EXPECT_THAT(lab::describe_model("deepseek-v3").notes,
              ElementsAre(HasSubstr("one vector of 576"), HasSubstr("block of 128 x 128"),
                          HasSubstr("multi-token prediction (1 layer)")));
  EXPECT_THAT(lab::describe_model("minimax-m2").notes,
              Contains(HasSubstr("multi-token prediction (3 layers)")));
  EXPECT_THAT(lab::describe_model("kimi-vl-a3b").notes,
              Contains(HasSubstr("vision tower and projector, 853.6 MiB,")));
  EXPECT_THAT(lab::describe_model("gpt-oss-20b").notes, Contains(HasSubstr("MXFP4")));
}

TEST(model_presets, the_cache_may_be_of_fewer_bits) {
  const auto bytes = [](const char* name, double bits) {
    return lab::describe_model(name, {.kv_bits = bits}).memory.kv_bytes_per_token();
  };
  EXPECT_EQ(bytes("qwen3-30b-a3b", 16), 98304U);
  EXPECT_EQ(bytes("qwen3-30b-a3b", 8), 49152U);
  EXPECT_EQ(bytes("qwen3-30b-a3b", 8.5), 98304U / 64 * 34) << "34 bytes a block of 32";
  EXPECT_EQ(bytes("qwen3-30b-a3b", 4.5), 98304U / 64 * 18);
  EXPECT_EQ(bytes("minimax-m2", 8), 126976U);
  EXPECT_EQ(bytes("deepseek-v2-lite", 0.5), 27U * 36);
  const auto refused = [](double bits) {
    return support::refusal<lab::usage_error>(
        [&] { (void)lab::describe_model("olmoe-1b-7b", {.kv_bits = bits}); });
  };
  EXPECT_EQ(refused(0), "kv_bits = 0, accepted: multiples of 0.5 in 0.5..64");
  EXPECT_THAT(refused(8.25), HasSubstr("kv_bits = 8.25"));
  EXPECT_THAT(refused(64.5), HasSubstr("kv_bits = 64.5"));
  EXPECT_THAT(refused(std::nan("")), HasSubstr("accepted"));
}

TEST(model_presets, an_unknown_name_lists_the_known_ones) {
  for (const auto* name : {"olmoe", "", "qwen3-30b-a3b ", "no/such/folder"})
    EXPECT_THAT(support::refusal<lab::usage_error>([&] { (void)lab::describe_model(name); }),
                testing::AllOf(HasSubstr("unknown model"), HasSubstr("olmoe-1b-7b"),
                               HasSubstr("llada-moe"), HasSubstr(".gguf")));
}

/// Every part that a plan needs, and nothing that a file says.
lab::model_by_hand whole_hand() {
  return {.layers = 4,
          .experts = 8,
          .top_k = 2,
          .expert_bytes = 100,
          .kv_bytes_per_token = 7,
          .resident_bytes = 1000};
}

TEST(models_by_hand, are_what_the_hand_says) {
  const auto out = lab::describe_by_hand(whole_hand());
  EXPECT_EQ(out.memory.all_expert_bytes(), 4U * 8 * 100);
  EXPECT_EQ(out.memory.kv_bytes(10), 70U);
  EXPECT_EQ(out.memory.resident_bytes, 1000U);
  EXPECT_THAT(out.notes, IsEmpty());
  auto hand = whole_hand();
  hand.kv_bytes_per_token = 0;
  hand.resident_bytes.reset();
  const auto bare = lab::describe_by_hand(hand);
  EXPECT_FALSE(bare.memory.has_kv());
  EXPECT_THAT(bare.notes, ElementsAre(HasSubstr("all other weights are taken as 0")));
}

TEST(models_by_hand, say_what_is_missing_or_out_of_range) {
  const auto refused = [](lab::model_by_hand hand) {
    return support::refusal<lab::usage_error>([&] { (void)lab::describe_by_hand(hand); });
  };
  EXPECT_THAT(refused({}),
              HasSubstr("layers, experts, top-k, expert-bytes, kv-bytes-per-token is"));
  auto hand = whole_hand();
  hand.layers.reset();
  EXPECT_THAT(refused(hand), HasSubstr("by hand: layers is missing; accepted: --layers"));
  hand = whole_hand();
  hand.top_k = 9;
  EXPECT_THAT(refused(hand), HasSubstr("top_k = 9, accepted: 1..8"));
  hand = whole_hand();
  hand.expert_bytes = std::uint64_t{1} << 60U;
  EXPECT_THAT(refused(hand), HasSubstr("all_expert_bytes = "));
}

TEST(models_by_hand, correct_what_was_read_and_say_so) {
  auto out = lab::describe_model("qwen3-30b-a3b");
  lab::correct_by_hand({}, out);
  EXPECT_THAT(out.notes, IsEmpty());
  lab::correct_by_hand({.top_k = 6, .expert_bytes = 100, .kv_bytes_per_token = 0}, out);
  EXPECT_EQ(out.memory.experts.top_k, 6);
  EXPECT_EQ(out.memory.experts.bytes_of(47_layer), 100U);
  EXPECT_FALSE(out.memory.has_kv());
  EXPECT_THAT(out.notes, ElementsAre("top-k by hand: 6; 8 was read",
                                     "size of an expert by hand: 100 B; 9 MiB was read",
                                     "KV of a token by hand: 0 B; 96 KiB was read"));
  EXPECT_THAT(support::refusal<lab::usage_error>([&] { lab::correct_by_hand({.layers = 3}, out); }),
              HasSubstr("layers and experts by hand beside a model that was read"));
}

/// A config with a JSON merge patch: null takes a key away.
json patched(json config, std::string_view patch) {
  config.merge_patch(json::parse(patch));
  return config;
}

/// Lines of "case => part | part": hands each case and each of its parts to `check`.
template <class Check>
void for_each_case(std::string_view lines, Check check) {
  for (const auto line : std::views::split(lines, '\n')) {
    const std::string_view text(line.begin(), line.end());
    const auto arrow = text.find(" => ");
    if (arrow == text.npos) continue;
    for (const auto part : std::views::split(text.substr(arrow + 4), std::string_view(" | ")))
      check(text.substr(0, arrow), std::string_view(part.begin(), part.end()));
  }
}

class model_configs : public ::testing::Test {
 protected:
  [[nodiscard]] lab::model_description describe(const json& config) const {
    return lab::describe_model(folder_.write("config.json", config.dump()).string());
  }
  [[nodiscard]] memory_model memory(const json& config, std::string_view patch = "{}") const {
    return describe(patched(config, patch)).memory;
  }
  [[nodiscard]] std::uint64_t expert_bytes(const json& config) const {
    return memory(config).experts.bytes_of(0_layer);
  }
  void refuse(const json& config, std::initializer_list<std::string_view> parts) const {
    refuse_text(config.dump(), parts);
  }
  void refuse_text(std::string_view text, std::initializer_list<std::string_view> parts) const {
    const auto path = folder_.write("config.json", text);
    expect_refused([&] { (void)lab::describe_model(path.string()); }, parts);
  }
  /// Refuses a config without each of these keys, by the key's name.
  void refuse_without(const json& config, std::initializer_list<const char*> keys) const {
    for (const auto* key : keys) {
      auto less = config;
      less.erase(key);
      refuse(less, {std::string("key '") + key + "'", "is missing"});
    }
  }

  trace_samples::temporary_folder folder_;
};

/// Three layers, width 32, two heads of 16, four experts of width 8, vocabulary 10; BF16.
json plain(const char* type, std::string_view patch = "{}") {
  auto config =
      json::parse(R"({"torch_dtype": "bfloat16", "hidden_size": 32, "num_hidden_layers": 3,
"vocab_size": 10, "num_attention_heads": 2, "num_key_value_heads": 1, "num_experts": 4,
"num_experts_per_tok": 2, "intermediate_size": 8, "max_position_embeddings": 100})");
  config["model_type"] = type;
  return patched(config, patch);
}
/// Elements of the above: embedding and head, norms, attention and routers.
constexpr std::uint64_t plain_embeddings = 2 * 10 * 32;
constexpr std::uint64_t plain_norms = 7 * 32;
constexpr std::uint64_t plain_attention = 3 * (2 * 32 * 32 + 2 * 32 * 16);
constexpr std::uint64_t plain_routers = 3 * 4 * 32;
constexpr std::uint64_t plain_resident =
    2 * (plain_embeddings + plain_norms + plain_attention + plain_routers);
constexpr std::uint64_t plain_expert = 2 * 3 * 32 * 8;

TEST_F(model_configs, a_missing_key_is_told_with_the_one_that_looks_like_it) {
  refuse(plain("qwen3_moe", R"({"num_hidden_layers": null, "num_hiden_layers": 3})"),
         {"key 'num_hidden_layers'", "is missing (there is 'num_hiden_layers'); accepted: "});
  refuse(plain("qwen3_moe", R"({"num_hidden_layers": null})"),
         {"key 'num_hidden_layers'", "is missing; accepted: "});
}

TEST_F(model_configs, a_plain_model_by_hand) {
  const auto out = describe(plain("mixtral"));
  const auto& m = out.memory;
  EXPECT_EQ(m.experts.layers, 3);
  EXPECT_EQ(m.experts.experts, 4);
  EXPECT_EQ(m.experts.top_k, 2);
  EXPECT_EQ(m.experts.bytes_of(0_layer), plain_expert);
  EXPECT_EQ(m.resident_bytes, plain_resident);
  EXPECT_THAT(m.kv, ElementsAre(kv_layers{3, 2 * 16 * 2, 0}));
  EXPECT_EQ(m.max_context, 100U);
  EXPECT_EQ(m.name, folder_.path().filename()) << "the folder of a config.json";
  EXPECT_THAT(out.source, testing::EndsWith("config.json: mixtral"));
  EXPECT_THAT(out.notes, IsEmpty());
}

TEST_F(model_configs, every_name_of_a_key_is_read) {
  const auto renamed = [&](const char* type, const char* from, const char* to) {
    auto config = plain(type);
    config[to] = config[from];
    config.erase(from);
    return memory(config);
  };
  for (const auto& [type, from, to] : std::vector<std::array<const char*, 3>>{
           {"mixtral", "num_experts", "num_local_experts"},
           {"mixtral", "num_experts", "n_routed_experts"},
           {"mixtral", "num_experts_per_tok", "experts_per_token"},
           {"mixtral", "torch_dtype", "dtype"},
           {"llada", "intermediate_size", "expert_intermediate_size"},
           {"lladamoe", "intermediate_size", "expert_intermediate_size"},
           {"tiny_moe", "intermediate_size", "moe_intermediate_size"}}) {
    const auto m = renamed(type, from, to);
    EXPECT_EQ(m.experts.experts, 4) << to;
    EXPECT_EQ(m.experts.top_k, 2) << to;
    EXPECT_EQ(m.experts.bytes_of(0_layer), plain_expert) << to;
    if (std::string_view(type) == "mixtral") {
      EXPECT_EQ(m.resident_bytes, plain_resident) << to;
    }
  }
  EXPECT_EQ(memory(plain("mixtral"), R"({"num_key_value_heads": null})").kv[0],
            (kv_layers{3, 2 * 2 * 16 * 2, 0}))
      << "as many as heads";
  EXPECT_EQ(memory(plain("mixtral"), R"({"max_position_embeddings": null})").max_context, 0U);
}

TEST_F(model_configs, the_width_of_a_head_is_read_before_it_is_derived) {
  auto null = plain("mixtral");
  null["head_dim"] = nullptr;
  EXPECT_EQ(memory(null).resident_bytes, plain_resident);
  const auto m = memory(plain("mixtral"), R"({"head_dim": 24})");
  EXPECT_EQ(m.kv_bytes_per_token(), 3U * 2 * 24 * 2);
  EXPECT_EQ(m.resident_bytes, plain_resident - 2 * plain_attention + 2 * 3 * (6 * 32 * 24));
  refuse(plain("mixtral", R"({"num_attention_heads": 3})"),
         {"key 'head_dim'", "is missing", "no multiple of 3 heads"});
}

TEST_F(model_configs, a_token_of_a_layer_is_rounded_up_to_whole_bytes) {
  const auto path = folder_.write("config.json", plain("mixtral", R"({"head_dim": 1})").dump());
  const auto kv = [&](double bits) {
    return lab::describe_model(path.string(), {.kv_bits = bits}).memory.kv_bytes_per_token();
  };
  EXPECT_EQ(kv(4.5), 3U * 2) << "9 bits";
  EXPECT_EQ(kv(4), 3U);
}

TEST_F(model_configs, dtypes_decide_the_bytes_of_an_element) {
  EXPECT_EQ(expert_bytes(plain("olmoe", R"({"torch_dtype": "float32"})")), 2 * plain_expert);
  EXPECT_EQ(expert_bytes(plain("olmoe", R"({"torch_dtype": "float16"})")), plain_expert);
  EXPECT_THAT(describe(plain("olmoe", R"({"torch_dtype": null})")).notes,
              ElementsAre("no torch_dtype: bfloat16 is assumed"));
  refuse(plain("olmoe", R"({"torch_dtype": "int8"})"),
         {"key 'torch_dtype'", "is 'int8'", "bfloat16, float16 or float32"});
}

TEST_F(model_configs, small_weights_are_counted_where_the_family_has_them) {
  constexpr int q = 32, kv = 16, h = 32, layers = 3;
  struct row {
    const char* type;
    const char* patch;
    std::int64_t more;  ///< than the plain model's resident bytes
  };
  for (const auto& [type, patch, more] : std::vector<row>{
           {"mixtral", R"({"attention_bias": true})", 2 * layers * (q + 2 * kv + h)},
           {"mixtral", R"({"lm_head_bias": true})", 2 * 10},
           {"mixtral", R"({"tie_word_embeddings": true})", -2 * 10 * h},
           {"mixtral", R"({"shared_intermediate_size": 5})", 2 * layers * 3 * h * 5},
           {"olmoe", "{}", 2 * layers * (q + kv)},      // norms over the whole width
           {"phimoe", "{}", 2 * (2 * layers + 1) * h},  // norms with a bias
           {"minimax_m2", R"({"use_qk_norm": false})",
            layers * (2 * 4 * h + 4 * 4)},  // F32 routers
           {"minimax_m2", "{}", layers * (2 * 4 * h + 4 * 4) + 2 * layers * (q + kv)},
           {"qwen3_moe", R"({"moe_intermediate_size": 8})", 2 * layers * 2 * 16},  // norms of heads
           {"qwen2_moe", R"({"moe_intermediate_size": 8, "shared_expert_intermediate_size": 12})",
            2 * layers * ((q + 2 * kv) + 3 * h * 12 + h)},  // biases; a shared expert and its gate
           {"glm4_moe", R"({"moe_intermediate_size": 8, "n_shared_experts": 0})", layers * 4 * 4},
           {"glm4_moe",
            R"({"moe_intermediate_size": 8, "n_shared_experts": 0, "use_qk_norm": true})",
            layers * 4 * 4 + 2 * layers * 2 * 16},  // F32 corrections; norms of heads if asked for
           {"llada", R"({"expert_intermediate_size": 8, "qk_layernorm": false})", 0}})
    EXPECT_EQ(static_cast<std::int64_t>(memory(plain(type), patch).resident_bytes),
              static_cast<std::int64_t>(plain_resident) + more)
        << type << patch;
}

TEST_F(model_configs, gpt_oss_has_biases_and_sinks) {
  const auto m = memory(plain("gpt_oss"), R"({"sliding_window": 10})");
  EXPECT_EQ(m.experts.bytes_of(0_layer), plain_expert + 2 * (2 * 8 + 32));
  EXPECT_EQ(m.resident_bytes, plain_resident + 2 * 3 * ((32 + 2 * 16 + 32) + 2 + 4))
      << "attention, sinks, router";
  EXPECT_THAT(m.kv, ElementsAre(kv_layers{1, 64, 0}, kv_layers{2, 64, 10})) << "even ones first";
  refuse(plain("gpt_oss"), {"key 'sliding_window'", "is missing"});
}

TEST_F(model_configs, layers_with_experts_are_chosen_by_every_known_key) {
  for (const auto& [patch, layers] : std::vector<std::pair<const char*, int>>{
           {"{}", 6},
           {R"({"first_k_dense_replace": 2})", 4},
           {R"({"moe_layer_freq": 4})", 2},  // 0 and 4
           {R"({"moe_layer_freq": [1, 0, 0, 1, 1, 0]})", 3},
           {R"({"decoder_sparse_step": 4})", 1},  // 3 alone
           {R"({"mlp_only_layers": [0, 5, 9]})", 4},
           {R"({"expert_layer_period": 4, "expert_layer_offset": 1})", 2}})  // 1 and 5
    EXPECT_EQ(memory(plain("mixtral", R"({"num_hidden_layers": 6})"), patch).experts.layers, layers)
        << patch;
  const auto dense =
      memory(plain("mixtral"), R"({"first_k_dense_replace": 1, "dense_intermediate_size": 20})");
  EXPECT_EQ(dense.resident_bytes, plain_resident + 2 * (3 * 32 * 20 - 4 * 32))
      << "an MLP for a router";
  refuse(plain("mixtral", R"({"first_k_dense_replace": 3})"), {"none of its 3 layers has experts"});
  refuse(plain("mixtral", R"({"moe_layer_freq": [1, 1]})"),
         {"key 'moe_layer_freq'", "an array of 2", "an array of 3 integers, one a layer"});
}

TEST_F(model_configs, a_list_of_a_million_dense_layers_is_read_once) {
  auto config = plain("mixtral", R"({"num_hidden_layers": 65536, "dense_intermediate_size": 20})");
  auto without = json::array();
  for (int i = 0; i < 1'500'000; ++i) without.push_back(60000 + i % 5000);
  config["mlp_only_layers"] = std::move(without);
  EXPECT_EQ(memory(config).experts.layers, 65536 - 5000);
}

/// DeepSeek's kind: latent attention, a dense layer, two shared experts.
json latent(const char* type = "deepseek_v2", std::string_view patch = "{}") {
  return patched(plain(type, R"({"first_k_dense_replace": 1, "moe_intermediate_size": 8,
"intermediate_size": 20, "n_shared_experts": 2, "kv_lora_rank": 12, "qk_nope_head_dim": 6,
"qk_rope_head_dim": 4, "v_head_dim": 5})"),
                 patch);
}

TEST_F(model_configs, latent_attention_by_hand) {
  constexpr std::uint64_t at_once = 32 * 2 * 10;
  constexpr std::uint64_t attention = 32 * 16 + 12 + 12 * 2 * 11 + 2 * 5 * 32;
  constexpr std::uint64_t rest =
      plain_embeddings + plain_norms + 3 * 32 * 20 + 2 * (4 * 32 + 3 * 32 * 16);
  const auto m = memory(latent());
  EXPECT_EQ(m.experts.layers, 2);
  EXPECT_EQ(m.resident_bytes, 2 * (rest + 3 * (attention + at_once)));
  EXPECT_THAT(m.kv, ElementsAre(kv_layers{3, 16 * 2, 0}));
  EXPECT_EQ(memory(latent(), R"({"q_lora_rank": 7})").resident_bytes,
            2 * (rest + 3 * (attention + 32 * 7 + 7 + 7 * 20)));
  EXPECT_EQ(memory(latent("deepseek_v3")).resident_bytes, m.resident_bytes + 2 * 2 * 4)
      << "one a routed expert";
  refuse_without(latent(),
                 {"first_k_dense_replace", "n_shared_experts", "kv_lora_rank", "qk_nope_head_dim",
                  "qk_rope_head_dim", "v_head_dim", "moe_intermediate_size"});
  refuse(latent("deepseek_v2", R"({"intermediate_size": null})"),
         {"key 'dense_intermediate_size'", "is missing"});
  refuse(latent("deepseek_v2", R"({"attention_bias": true})"),
         {"key 'attention_bias'", "false with latent attention"});
}

/// Of plain(): an expert's three weights [8, 32], [8, 32] and [32, 8], in groups of 8.
json stored_as(std::string_view format, json config = plain("mixtral")) {
  config["quantization_config"] = json::parse(format);
  return config;
}
constexpr std::uint64_t expert_elements = 3 * 32 * 8;
constexpr std::uint64_t expert_groups = expert_elements / 8;

/// compressed-tensors: groups by name, in JSON.
json in_groups(const std::string& groups) {
  return stored_as(R"({"quant_method": "compressed-tensors", "config_groups": {)" + groups + "}}");
}
/// A group of targets, in JSON, at so many bits a float and a scale a weight.
std::string group_of(const std::string& targets, int bits) {
  return "{\"targets\": " + targets + ", \"weights\": {\"num_bits\": " + std::to_string(bits) +
         R"(, "type": "float", "strategy": "tensor"}})";
}

TEST_F(model_configs, fp8_has_a_scale_a_block_and_leaves_some_parts_out) {
  const auto with = [](json config, const std::string& plain_parts) {
    return stored_as(R"({"quant_method": "fp8", "weight_block_size": [16, 10],
"modules_to_not_convert": )" +
                         plain_parts + "}",
                     std::move(config));
  };
  // [8, 32]: 1 x 4 blocks; [32, 8]: 2 x 1
  constexpr std::uint64_t expert = expert_elements + 4 * (2 * 4 + 2);
  // q and o [32, 32]: 2 x 4 blocks; k and v [16, 32]: 1 x 4
  constexpr std::uint64_t attention = 3 * (2 * 32 * 32 + 2 * 16 * 32 + 4 * (2 * 8 + 2 * 4));
  const auto m = memory(with(plain("mixtral"), R"(["lm_head"])"));
  EXPECT_EQ(m.experts.bytes_of(0_layer), expert);
  EXPECT_EQ(m.resident_bytes, plain_resident - 2 * plain_attention + attention);
  const auto out = describe(with(plain("mixtral"), R"(["self_attn"])"));
  EXPECT_EQ(out.memory.resident_bytes, plain_resident);
  EXPECT_THAT(out.notes, Contains(HasSubstr("leaves the attention out")));
  EXPECT_EQ(memory(with(plain("mixtral"), R"(["model.layers.0.self_attn.q_proj"])")).resident_bytes,
            m.resident_bytes + 2 * 32 * 32 - (32 * 32 + 4 * 2 * 4))
      << "its queries alone, which have 2 x 4 blocks";
  const auto shared = plain("mixtral", R"({"shared_intermediate_size": 8})");
  EXPECT_EQ(memory(with(shared, "[]")).resident_bytes, m.resident_bytes + 3 * expert);
  EXPECT_EQ(memory(with(shared, R"(["mlp.shared_experts"])")).resident_bytes,
            m.resident_bytes + 3 * plain_expert);
  EXPECT_EQ(memory(with(latent("deepseek_v3"), "[]")).resident_bytes -
                memory(with(latent("deepseek_v2"), "[]")).resident_bytes,
            2U * 4 * 4)
      << "corrections in F32";
}

TEST_F(model_configs, mxfp4_has_17_bytes_a_block_of_the_experts) {
  const auto m = memory(stored_as(R"({"quant_method": "mxfp4"})"));
  EXPECT_EQ(m.experts.bytes_of(0_layer), 17U * (2 * 8 + 32)) << "rows of 8 fill a block of 32";
  EXPECT_EQ(m.resident_bytes, plain_resident);
}

TEST_F(model_configs, other_quantisations_are_refused) {
  for (const auto* format : {R"({"quant_method": "bitsandbytes"})", R"({"bits": 4})", "{}",
                             R"({"quant_method": "compressed-tensors"})",
                             R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"})"})
    refuse(stored_as(format),
           {"key 'quantization_config'", "accepted: awq, gptq", "or by hand --layers --experts"});
  for_each_case(R"(
{"quant_method": "fp8", "weight_block_size": [128]} => key 'weight_block_size' | is [128] | [rows, columns]
{"quant_method": "fp8", "weight_block_size": [0, 128]} => key 'weight_block_size' | is [0, 128]
7 => key 'quantization_config' | is 7 | an object
{"quant_method": "awq"} => key 'bits' | is missing
{"quant_method": "gptq", "bits": 4, "group_size": 0} => key 'group_size' | is 0 | 1..65536
{"quant_method": "compressed-tensors", "config_groups": {"g": 3}} => key 'config_groups' | 'g' is no object)",
                [&](auto format, auto part) { refuse(stored_as(format), {part}); });
  for_each_case(R"(
{"strategy": "group"} => key 'num_bits' | is missing
{"num_bits": 4, "strategy": "token"} => key 'strategy' | is 'token'
{"num_bits": 8, "strategy": "block"} => key 'block_structure' | is missing)",
                [&](auto weights, auto part) {
                  refuse(in_groups(R"("g": {"weights": )" + std::string(weights) + "}"), {part});
                });
}

TEST_F(model_configs, quantised_experts_have_their_scales_and_zeros) {
  constexpr std::uint64_t inputs = 32 + 32 + 8, rows = 8 + 8 + 32;
  for (const auto& [format, bytes] : std::vector<std::pair<const char*, std::uint64_t>>{
           {R"({"quant_method": "awq", "bits": 4, "group_size": 8, "zero_point": true})",
            expert_elements / 2 + expert_groups * 2 + expert_groups / 2},
           {R"({"quant_method": "awq", "bits": 4, "group_size": 8, "zero_point": false})",
            expert_elements / 2 + expert_groups * 2},
           {R"({"quant_method": "awq", "w_bit": 4, "q_group_size": 8, "zero_point": false})",
            expert_elements / 2 + expert_groups * 2},
           {R"({"quant_method": "gptq", "bits": 8, "group_size": 8})",
            expert_elements + expert_groups * 3 + 4 * inputs},
           {R"({"quant_method": "gptq", "bits": 8, "group_size": -1})",
            expert_elements + rows * 3 + 4 * inputs},  // a scale a row
           {R"({"quant_method": "auto-round", "bits": 4, "group_size": 8})",
            expert_elements / 2 + expert_groups * 2 + expert_groups / 2},
           // A scale of 8 bits a group of 16, two of F32 a weight.
           {R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16})",
            expert_elements / 2 + (8 * 2 + 8 * 2 + 32) + 3 * 8},
           {R"({"quant_method": "modelopt", "quant_algo": "FP8"})", expert_elements + 3 * 8},
           {R"({"quant_method": "fp8"})", expert_elements + 3 * 8},
           {R"({"quant_method": "fbgemm_fp8"})", expert_elements + rows * 4}})
    EXPECT_EQ(expert_bytes(stored_as(format)), bytes) << format;
}

TEST_F(model_configs, compressed_tensors_by_strategy) {
  constexpr std::uint64_t rows = 8 + 8 + 32;
  for (
      const auto& [weights, bytes] : std::vector<std::pair<const char*, std::uint64_t>>{
          {R"("num_bits": 4, "type": "int", "strategy": "group", "group_size": 8)",
           expert_elements / 2 + expert_groups * 2},
          {R"("num_bits": 4, "type": "int", "strategy": "group", "group_size": 8, "symmetric": false)",
           expert_elements / 2 + expert_groups * 2 + expert_groups / 2},
          // An index of each input's group.
          {R"("num_bits": 4, "type": "int", "strategy": "group", "group_size": 8, "actorder": "group")",
           expert_elements / 2 + expert_groups * 2 + 4 * (32 + 32 + 8)},
          {R"("num_bits": 8, "type": "int", "strategy": "channel")", expert_elements + rows * 2},
          {R"("num_bits": 8, "type": "float", "strategy": "tensor")", expert_elements + 3 * 4},
          {R"("num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 10])",
           expert_elements + 2 * (2 * 4 + 2)},
          {R"("num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16)",
           expert_elements / 2 + (8 * 2 + 8 * 2 + 32) + 3 * 8},  // NVFP4
          // MXFP4: scales of 8 bits.
          {R"("num_bits": 4, "type": "float", "strategy": "group", "group_size": 8)",
           expert_elements / 2 + expert_groups}})
    EXPECT_EQ(expert_bytes(in_groups(R"("group_0": {"targets": ["Linear"], "weights": {)" +
                                     std::string(weights) + "}}")),
              bytes)
        << weights;
}

TEST_F(model_configs, groups_of_compressed_tensors_go_by_their_targets) {
  const auto out = describe(in_groups("\"group_0\": " + group_of(R"(["re:.*experts.*"])", 4) +
                                      ", \"group_1\": " + group_of(R"(["re:.*self_attn.*"])", 8)));
  EXPECT_EQ(out.memory.experts.bytes_of(0_layer), expert_elements / 2 + 3 * 4);
  EXPECT_EQ(out.memory.resident_bytes, plain_resident - plain_attention + 3 * 4 * 4)
      << "a byte an element less, and a scale for each of four weights";
  EXPECT_THAT(out.notes, Contains(HasSubstr("compressed-tensors: experts at 4 bits")));
  EXPECT_THAT(out.notes, Contains(HasSubstr("compressed-tensors: attention at 8 bits")));
}

TEST_F(model_configs, what_quantisation_leaves_out_is_plain) {
  const auto described = [&](const std::string& key, const std::string& names) {
    return describe(stored_as(R"({"quant_method": "modelopt", "quant_algo": "FP8", ")" + key +
                              "\": [" + names + "]}"));
  };
  const auto all = described("ignore", "").memory.resident_bytes;
  constexpr std::uint64_t attention_layer = plain_attention / 3 - 4 * 8;  // saved by FP8
  for (const auto* key : {"ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"})
    EXPECT_EQ(described(key, R"("re:.*self_attn.*")").memory.resident_bytes,
              all + 3 * attention_layer)
        << key;
  const auto one = described("ignore", R"("model.layers.1.self_attn*", "lm_head", "mlp.gate")");
  EXPECT_EQ(one.memory.resident_bytes, all + attention_layer);
  EXPECT_THAT(one.notes, Contains(HasSubstr("leaves the attention out in 1 of 3 layers")));
  EXPECT_THAT(described("ignore", R"("re:.*layers.0.*experts.*")").memory.experts.expert_bytes,
              ElementsAre(2 * expert_elements, expert_elements + 24, expert_elements + 24));
  EXPECT_THAT(described("ignore", R"("re:^(?!.*experts).*")").notes,
              Contains(HasSubstr("1 of the patterns that FP8 leaves out are not understood")));
  for (const auto* rest :
       {R"("dynamic": {"-:.*self_attn.*": {}})",
        R"("modules_in_block_to_quantize": [["block_sparse_moe.experts.0.w1"]])"})
    EXPECT_EQ(memory(stored_as(R"({"quant_method": "gptq", "bits": 4, "group_size": 8, )" +
                               std::string(rest) + "}"))
                  .resident_bytes,
              plain_resident)
        << rest;
}

/// GPTQ or AutoRound of 4 bits in groups of 8, with overrides by module.
json overridden(const std::string& method, const std::string& key, const std::string& rules) {
  return stored_as(R"({"bits": 4, "group_size": 8, "quant_method": ")" + method + "\", \"" + key +
                   "\": {" + rules + "}}");
}
/// A weight of [out, in] of so many bits in groups of 8, as AutoRound stores it.
constexpr std::uint64_t rounded(std::uint64_t out, std::uint64_t in, std::uint64_t bits) {
  const auto groups = out * ((in + 7) / 8);
  return out * in * bits / 8 + groups * 2 + groups * bits / 8;
}
constexpr std::uint64_t rounded_expert = 2 * rounded(8, 32, 4) + rounded(32, 8, 4);
constexpr std::uint64_t wide_down_expert = 2 * rounded(8, 32, 4) + rounded(32, 8, 8);

TEST_F(model_configs, bits_by_module_are_counted) {
  const auto all = memory(overridden("auto-round", "extra_config", ""));
  EXPECT_EQ(all.experts.bytes_of(0_layer), rounded_expert);
  std::string attention;
  for (int l = 0; l < 3; ++l)
    for (const auto* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
      attention += (attention.empty() ? "\"" : ", \"") + ("model.layers." + std::to_string(l)) +
                   ".self_attn." + name + R"(": {"bits": 16, "data_type": "float"})";
  const auto out = describe(overridden("auto-round", "extra_config", attention));
  EXPECT_EQ(out.memory.resident_bytes, plain_resident);
  EXPECT_EQ(out.memory.experts.bytes_of(0_layer), rounded_expert);
  EXPECT_THAT(out.notes, Contains("AutoRound leaves the attention out"));
  const auto down =
      describe(overridden("auto-round", "extra_config", R"(".*experts.*down_proj": {"bits": 8})"));
  EXPECT_EQ(down.memory.experts.bytes_of(0_layer), wide_down_expert);
  EXPECT_EQ(down.memory.resident_bytes, all.resident_bytes);
  EXPECT_THAT(down.notes,
              Contains("AutoRound: experts (down) at 8 bits, a scale of 16 bits a group "
                       "of 8 and a zero point of 8"));
  constexpr std::uint64_t inputs = 4 * (32 + 32 + 8);
  constexpr auto some = 2 * rounded(8, 32, 8) + rounded(32, 8, 4) + inputs;
  EXPECT_THAT(
      memory(
          overridden(
              "gptq", "dynamic",
              R"("+:model\\.layers\\.(?:0|2)\\.mlp\\.experts\\.\\d+\\.(up|gate)_proj": {"bits": 8})"))
          .experts.expert_bytes,
      ElementsAre(some, rounded_expert + inputs, some));
}

TEST_F(model_configs, bits_of_each_expert_are_counted_if_all_agree) {
  const auto with = [](int experts) {
    std::string rules;
    for (int e = 0; e < experts; ++e)
      rules += (e == 0 ? "" : ", ") + ("\"model.layers.1.mlp.experts." + std::to_string(e)) +
               R"(.down_proj": {"bits": 8})";
    return overridden("auto-round", "extra_config", rules);
  };
  EXPECT_THAT(memory(with(4)).experts.expert_bytes,
              ElementsAre(rounded_expert, wide_down_expert, rounded_expert));
  for (const auto& config : {with(3), stored_as(R"({"quant_method": "fp8",
"ignored_layers": ["model.layers.0.mlp.experts.1"]})")})
    refuse(config, {"key 'quantization_config'", "some experts of a layer and not to others"});
}

TEST_F(model_configs, bits_by_module_that_are_not_understood_are_refused_by_name) {
  for_each_case(R"(
"+:.*\\.18\\..*gate_proj": {"bits": 8} => key 'quantization_config' | the .safetensors files beside it
"+:.*\\.18\\..*gate_proj": {"bits": 8} => 'dynamic' names '+:.*\.18\..*gate_proj' | not understood
"+:.*down_proj": {"bits": 8}, "+:.*experts.*": {"bits": 3} => 'dynamic' names | another pattern also sets
"+:.*layers.1.*down_proj": {"bits": 8}, "+:.*down_proj": {"bits": 3} => one module twice
"+:.*down_proj": {"bits": 8, "super_bits": 6} => 'dynamic' has 'super_bits'
"+:.*down_proj": 8 => key 'dynamic' | '+:.*down_proj' is no object)",
                [&](auto rules, auto part) {
                  refuse(overridden("gptq", "dynamic", std::string(rules)), {part});
                });
  refuse(overridden("auto-round", "extra_config",
                    R"(".*down_proj": {"bits": 8, "data_type": "mx_fp"})"),
         {"'extra_config' has the data_type 'mx_fp'"});
  refuse(stored_as(R"({"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp"})"),
         {"'data_type' is 'mx_fp'"});
}

TEST_F(model_configs, groups_of_compressed_tensors_may_name_projections_and_layers) {
  const auto base = "\"group_0\": " + group_of(R"(["Linear"])", 4);
  constexpr std::uint64_t four = expert_elements / 2 + 3 * 4;
  EXPECT_THAT(
      memory(in_groups(base + ", \"group_1\": " + group_of(R"(["re:.*layers.0.*down_proj$"])", 8)))
          .experts.expert_bytes,
      ElementsAre(four + 32 * 8 / 2, four, four));
  refuse(in_groups("\"group_0\": " + group_of(R"(["re:(?=.*experts).*"])", 4)),
         {"'config_groups' names 're:(?=.*experts).*'", "not understood"});
  refuse(in_groups(base + ", \"group_1\": " + group_of(R"(["Linear"])", 8)),
         {"'config_groups' has two groups of all linear layers"});
  const auto sparse = [&](const char* format) {
    auto config = in_groups(base);
    config["quantization_config"]["sparsity_config"]["format"] = format;
    return config;
  };
  refuse(sparse("sparse-24-bitmask"), {"'sparsity_config' is of sparse weights"});
  EXPECT_EQ(expert_bytes(sparse("dense")), four);
}

TEST_F(model_configs, keys_of_a_quantisation_that_are_not_read_are_named) {
  const auto notes = [&](const std::string& more) {
    return describe(
               stored_as(R"({"quant_method": "gptq", "bits": 4, "desc_act": false)" + more + "}"))
        .notes;
  };
  EXPECT_THAT(notes(""), testing::Not(Contains(HasSubstr("not read"))));
  EXPECT_THAT(notes(R"(, "hyper_bits": {"q_proj": 3}, "meta": {"a": 1})"),
              Contains("not read of the quantization_config: 'hyper_bits'"));
}

/// A weight of [out, in] in MLX's groups of 32 columns.
constexpr std::uint64_t affine(std::uint64_t out, std::uint64_t in, std::uint64_t bits) {
  return out * in * bits / 8 + out * (in / 32) * 4;
}

TEST_F(model_configs, mlx_declares_its_quantisation_under_a_key_of_its_own) {
  auto config = plain("mixtral", R"({"quantization": {"group_size": 32, "bits": 4}})");
  const auto out = describe(config);
  // A weight of 8 columns has no whole group, and stays plain.
  EXPECT_EQ(out.memory.experts.bytes_of(0_layer), 2 * affine(8, 32, 4) + 2 * 32 * 8);
  constexpr auto attention = 2 * affine(32, 32, 4) + 2 * affine(16, 32, 4);
  EXPECT_EQ(out.memory.resident_bytes,
            2 * affine(10, 32, 4) + 2 * plain_norms + 3 * (attention + affine(4, 32, 4)));
  EXPECT_THAT(out.notes,
              Contains(HasSubstr("MLX: linear layers, routers, embeddings and head at 4")));
  EXPECT_EQ(
      memory(config, R"({"quantization_config": {"group_size": 32, "bits": 4}})").resident_bytes,
      out.memory.resident_bytes);
  config = patched(config, R"({"quantization": {
"model.layers.1.mlp.gate": {"group_size": 32, "bits": 8}, "lm_head": {"bits": 8},
"model.layers.2.self_attn.o_proj": false}})");
  EXPECT_EQ(memory(config).resident_bytes, out.memory.resident_bytes + affine(4, 32, 8) -
                                               affine(4, 32, 4) + 2 * 32 * 32 - affine(32, 32, 4) +
                                               affine(10, 32, 8) - affine(10, 32, 4));
  refuse(patched(config, R"({"quantization": {"model.blocks.1.foo": false}})"),
         {"'quantization' names 'model.blocks.1.foo'", "not understood"});
  const auto mode = [](const std::string& name) {
    return plain("mixtral",
                 R"({"quantization": {"group_size": 32, "bits": 4, "mode": ")" + name + "\"}}");
  };
  EXPECT_EQ(expert_bytes(mode("mxfp4")), 2 * (8 * 32 / 2 + 8) + 2 * 32 * 8);
  refuse(mode("k"), {"key 'mode'", "is 'k'"});
  refuse(plain("mixtral", R"({"quantization": "4bit"})"), {"key 'quantization'", "is \"4bit\""});
}

TEST_F(model_configs, the_bits_of_the_cache_are_those_that_the_checkpoint_declares) {
  constexpr std::uint64_t elements = 3 * 2 * 16;
  const auto declared = [](const std::string& more) {
    return stored_as(R"({"quant_method": "modelopt", "quant_algo": "FP8", )" + more + "}");
  };
  const auto out = describe(declared(R"("kv_cache_quant_algo": "FP8")"));
  EXPECT_EQ(out.memory.kv_bytes_per_token(), elements);
  EXPECT_EQ(out.kv_bits, 8);
  EXPECT_THAT(out.notes, Contains("KV cache of 8 bits an element, as the checkpoint's "
                                  "'kv_cache_quant_algo' says; --kv-bits sets another"));
  const auto hand = lab::describe_model((folder_.path() / "config.json").string(), {.kv_bits = 16});
  EXPECT_EQ(hand.memory.kv_bytes_per_token(), 2 * elements);
  EXPECT_THAT(hand.notes, Contains(HasSubstr("16 bits an element by hand; the checkpoint's")));
  for (const auto& [more, bytes] : std::vector<std::pair<const char*, std::uint64_t>>{
           {R"("kv_cache_scheme": {"num_bits": 8, "type": "float"})", elements},
           {R"("kv_cache_scheme": null)", 2 * elements},
           {R"("kv_cache_quant_algo": "NVFP4")", 3 * (32 * 9 / 16)}})  // a scale for 16 elements
    EXPECT_EQ(memory(declared(more)).kv_bytes_per_token(), bytes) << more;
  const auto unknown = describe(declared(R"("kv_cache_quant_algo": "INT3")"));
  EXPECT_EQ(unknown.memory.kv_bytes_per_token(), 2 * elements);
  EXPECT_THAT(unknown.notes,
              Contains(HasSubstr("'kv_cache_quant_algo' is 'INT3', which is not known")));
}

TEST_F(model_configs, rope_scaling_extends_the_context) {
  const auto with = [](const char* key, const std::string& rope) {
    return plain("mixtral", "{\"" + std::string(key) + "\": " + rope + "}");
  };
  const std::string yarn =
      R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 80})";
  for (const auto* key : {"rope_scaling", "rope_parameters"}) {
    const auto out = describe(with(key, yarn));
    EXPECT_EQ(out.memory.max_context, 320U) << key;
    EXPECT_THAT(out.notes,
                ElementsAre("rope scaling 'yarn', 4 times 80 tokens: the longest context "
                            "is 320; max_position_embeddings is 100"));
  }
  const auto tokens = [&](const std::string& rope) {
    return memory(with("rope_scaling", rope)).max_context;
  };
  EXPECT_EQ(tokens(R"({"type": "yarn", "factor": 2.5})"), 250U) << "of the model's own";
  EXPECT_EQ(tokens(R"({"rope_type": "yarn", "factor": 25, "original_max_position_embeddings": 4})"),
            100U);
  EXPECT_EQ(tokens("{\"full_attention\": " + yarn +
                   R"(, "sliding_attention": {"rope_type": "default"}})"),
            320U);
  for (const auto& [type, most] :
       std::vector<std::pair<std::string, std::uint64_t>>{{"linear", 200},
                                                          {"dynamic", 200},
                                                          {"default", 100},
                                                          {"longrope", 100},
                                                          {"su", 100},
                                                          {"llama3", 100},
                                                          {"mrope", 100}})
    EXPECT_EQ(tokens(R"({"factor": 2, "original_max_position_embeddings": 7, "rope_type": ")" +
                     type + "\"}"),
              most)
        << type;
  const auto other = describe(with("rope_scaling", R"({"rope_type": "spiral", "factor": 8})"));
  EXPECT_EQ(other.memory.max_context, 100U);
  EXPECT_THAT(other.notes, ElementsAre(HasSubstr("rope scaling 'spiral' is not known")));
  refuse(with("rope_scaling", R"({"rope_type": "yarn", "factor": -1})"),
         {"key 'factor'", "a number above 0"});
  refuse(with("rope_scaling", R"({"rope_type": "yarn", "factor": 1e12})"),
         {"key 'rope_scaling'", "makes a context of"});
  refuse(with("rope_scaling", "7"), {"key 'rope_scaling'", "is 7", "an object"});
}

TEST_F(model_configs, deep_nesting_is_refused_in_every_object_that_is_looked_into) {
  const auto deep = std::string(100'000, '[') + std::string(100'000, ']');
  std::string objects;
  for (int i = 0; i < 50'000; ++i) objects += R"({"a":)";
  for (const auto& text :
       {R"({"model_type":)" + deep + "}",
        R"({"model_type":"kimi_vl","text_config":{"model_type":)" + deep + "}}",
        R"({"model_type":"other","quantization":)" + deep + "}",
        R"({"model_type":"other","b":)" + objects + "1" + std::string(50'001, '}')})
    refuse_text(text, {"nests values more than 32 deep"});
  refuse(stored_as(R"({"quant_method": "compressed-tensors", "sparsity_config": {"format": 3}})"),
         {"key 'format'", "is 3", "a string"});
}

TEST_F(model_configs, numbers_that_json_does_not_have_are_read_in_keys_that_nobody_needs) {
  auto text = plain("mixtral").dump();
  text.insert(1, R"("a": [0.0, Infinity, -Infinity], "b": NaN, "c": "NaN \" Infinity",)");
  const auto path = folder_.write("config.json", text);
  EXPECT_EQ(lab::describe_model(path.string()).memory.resident_bytes, plain_resident);
  text.insert(1, R"("head_dim": Infinity,)");
  refuse_text(text, {"key 'head_dim'", "is \"Infinity\"", "an integer in"});
}

TEST_F(model_configs, a_quantisation_file_beside_the_config_is_read) {
  folder_.write("hf_quant_config.json",
                R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"NVFP4",)"
                R"("group_size":16,"exclude_modules":["lm_head","*self_attn*"]}})");
  const auto out = describe(plain("mixtral"));
  EXPECT_EQ(out.memory.experts.bytes_of(0_layer),
            expert_elements / 2 + (8 * 2 + 8 * 2 + 32) + 3 * 8);
  EXPECT_EQ(out.memory.resident_bytes, plain_resident);
  folder_.write("hf_quant_config.json", "{");
  refuse(plain("mixtral"), {"hf_quant_config.json", "ends before its JSON does"});
}

TEST_F(model_configs, windows_by_list_by_question_and_of_all_layers) {
  using layers = std::vector<kv_layers>;
  constexpr auto types =
      R"("layer_types": ["full_attention", "sliding_attention", "full_attention"])";
  const auto listed = R"({"sliding_window": 10, )" + std::string(types) + "}";
  struct row {
    const char* type;
    std::string patch;
    layers kv;
  };
  for (const auto& [type, patch, kv] : std::vector<row>{
           {"mixtral", R"({"sliding_window": 10})", {{3, 64, 10}}},
           {"mixtral", R"({"sliding_window": 100})", {{3, 64, 0}}},  // the longest context
           {"mixtral", R"({"sliding_window": 0})", {{3, 64, 0}}},
           {"mixtral", listed, {{2, 64, 0}, {1, 64, 10}}},
           {"dots1",
            R"({"n_shared_experts": 0, "sliding_window": 10, "max_window_layers": 1})",
            {{1, 64, 0}, {2, 64, 10}}},
           {"qwen2_moe", R"({"sliding_window": 10, "max_window_layers": 2})", {{3, 64, 0}}},
           {"qwen2_moe",
            R"({"use_sliding_window": true, "sliding_window": 10, "max_window_layers": 2})",
            {{2, 64, 0}, {1, 64, 10}}},
           {"qwen3_moe", R"({"sliding_window": 10, "max_window_layers": 2})", {{3, 64, 0}}},
           {"qwen3_moe",
            R"({"use_sliding_window": true, "sliding_window": 10, "max_window_layers": 2})",
            {{2, 64, 0}, {1, 64, 10}}}})
    EXPECT_EQ(memory(plain(type, R"({"moe_intermediate_size": 8,
"shared_expert_intermediate_size": 0})"),
                     patch)
                  .kv,
              kv)
        << type << patch;
  refuse(plain("mixtral", R"({"layer_types": ["full_attention"]})"),
         {"key 'layer_types'", "an array of 1", "an array of 3 strings"});
  refuse(plain("mixtral", R"({"sliding_window": 10, "layer_types":
["full_attention", "sliding_attention", "linear_attention"]})"),
         {"key 'layer_types'", "entry 2 is 'linear_attention'", "full_attention or"});
  refuse(plain("mixtral", "{" + std::string(types) + "}"), {"key 'sliding_window'", "is missing"});
}

/// Jamba's kind, six layers: attention in layers 1 and 4, experts in odd ones.
json hybrid(std::string_view patch = "{}") {
  return patched(plain("jamba", R"({"num_hidden_layers": 6, "attn_layer_period": 3,
"attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 5,
"mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 2})"),
                 patch);
}

TEST_F(model_configs, a_hybrid_by_hand) {
  constexpr std::uint64_t inner = 64;
  constexpr std::uint64_t mixer = 32 * 2 * inner + inner * 5 + inner * (2 + 2 * 5) +
                                  (2 + 1) * inner + inner * 5 + inner + inner * 32 + 2 + 2 * 5;
  constexpr std::uint64_t rest =
      plain_embeddings + 13 * 32 + 2 * (plain_attention / 3) + 3 * 4 * 32 + 3 * 3 * 32 * 8;
  const auto m = memory(hybrid());
  EXPECT_EQ(m.experts.layers, 3);
  EXPECT_EQ(m.resident_bytes, 2 * (rest + 4 * mixer));
  EXPECT_THAT(m.kv, ElementsAre(kv_layers{2, 64, 0}));
  EXPECT_EQ(m.state_bytes_per_sequence, 4U * inner * (5 + 3) * 2);
  EXPECT_THAT(describe(hybrid(R"({"sliding_window": 10})")).notes,
              Contains(HasSubstr("sliding window 10 of 2 layers")));
  EXPECT_EQ(memory(hybrid(R"({"mamba_conv_bias": false})")).resident_bytes,
            m.resident_bytes - 2 * 4 * inner);
  EXPECT_EQ(memory(hybrid(R"({"mamba_proj_bias": true})")).resident_bytes,
            m.resident_bytes + 2 * 4 * (2 * inner + 32));
  EXPECT_EQ(memory(hybrid(R"({"mamba_dt_rank": "auto"})")).resident_bytes, m.resident_bytes)
      << "32 / 16";
  refuse_without(hybrid(), {"attn_layer_period", "attn_layer_offset", "expert_layer_period",
                            "expert_layer_offset", "mamba_d_state", "mamba_d_conv", "mamba_expand",
                            "mamba_dt_rank"});
  refuse(hybrid(R"({"mamba_expand": 16777216})"),
         {"key 'mamba_expand'", "makes a width of 536870912", "at most 16777216"});
}

TEST_F(model_configs, gated_delta_layers_keep_a_state_and_no_cache) {
  auto config = plain("qwen3_next", R"({"num_hidden_layers": 8, "moe_intermediate_size": 8,
"shared_expert_intermediate_size": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
"linear_key_head_dim": 5, "linear_value_head_dim": 3, "linear_conv_kernel_dim": 4})");
  constexpr std::uint64_t keys = 10, values = 12, convolved = 2 * keys + values;
  constexpr std::uint64_t delta =
      32 * (convolved + values) + 32 * 8 + convolved * 4 + 2 * 4 + 3 + 32 * values;
  constexpr std::uint64_t full = 32 * 2 * 32 + 2 * 32 * 16 + 32 * 32 + 2 * 16;
  constexpr std::uint64_t rest = plain_embeddings + 17 * 32 + 8 * (4 * 32 + 3 * 32 * 8 + 32);
  const auto out = describe(config);
  EXPECT_EQ(out.memory.resident_bytes, 2 * (rest + 6 * delta + 2 * full));
  EXPECT_THAT(out.memory.kv, ElementsAre(kv_layers{2, 64, 0})) << "every fourth";
  EXPECT_EQ(out.memory.state_bytes_per_sequence, 2 * 6 * (4 * 5 * 3 + convolved * 3));
  EXPECT_THAT(out.notes, Contains(HasSubstr("a convolution state of 3")));
  config["layer_types"] = std::vector<std::string>(8, "linear_attention");
  config["layer_types"][0] = "full_attention";
  EXPECT_THAT(memory(config).kv, ElementsAre(kv_layers{1, 64, 0}));
}

TEST_F(model_configs, lightning_layers_keep_a_matrix_a_head) {
  constexpr std::uint64_t lightning = 5 * 32 * 32 + 32;
  const auto m = memory(plain("minimax_text_01"), R"({"attn_type_list": [0, 0, 1]})");
  EXPECT_EQ(m.resident_bytes, plain_resident - 2 * 2 * (plain_attention / 3) + 2 * 2 * lightning);
  EXPECT_THAT(m.kv, ElementsAre(kv_layers{1, 64, 0}));
  EXPECT_EQ(m.state_bytes_per_sequence, 2U * 2 * 2 * 16 * 16);
  refuse(plain("minimax_text_01", R"({"attn_type_list": [0, 2, 1]})"),
         {"key 'attn_type_list'", "entry 1 is 2", "0 or 1"});
  refuse(plain("minimax_text_01"), {"key 'attn_type_list'", "is missing"});
  EXPECT_THAT(memory(plain("minimax")).kv, ElementsAre(kv_layers{2, 64, 0}))
      << "odd layers are linear";
}

TEST_F(model_configs, llama4_has_experts_in_some_layers_and_chunks_in_most) {
  /// Llama 4's language model alone.
  const auto config = plain("llama4_text", R"({"intermediate_size_mlp": 20,
"attention_chunk_size": 10})");
  const auto every = memory(config);
  EXPECT_EQ(every.experts.layers, 3);
  EXPECT_EQ(every.resident_bytes, plain_resident + 3 * plain_expert) << "a shared expert a layer";
  EXPECT_THAT(every.kv, ElementsAre(kv_layers{3, 64, 10})) << "the fourth layer sees all";
  auto half = patched(config, R"({"num_hidden_layers": 8, "interleave_moe_layer_step": 2})");
  EXPECT_EQ(memory(half).experts.layers, 4);
  EXPECT_THAT(memory(half).kv, ElementsAre(kv_layers{2, 64, 0}, kv_layers{6, 64, 10}));
  half["no_rope_layers"] = {1, 1, 1, 1, 1, 1, 1, 0};
  EXPECT_THAT(memory(half).kv, ElementsAre(kv_layers{1, 64, 0}, kv_layers{7, 64, 10}));
  half["moe_layers"] = {0, 1, 2};
  EXPECT_EQ(memory(half).experts.layers, 3) << "a list comes before a step";
  half["no_rope_layers"] = {1, 1};
  refuse(half, {"key 'no_rope_layers'", "has 2 entries"});
}

TEST_F(model_configs, ernie_has_a_first_and_a_last_layer_with_experts) {
  const auto config = plain("ernie4_5_moe", R"({"num_experts": null, "num_experts_per_tok": null,
"moe_num_experts": 4, "moe_k": 2, "num_hidden_layers": 8, "moe_intermediate_size": 8,
"moe_num_shared_experts": 2})");
  for (const auto& [patch, layers] :
       std::vector<std::pair<const char*, int>>{{R"({"moe_layer_start_index": 3})", 5},
                                                {R"({"moe_layer_end_index": 5})", 6},
                                                {R"({"moe_layer_end_index": -1})", 8},
                                                {R"({"moe_layer_interval": 3})", 2}})  // 2 and 5
    EXPECT_EQ(memory(config, patch).experts.layers, layers) << patch;
  const auto tied = memory(config).resident_bytes;
  EXPECT_EQ(memory(config, R"({"tie_word_embeddings": false})").resident_bytes, tied + 2 * 10 * 32);
  EXPECT_EQ(memory(config, R"({"moe_num_shared_experts": 0})").resident_bytes,
            tied - 8 * 2 * plain_expert);
  refuse(patched(config, R"({"use_bias": true})"), {"key 'use_bias'", "is true"});
}

TEST_F(model_configs, hunyuan_has_a_list_for_every_number_of_its_experts) {
  const auto config = plain("hunyuan_v1_moe", R"({"num_experts_per_tok": null,
"num_experts": [4, 4, 4], "moe_topk": [2, 2, 2], "moe_intermediate_size": [8, 8, 8],
"num_shared_expert": [1, 1, 1]})");
  const auto m = memory(config);
  EXPECT_EQ(m.experts.experts, 4);
  EXPECT_EQ(m.experts.top_k, 2);
  EXPECT_EQ(m.experts.bytes_of(0_layer), plain_expert);
  EXPECT_EQ(m.resident_bytes, plain_resident + 3 * (plain_expert + 2 * 2 * 16 + 2 * 4 * 32))
      << "a shared expert, norms over a head, routers in F32";
  const auto shared = memory(config, R"({"use_cla": true, "cla_share_factor": 2})");
  EXPECT_THAT(shared.kv, ElementsAre(kv_layers{2, 64, 0})) << "the second reads the first's";
  EXPECT_EQ(shared.resident_bytes, m.resident_bytes - 2 * 2 * 32 * 16);
  EXPECT_EQ(expert_bytes(patched(config, R"({"moe_intermediate_size": null})")), plain_expert)
      << "intermediate_size";
  refuse(patched(config, R"({"moe_topk": [2, 2, 1]})"),
         {"key 'moe_topk'", "entry 2 is 1, entry 0 is 2", "one and the same in every layer"});
  refuse(patched(config, R"({"num_experts": ["a"]})"), {"key 'num_experts'", "entry 0 is"});
}

TEST_F(model_configs, a_known_model_inside_an_unknown_one_is_read_and_noted) {
  const json outer = {{"model_type", "some_vl"}, {"text_config", plain("mixtral")}};
  const auto out = describe(outer);
  EXPECT_EQ(out.memory.resident_bytes, plain_resident);
  EXPECT_THAT(out.notes, ElementsAre(HasSubstr("'some_vl' around mixtral: what stands beside")));
  refuse(patched(outer, R"({"text_config": {"model_type": "other"}})"),
         {"key 'model_type'", "is 'some_vl';", "by hand --layers"});
}

/// A config in the fewest keys, and the total that is published: elements of the files, or as many as the name says.
struct published_model {
  const char* name;
  const char* config;
  double elements;
  double within;
};
constexpr published_model published_models[] = {
    {"GLM-4.5-Air", R"({"model_type":"glm4_moe","hidden_size":4096,
"num_hidden_layers":46,"vocab_size":151552,"num_attention_heads":96,"num_key_value_heads":8,
"head_dim":128,"attention_bias":true,"n_routed_experts":128,"num_experts_per_tok":8,
"n_shared_experts":1,"moe_intermediate_size":1408,"intermediate_size":10944,
"first_k_dense_replace":1})",
     106e9, 0.01},
    {"Qwen3-Next-80B-A3B", R"({"model_type":"qwen3_next","hidden_size":2048,
"num_hidden_layers":48,"vocab_size":151936,"num_attention_heads":16,"num_key_value_heads":2,
"head_dim":256,"num_experts":512,"num_experts_per_tok":10,"moe_intermediate_size":512,
"shared_expert_intermediate_size":512,"linear_num_key_heads":16,"linear_num_value_heads":32,
"linear_key_head_dim":128,"linear_value_head_dim":128,"linear_conv_kernel_dim":4})",
     80e9, 0.01},
    {"Llama-4-Scout-17B-16E", R"({"model_type":"llama4","text_config":{"model_type":"llama4_text",
"hidden_size":5120,"num_hidden_layers":48,"vocab_size":202048,"num_attention_heads":40,
"num_key_value_heads":8,"head_dim":128,"num_local_experts":16,"num_experts_per_tok":1,
"intermediate_size":8192,"intermediate_size_mlp":16384},"vision_config":{"hidden_size":1408,
"intermediate_size":5632,"num_hidden_layers":34,"image_size":336,"patch_size":14,
"projector_input_dim":4096,"projector_output_dim":4096,"vision_output_dim":4096}})",
     108641793536, 0},
    {"Llama-4-Maverick-17B-128E",
     R"({"model_type":"llama4","text_config":{"model_type":"llama4_text",
"hidden_size":5120,"num_hidden_layers":48,"vocab_size":202048,"num_attention_heads":40,
"num_key_value_heads":8,"head_dim":128,"num_local_experts":128,"num_experts_per_tok":1,
"intermediate_size":8192,"intermediate_size_mlp":16384,"interleave_moe_layer_step":2},
"vision_config":{"hidden_size":1408,"intermediate_size":5632,"num_hidden_layers":34,
"image_size":336,"patch_size":14,"projector_input_dim":4096,"projector_output_dim":4096,
"vision_output_dim":4096}})",
     401583781376, 0},
    {"Kimi-K2", R"({"model_type":"kimi_k2","hidden_size":7168,"num_hidden_layers":61,
"vocab_size":163840,"num_attention_heads":64,"q_lora_rank":1536,"kv_lora_rank":512,
"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,"n_routed_experts":384,
"num_experts_per_tok":8,"n_shared_experts":1,"moe_intermediate_size":2048,
"intermediate_size":18432,"first_k_dense_replace":1})",
     1.04e12, 0.02},
    {"ERNIE-4.5-21B-A3B", R"({"model_type":"ernie4_5_moe","hidden_size":2560,
"num_hidden_layers":28,"vocab_size":103424,"num_attention_heads":20,"num_key_value_heads":4,
"moe_num_experts":64,"moe_k":6,"moe_num_shared_experts":2,"moe_intermediate_size":1536,
"intermediate_size":12288,"moe_layer_start_index":1,"tie_word_embeddings":true})",
     21825437888, 1e-6},
    {"dots.llm1", R"({"model_type":"dots1","hidden_size":4096,"num_hidden_layers":62,
"vocab_size":152064,"num_attention_heads":32,"num_key_value_heads":32,"n_routed_experts":128,
"num_experts_per_tok":6,"n_shared_experts":2,"moe_intermediate_size":1408,
"intermediate_size":10944,"first_k_dense_replace":1})",
     142774381696, 1e-6},
    {"Hunyuan-A13B", R"({"model_type":"hunyuan_v1_moe","hidden_size":4096,
"num_hidden_layers":4,"vocab_size":128167,"num_attention_heads":32,"num_key_value_heads":8,
"attention_head_dim":128,"num_experts":64,"moe_topk":[8,8,8,8],
"moe_intermediate_size":[3072,3072,3072,3072],"num_shared_expert":[1,1,1,1],
"intermediate_size":3072,"use_qk_norm":true,"tie_word_embeddings":true})",
     (80393183232. - 128167 * 4096 - 4096) / 8 + 128167 * 4096 + 4096, 1e-3},
    {"MiniMax-M1", R"({"model_type":"minimax_m1","hidden_size":6144,
"num_hidden_layers":8,"vocab_size":200064,"num_attention_heads":64,"num_key_value_heads":8,
"head_dim":128,"num_local_experts":32,"num_experts_per_tok":2,"intermediate_size":9216,
"attn_type_list":[0,0,0,0,0,0,0,1]})",
     (456089655296. - 2 * 200064 * 6144. - 6144) / 10 + 2 * 200064 * 6144. + 6144, 1e-9},
};

TEST_F(model_configs, totals_are_the_published_ones) {
  for (const auto& known : published_models) {
    const auto path = folder_.write("config.json", known.config);
    const auto m = lab::describe_model(path.string()).memory;
    support::expect_blocks_add_up(m);
    const auto elements = static_cast<double>(m.all_expert_bytes() + m.resident_bytes) / 2;
    EXPECT_NEAR(elements, known.elements, known.elements * known.within) << known.name;
  }
}

TEST_F(model_configs, attention_of_another_kind_is_refused) {
  EXPECT_EQ(memory(plain("mixtral"), R"({"attn_type_list": [1, 1, 1]})").kv.size(), 1U);
  refuse(plain("minimax_m2", R"({"attn_type_list": [1, 0, 1]})"),
         {"key 'attn_type_list'", "entry 1 is 0", "softmax attention"});
}

TEST_F(model_configs, a_vision_tower_stands_beside_its_language_model) {
  json config = {{"model_type", "kimi_vl"},
                 {"torch_dtype", "float16"},
                 {"text_config", latent("deepseek_v3", R"({"torch_dtype": null})")}};
  config["vision_config"] = json::parse(R"({"hidden_size": 6, "intermediate_size": 9,
"num_hidden_layers": 2, "patch_size": 3, "init_pos_emb_height": 4, "init_pos_emb_width": 5})");
  const auto language = memory(config["text_config"]);
  constexpr std::uint64_t layer = 4 * 36 + 4 * 6 + 2 * 6 * 9 + 9 + 6 + 4 * 6;
  constexpr std::uint64_t tower = 2 * layer + 4 * 5 * 6 + 3 * 6 * 9 + 6 + 2 * 6;
  constexpr std::uint64_t projector = 2 * 6 + 24 * 24 + 24 + 24 * 32 + 32;
  const auto out = describe(config);
  EXPECT_EQ(out.memory.resident_bytes, language.resident_bytes + 2 * (tower + projector));
  EXPECT_EQ(out.memory.all_expert_bytes(), language.all_expert_bytes());
  EXPECT_EQ(out.memory.kv, language.kv);
  EXPECT_THAT(out.notes, testing::Not(Contains(HasSubstr("torch_dtype"))));
  EXPECT_EQ(memory(config, R"({"vision_config": {"merge_kernel_size": [1, 1]}})").resident_bytes,
            out.memory.resident_bytes - 2 * (24 * 24 + 24 + 24 * 32 - 6 * 6 - 6 - 6 * 32));
  refuse_without(config, {"text_config", "vision_config"});
  refuse(patched(config, R"({"vision_config": {"hidden_size": null}})"),
         {"key 'vision_config.hidden_size'", "is missing"});
  refuse(patched(config, R"({"vision_config": {"merge_kernel_size": [2]}})"),
         {"key 'vision_config.merge_kernel_size'"});
  refuse(patched(config, R"({"text_config": {"model_type": "mixtral"}})"),
         {"key 'text_config.model_type'", "accepted: deepseek_v3"});
}

TEST_F(model_configs, an_unknown_family_is_refused_with_the_known_ones) {
  refuse(plain("dbrx"), {"key 'model_type'", "is 'dbrx'", "accepted: by hand --layers",
                         "one of olmoe, mixtral, qwen2_moe"});
  refuse(plain("llama", R"({"num_experts": null})"),
         {"is 'llama', and no number of experts is given: dense models"});
  refuse(json::parse(
             R"({"model_type": "dbrx", "ffn_config": {"moe_num_experts": 16, "moe_top_k": 4}})"),
         {"is 'dbrx'; accepted"});
  refuse(plain("mixtral", R"({"model_type": null})"), {"key 'model_type'", "is missing", "olmoe"});
  refuse(plain("mixtral", R"({"model_type": 3})"), {"'model_type'", "is 3", "a string"});
}

TEST_F(model_configs, a_dense_model_is_refused) {
  for (const auto* type : {"llada", "mixtral", "qwen3_moe"})
    refuse(plain(type, R"({"num_experts": null})"),
           {"has none of num_experts, num_local_experts, n_routed_experts", "a dense model"});
  for (const auto* patch : {R"({"num_experts": 0})", R"({"num_experts": 1})"})
    refuse(plain("jamba", patch),
           {"key 'num_experts'", "a dense model has no experts to page", "2 or more"});
}

TEST_F(model_configs, wrong_values_name_their_key) {
  const auto with = [](const std::string& key, const json& value, const char* type = "mixtral") {
    auto config = plain(type);
    config[key] = value;
    return config;
  };
  for (const std::string key :
       {"hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads",
        "num_key_value_heads", "num_experts", "num_experts_per_tok", "intermediate_size",
        "max_position_embeddings"}) {
    const auto place = "key '" + key + "'";
    for (const json& bad : {json("many"), json(-1), json(2.5), json(true), json(1ULL << 40U)})
      refuse(with(key, bad), {place, "is " + bad.dump(), "an integer in "});
    refuse(with(key, {1, 2}), {place, "entry 1 is 2, entry 0 is 1"});
    refuse(with(key, json::object()), {place, "is an object"});
  }
  refuse_without(plain("mixtral"),
                 {"hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads",
                  "num_experts_per_tok", "intermediate_size"});
  for (const std::string key : {"attention_bias", "tie_word_embeddings", "lm_head_bias"})
    refuse(with(key, 1), {"key '" + key + "'", "is 1", "true or false"});
  refuse(with("mlp_only_layers", 3), {"key 'mlp_only_layers'", "is 3", "an array of integers"});
  refuse(with("mlp_only_layers", {0, "x"}), {"key 'mlp_only_layers'", "entry 1 is \"x\""});
  refuse(with("num_experts_per_tok", 5), {"top_k = 5, accepted: 1..4"});
  refuse(with("layer_types", {1, 2, 3}, "gpt_oss"),
         {"key 'layer_types'", "entry 0 is 1", "strings"});
  refuse(with("moe_intermediate_size", 8, "qwen2_moe"),
         {"key 'shared_expert_intermediate_size'", "is missing"});
}

TEST_F(model_configs, models_too_large_for_any_memory_are_refused) {
  refuse(plain("mixtral", R"({"hidden_size": 16777216, "intermediate_size": 16777216,
"num_experts": 4000})"),
         {"all_expert_bytes = 18446744073709551615"});
  refuse(plain("mixtral", R"({"hidden_size": 1048576, "num_attention_heads": 16777216,
"num_key_value_heads": 16777216, "head_dim": 16777216})"),
         {"resident_bytes = "});
}

TEST_F(model_configs, what_is_no_config_is_refused) {
  refuse_text("", {"config.json", "ends before its JSON does"});
  refuse_text(R"({"model_type":"mixtral","rope_theta":1e999})",
              {"config.json", "holds a number that no double can"});
  refuse_text("{\"a\": 1,}", {"byte 9", "is not JSON here"});
  refuse_text("[1]", {"is no JSON object"});
  refuse_text("{\"model_type\": \"\xff\"}", {"is not JSON here", "UTF-8"});
  refuse_text(std::string(1'000'000, '['), {"nests values more than 32 deep"});
  refuse_text(std::string((16U << 20U) + 1, ' '), {"has 16777217 bytes", "up to 16777216"});
  const auto whole = plain("mixtral").dump();
  for (std::size_t size = 0; size < whole.size(); ++size)
    refuse_text(std::string_view(whole).substr(0, size), {"ends before its JSON does"});
  refuse_text(R"({"num_experts":8,)" + whole.substr(1),
              {"config.json: key 'num_experts': is there twice", "each key once"});
}

TEST_F(model_configs, files_of_another_kind_are_refused) {
  expect_refused([&] { (void)lab::describe_model(folder_.path().string()); },
                 {"holds neither config.json nor .safetensors"});
  const auto text = folder_.write("notes.txt", "hello");
  expect_refused([&] { (void)lab::describe_model(text.string()); },
                 {"notes.txt", "is of no known kind", ".gguf"});
  const auto named = folder_.write("small.json", plain("mixtral").dump());
  EXPECT_EQ(lab::describe_model(named.string()).memory.name, "small");
}

struct stored_tensor {
  std::string name;
  const char* dtype = "BF16";
  std::vector<std::uint64_t> shape;
};
using tensors_of = std::vector<stored_tensor>;

/// A file of zeros.
std::string stored(const tensors_of& tensors) {
  json header = json::object();
  std::uint64_t end = 0;
  for (const auto& t : tensors) {
    const std::string_view dtype = t.dtype;
    std::uint64_t bytes = dtype == "BF16" ? 2 : dtype == "F32" ? 4 : 1;
    for (const auto extent : t.shape) bytes *= extent;
    header[t.name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  }
  return trace_samples::safetensors_bytes(header.dump(), std::string(end, '\0'));
}

/// The attention, router, norms and experts of a layer of plain().
void add_layer(tensors_of& tensors, int layer) {
  const auto name = "model.layers." + std::to_string(layer) + ".";
  for (const auto& [part, shape] : std::vector<std::pair<const char*, std::vector<std::uint64_t>>>{
           {"self_attn.q_proj", {32, 32}},
           {"self_attn.k_proj", {16, 32}},
           {"self_attn.v_proj", {16, 32}},
           {"self_attn.o_proj", {32, 32}},
           {"mlp.gate", {4, 32}},
           {"input_layernorm", {32}},
           {"post_attention_layernorm", {32}}})
    tensors.push_back({name + part + ".weight", "BF16", shape});
  for (int e = 0; e < 4; ++e)
    for (const auto* part : {"w1", "w2", "w3"})
      tensors.push_back(
          {name + "block_sparse_moe.experts." + std::to_string(e) + "." + part + ".weight",
           "BF16",
           {8, 32}});
}
/// All of plain(), or of a model of more layers.
tensors_of plain_tensors(int layers = 3) {
  tensors_of tensors = {{"model.embed_tokens.weight", "BF16", {10, 32}},
                        {"lm_head.weight", "BF16", {10, 32}},
                        {"model.norm.weight", "BF16", {32}}};
  for (int l = 0; l < layers; ++l) add_layer(tensors, l);
  return tensors;
}
bool has_part(const stored_tensor& t, std::string_view part) {
  return t.name.find(part) != t.name.npos;
}

class stored_models : public model_configs {
 protected:
  [[nodiscard]] lab::model_description folder() const {
    auto out = lab::describe_model(folder_.path().string());
    support::expect_blocks_add_up(out.memory);
    return out;
  }
  void refuse_folder(std::initializer_list<std::string_view> parts) const {
    expect_refused([&] { (void)folder(); }, parts);
  }
  void write_config(const json& config) const { folder_.write("config.json", config.dump()); }
  void write(const tensors_of& tensors) const {
    folder_.write("model.safetensors", stored(tensors));
  }
};

TEST_F(stored_models, the_headers_say_what_the_config_says) {
  write_config(plain("mixtral"));
  const auto by_config = folder().memory;
  write(plain_tensors());
  const auto out = folder();
  EXPECT_THAT(out.source, HasSubstr("config.json and the headers of 1 .safetensors file"));
  EXPECT_EQ(out.memory.experts.expert_bytes, by_config.experts.expert_bytes);
  EXPECT_EQ(out.memory.resident_bytes, by_config.resident_bytes);
  EXPECT_EQ(out.memory.kv, by_config.kv);
  EXPECT_EQ(out.memory.blocks, by_config.blocks);
  EXPECT_EQ(out.memory.name, folder_.path().filename());
}

TEST_F(stored_models, the_config_has_the_shape_and_the_headers_have_the_bytes) {
  write_config(stored_as(R"({"quant_method": "compressed-tensors"})",
                         plain("mixtral", R"({"sliding_window": 10})")));
  auto tensors = plain_tensors();
  for (auto& t : tensors)
    if (has_part(t, ".experts.")) t.dtype = "F8_E4M3";
  for (int e = 0; e < 4; ++e)
    tensors.push_back(
        {"model.layers.1.block_sparse_moe.experts." + std::to_string(e) + ".scale", "F32", {3}});
  write(tensors);
  const auto m = folder().memory;
  EXPECT_THAT(m.experts.expert_bytes,
              ElementsAre(plain_expert / 2, plain_expert / 2 + 12, plain_expert / 2));
  EXPECT_EQ(m.resident_bytes, plain_resident);
  EXPECT_THAT(m.kv, ElementsAre(kv_layers{3, 64, 10}));
  EXPECT_EQ(m.experts.top_k, 2);
}

TEST_F(stored_models, stacked_experts_are_divided_and_shared_ones_are_resident) {
  write_config(plain("mixtral", R"({"num_hidden_layers": 1})"));
  tensors_of tensors = {{"model.layers.0.self_attn.k_proj.weight", "BF16", {16, 32}},
                        {"model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", {4, 16, 2, 8}},
                        {"model.layers.0.mlp.experts.down_proj_bias", "BF16", {4, 32}},
                        {"model.layers.0.mlp.shared_experts.up_proj.weight", "BF16", {4, 32}}};
  write(tensors);
  const auto m = folder().memory;
  EXPECT_THAT(m.experts.expert_bytes, ElementsAre(16 * 2 * 8 + 32 * 2));
  EXPECT_EQ(m.resident_bytes, 2U * 16 * 32 + 2 * 4 * 32);
  tensors.push_back({"model.layers.0.mlp.experts.extra", "BF16", {5, 32}});
  write(tensors);
  refuse_folder({"layer 0, 'extra'", "is of 5 experts", "4, as elsewhere"});
  tensors.back().shape = {};
  write(tensors);
  refuse_folder({"tensor 'model.layers.0.mlp.experts.extra'", "stacks 0 experts"});
}

TEST_F(stored_models, several_files_are_found_by_their_index_or_by_their_names) {
  write_config(plain("mixtral"));
  const auto all = plain_tensors();
  const auto half = all.begin() + 20;
  const auto part = folder_.write("model-00001-of-00002.safetensors", stored({all.begin(), half}));
  refuse_folder({"holds 1 .safetensors files", "all 2 parts"});
  expect_refused([&] { (void)lab::describe_model(part.string()); },
                 {"is one of 2 parts", "the folder that holds all"});
  folder_.write("model-00002-of-00002.safetensors", stored({half, all.end()}));
  EXPECT_EQ(folder().memory.resident_bytes, plain_resident);
  EXPECT_THAT(folder().source, HasSubstr("the headers of 2 .safetensors files"));
  folder_.write("other.safetensors", stored({{"x", "BF16", {4}}}));
  refuse_folder({"holds 3 .safetensors files", "all 2 parts, and no other"});

  const auto index = [&](const std::string& text) {
    folder_.write("model.safetensors.index.json", text);
  };
  index(R"({"weight_map": {"a": "model-00001-of-00002.safetensors",
"b": "model-00002-of-00002.safetensors", "c": "model-00001-of-00002.safetensors"}})");
  EXPECT_EQ(folder().memory.resident_bytes, plain_resident) << "what the index does not list";
  for_each_case(R"(
{"weight_map": {"a": "model-00003-of-00003.safetensors"}} => model-00003-of-00003.safetensors | cannot be opened
{"weight_map": {"a": "../x.safetensors"}} => key 'weight_map' | holds '../x.safetensors' | file name
{"weight_map": {"a": 7}} => key 'weight_map' | holds no file name
{"weight_map": {}} => key 'weight_map' | is missing or empty
{ => model.safetensors.index.json: ends before its JSON does
{"weight_map": {"a": "other.safetensors", "a": "other.safetensors"}} => key 'a': is there twice)",
                [&](auto text, auto expected) {
                  index(std::string(text));
                  refuse_folder({expected});
                });
  write(all);
  EXPECT_EQ(folder().memory.resident_bytes, plain_resident) << "one whole file comes first";
}

TEST_F(stored_models, a_tensor_in_two_files_is_refused) {
  folder_.write("a.safetensors", stored(plain_tensors()));
  folder_.write("b.safetensors", stored({{"lm_head.weight", "BF16", {10, 32}}}));
  refuse_folder({"b.safetensors: tensor 'lm_head.weight': is in another file of the model"});
}

TEST_F(stored_models, headers_of_files_that_were_cut_are_enough) {
  write_config(plain("mixtral"));
  const auto whole = stored(plain_tensors());
  std::uint64_t header = 0;
  std::memcpy(&header, whole.data(), sizeof header);
  for (const auto size : {header + 8, header + 100, std::uint64_t{whole.size() - 1}}) {
    folder_.write("model.safetensors", std::string_view(whole).substr(0, size));
    const auto out = folder();
    EXPECT_EQ(out.memory.resident_bytes, plain_resident);
    EXPECT_EQ(out.memory.experts.bytes_of(0_layer), plain_expert);
    EXPECT_THAT(out.notes, ElementsAre("1 of 1 .safetensors files is cut short by " +
                                       lab::size_text(whole.size() - size) +
                                       " in all: headers are enough for a plan"));
  }
  folder_.write("model.safetensors", std::string_view(whole).substr(0, header + 7));
  refuse_folder({"passes the file's end"});
}

TEST_F(stored_models, layers_past_the_last_one_are_not_counted) {
  write_config(plain("mixtral"));
  write(plain_tensors(4));
  const auto out = folder();
  EXPECT_EQ(out.memory.experts.layers, 3);
  EXPECT_EQ(out.memory.resident_bytes, plain_resident);
  EXPECT_THAT(out.notes, ElementsAre("1 layer from 3 on not counted: config.json ends before"));
}

TEST_F(stored_models, files_that_contradict_the_config_are_refused) {
  write_config(plain("mixtral"));
  for_each_case(R"(
layers.1.block_sparse_moe.experts => layer 1: has no experts | is a file missing?
layers.2. => layer 2: has no experts
layers.2.block_sparse_moe.experts.3. => layer 2, 'w1.weight': is of 3 experts | accepted: 4, as elsewhere
layers.2.block_sparse_moe.experts.2.w2 => layer 2, 'w2.weight': has expert 3 where 2 should be)",
                [&](auto missing, auto part) {
                  auto some = plain_tensors();
                  std::erase_if(some, [&](const auto& t) { return has_part(t, missing); });
                  write(some);
                  refuse_folder({part});
                });
  auto tensors = plain_tensors();
  tensors.back().shape = {7, 32};
  write(tensors);
  refuse_folder({"layer 2, 'w3.weight': expert 3 has 448 bytes", "512, as expert 0"});
  write_config(plain("mixtral", R"({"first_k_dense_replace": 1})"));
  write(plain_tensors());
  refuse_folder({"layer 0: has experts", "what config.json says"});
}

TEST_F(stored_models, headers_alone_leave_out_what_they_do_not_say) {
  const auto path = folder_.write("plain.safetensors", stored(plain_tensors()));
  const auto out = lab::describe_model(path.string());
  EXPECT_EQ(out.memory.name, "plain");
  EXPECT_EQ(out.memory.experts.layers, 3);
  EXPECT_EQ(out.memory.experts.experts, 4);
  EXPECT_EQ(out.memory.experts.top_k, 1);
  EXPECT_EQ(out.memory.resident_bytes, plain_resident);
  EXPECT_THAT(out.memory.kv, ElementsAre(kv_layers{3, 64, 0})) << "rows of k_proj and v_proj";
  EXPECT_EQ(out.memory.max_context, 0U);
  EXPECT_THAT(out.notes, ElementsAre(HasSubstr("no config.json beside it: top-k is taken as 1")));
  EXPECT_EQ(folder().memory.kv, out.memory.kv);

  tensors_of latent_one = {
      {"model.layers.0.mlp.experts.0.up_proj.weight", "BF16", {2}},
      {"model.layers.0.mlp.experts.1.up_proj.weight", "BF16", {2}},
      {"language_model.model.layers.0.self_attn.kv_a_proj_with_mqa.weight", "BF16", {20, 8}}};
  folder_.write("plain.safetensors", stored(latent_one));
  EXPECT_THAT(folder().memory.kv, ElementsAre(kv_layers{1, 40, 0}));
  latent_one.pop_back();
  folder_.write("plain.safetensors", stored(latent_one));
  refuse_folder({"has no k_proj and v_proj", "a config.json beside it"});
  folder_.write("plain.safetensors", stored({{"x", "BF16", {3}}}));
  refuse_folder({"has 0 routed experts in a layer", "its largest tensor is 'x'",
                 "layers.0.mlp.experts.0", "or by hand --layers"});
  folder_.write("plain.safetensors", "short");
  refuse_folder({"plain.safetensors", "5 bytes"});
}

TEST_F(stored_models, experts_under_the_names_of_other_writers_are_read) {
  write_config(plain("mixtral", R"({"num_hidden_layers": 1})"));
  const auto expert_with = [&](const std::string& prefix, tensors_of tensors) {
    for (auto& t : tensors) t.name = prefix + "0" + t.name;
    tensors.push_back({prefix + "0.self_attn.k_proj.weight", "BF16", {16, 32}});
    write(tensors);
    return folder().memory.experts.bytes_of(0_layer);
  };
  EXPECT_EQ(expert_with("model.layers.", {{".mlp.switch_mlp.up_proj.weight", "F32", {4, 8, 4}},
                                          {".mlp.switch_mlp.up_proj.scales", "BF16", {4, 8, 1}}}),
            8U * 4 * 4 + 8 * 2);
  EXPECT_EQ(
      expert_with("model.layers.", {{".block_sparse_moe.input_linear.weight", "BF16", {4, 16, 32}},
                                    {".block_sparse_moe.output_linear.weight", "BF16", {4, 32, 8}},
                                    {".shared_mlp.input_linear.weight", "BF16", {16, 32}}}),
      2U * (16 * 32 + 32 * 8));
  for (const auto* prefix : {"layers.", "backbone.layers.", "model.language_model.layers.",
                             "language_model.model.layers."})
    EXPECT_EQ(expert_with(prefix, {{".mlp.experts.gate_up_proj", "BF16", {4, 16, 32}}}),
              2U * 16 * 32)
        << prefix;
  write({{"transformer.blocks.0.ffn.experts.mlp.w1", "BF16", {4, 8}}});
  refuse_folder({"its largest tensor is 'transformer.blocks.0.ffn.experts.mlp.w1'",
                 "layers.0.mlp.switch_mlp.up_proj.weight"});
}

TEST_F(stored_models, an_unknown_family_is_read_by_its_headers) {
  write_config(json::parse(R"({"model_type": "some_moe", "text_config": {
"model_type": "some_moe_text", "num_experts_per_tok": 2, "num_hidden_layers": 3,
"max_position_embeddings": 500}})"));
  auto tensors = plain_tensors(4);
  write(tensors);
  const auto out = folder();
  EXPECT_EQ(out.memory.experts.layers, 3) << "the fourth is one of multi-token prediction";
  EXPECT_EQ(out.memory.experts.top_k, 2);
  EXPECT_TRUE(out.top_k_is_known);
  EXPECT_EQ(out.memory.max_context, 500U);
  EXPECT_EQ(out.memory.experts.bytes_of(0_layer), plain_expert);
  EXPECT_EQ(out.memory.resident_bytes, plain_resident);
  EXPECT_THAT(out.notes,
              Contains(HasSubstr("'some_moe' is no known model_type: all sizes are those "
                                 "of the headers; windows")));
  write_config({{"model_type", "some_moe"}});
  EXPECT_FALSE(folder().top_k_is_known);
  EXPECT_THAT(folder().notes, ElementsAre(HasSubstr("top-k is taken as 1 unless --top-k")));
  std::erase_if(tensors,
                [](const auto& t) { return has_part(t, "k_proj") || has_part(t, "v_proj"); });
  write(tensors);
  refuse_folder({"has no k_proj and v_proj", "accepted: by hand --layers"});
}

TEST_F(stored_models, one_packed_column_has_no_rows_to_count) {
  auto tensors = plain_tensors();
  for (auto& t : tensors)
    if (has_part(t, "k_proj") || has_part(t, "v_proj")) t.shape = {256, 1};
  write(tensors);
  refuse_folder({"has no k_proj and v_proj"});
}

TEST(tiny_model, folder_config_and_weights_agree) {
  const auto folder = std::filesystem::path(HOTSET_SOURCE_DIR) / "examples/data/tiny-moe";
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "examples/data/tiny-moe is not in this checkout";
  const auto by_folder = lab::describe_model(folder.string());
  const auto by_config = lab::describe_model((folder / "config.json").string());
  const auto by_file = lab::describe_model((folder / "model.safetensors").string());
  for (const auto* out : {&by_folder, &by_config, &by_file}) {
    const auto& m = out->memory;
    EXPECT_EQ(m.experts.layers, 12);
    EXPECT_EQ(m.experts.experts, 32);
    EXPECT_EQ(m.experts.top_k, 4);
    EXPECT_THAT(m.experts.expert_bytes, ElementsAre(23040)) << out->source;
    EXPECT_EQ(m.resident_bytes, 1012416U) << out->source;
    EXPECT_THAT(m.kv, ElementsAre(kv_layers{12, 2 * 96 * 2, 0})) << out->source;
    EXPECT_EQ(m.max_context, 2048U);
    EXPECT_THAT(out->notes, IsEmpty());
  }
  EXPECT_EQ(by_folder.memory.name, "tiny-moe");
  EXPECT_EQ(by_config.memory.name, "tiny-moe");
  const auto reference = folder / "reference.safetensors";
  expect_refused([&] { (void)lab::describe_model(reference.string()); },
                 {"has 0 routed experts in a layer under names that are known"});
}

}  // namespace
}  // namespace hotset::model_description_test
