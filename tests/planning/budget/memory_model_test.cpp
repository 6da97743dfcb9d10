// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/budget/memory_model.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/numbers/units.hpp"
#include "lab/traces/synthetic/synthetic.hpp"

namespace hotset::memory_model_test {
namespace {

constexpr auto most = std::numeric_limits<std::uint64_t>::max();

/// Three MoE layers of four experts; two full and one windowed attention layer, and a recurrent state.
memory_model small() {
  memory_model m;
  m.name = "small";
  m.experts = {.layers = 3, .experts = 4, .top_k = 2, .expert_bytes = {100, 200, 300}};
  m.resident_bytes = 5000;
  m.kv = {{.layers = 2, .bytes_per_token = 16}, {.layers = 1, .bytes_per_token = 8, .window = 10}};
  m.state_bytes_per_sequence = 7;
  return m;
}

TEST(memory_model, a_slot_is_one_expert_in_every_moe_layer) {
  auto m = small();
  ASSERT_FALSE(m.validate());
  EXPECT_EQ(m.expert_slot_bytes(), 600U);
  EXPECT_EQ(m.all_expert_bytes(), 2400U);
  m.experts.expert_bytes = {50};
  EXPECT_EQ(m.expert_slot_bytes(), 150U) << "one entry stands for all layers";
  EXPECT_EQ(m.all_expert_bytes(), 600U);
}

TEST(memory_model, a_window_caps_its_layers_and_the_state_is_paid_once) {
  auto m = small();
  EXPECT_TRUE(m.has_kv());
  EXPECT_EQ(m.kv_bytes_per_token(), 32U) << "layers without a window";
  EXPECT_EQ(m.kv_bytes(0), 7U);
  EXPECT_EQ(m.kv_bytes(1), 7U + 40U);
  EXPECT_EQ(m.kv_bytes(10), 7U + 400U);
  EXPECT_EQ(m.kv_bytes(11), 7U + 11 * 32U + 80U);
  EXPECT_EQ(m.kv_bytes(1'000'000), 7U + 32'000'000U + 80U);
  m.kv.clear();
  EXPECT_FALSE(m.has_kv());
  EXPECT_FALSE(m.validate());
  EXPECT_EQ(m.kv_bytes(4096), 7U) << "the state alone";
}

TEST(memory_model, each_token_past_every_window_adds_the_bytes_of_one_token) {
  splitmix64 random(7);
  for (int round = 0; round < 2000; ++round) {
    auto m = small();
    m.kv.clear();
    std::uint64_t widest = 0;
    for (std::uint64_t group = random.below(4); group > 0; --group) {
      m.kv.push_back({.layers = static_cast<std::int32_t>(1 + random.below(90)),
                      .bytes_per_token = 1 + random.below(1 << 20U),
                      .window = random.below(3) * random.below(200)});
      widest = std::max(widest, m.kv.back().window);
    }
    ASSERT_FALSE(m.validate()) << round;
    const auto tokens = widest + random.below(1000);
    ASSERT_EQ(m.kv_bytes(tokens + 1), m.kv_bytes(tokens) + m.kv_bytes_per_token()) << round;
    std::uint64_t walked = m.state_bytes_per_sequence;
    for (const auto& group : m.kv)
      for (std::uint64_t t = 0; t < tokens; ++t)
        if (group.window == 0 || t < group.window)
          walked += static_cast<std::uint64_t>(group.layers) * group.bytes_per_token;
    ASSERT_EQ(m.kv_bytes(tokens), walked) << round;
  }
}

TEST(memory_model, a_sum_that_overflows_is_the_largest_number) {
  auto m = small();
  EXPECT_EQ(m.kv_bytes(most), most);
  m.kv[0].bytes_per_token = most;
  EXPECT_EQ(m.kv_bytes_per_token(), most);
  m.kv[0].bytes_per_token = 16;
  m.state_bytes_per_sequence = most;
  EXPECT_EQ(m.kv_bytes(1), most);
  m.experts.expert_bytes = {most, most, most};
  EXPECT_EQ(m.expert_slot_bytes(), most);
  m.experts.expert_bytes = {most / 6};
  EXPECT_EQ(m.expert_slot_bytes(), most / 6 * 3);
  EXPECT_EQ(m.all_expert_bytes(), most) << "12 of them";
}

// Engines number dense layers too.
TEST(memory_model, the_blocks_with_experts_are_counted_among_all) {
  auto m = small();
  m.blocks.assign(5, {.is_moe = true});
  m.blocks[0].is_moe = m.blocks[3].is_moe = false;
  EXPECT_FALSE(m.validate());
  m.blocks[0].is_moe = true;
  EXPECT_EQ(m.validate()->message,
            "4 blocks with experts, accepted: 3, one for each layer of experts");
  m.blocks[0] = {.is_moe = false, .resident_bytes = m.resident_bytes};
  EXPECT_FALSE(m.validate());
  m.blocks[1].resident_bytes = 1;
  EXPECT_THAT(m.validate()->message, testing::HasSubstr("those of the model"));
}

TEST(memory_model, a_model_that_cannot_be_is_refused_with_the_accepted_range) {
  const auto said = [](auto change) {
    auto m = small();
    change(m);
    const auto bad = m.validate();
    return bad ? bad->message : "accepted";
  };
  EXPECT_EQ(said([](auto&) {}), "accepted");
  EXPECT_EQ(said([](auto& m) { m.experts.top_k = 5; }), "top_k = 5, accepted: 1..4");
  EXPECT_EQ(said([](auto& m) { m.experts.expert_bytes.clear(); }),
            "expert_bytes is empty, accepted: 1 or one per layer (3)");
  EXPECT_EQ(said([](auto& m) { m.kv[1].layers = 0; }), "kv[1].layers = 0, accepted: 1 or more");
  EXPECT_EQ(said([](auto& m) { m.kv[0].bytes_per_token = 0; }),
            "kv[0].bytes_per_token = 0, accepted: 1 or more");
  EXPECT_EQ(said([](auto& m) { m.experts.expert_bytes = {1_GiB << 29U}; }),
            "all_expert_bytes = 6917529027641081856, accepted: at most 1152921504606846976");
  EXPECT_EQ(said([](auto& m) { m.resident_bytes = memory_model::max_bytes + 1; }),
            "resident_bytes = 1152921504606846977, accepted: at most 1152921504606846976");
  EXPECT_EQ(said([](auto& m) { m.resident_bytes = memory_model::max_bytes; }), "accepted");
  EXPECT_EQ(said([](auto& m) { m.state_bytes_per_sequence = most; }),
            "state_bytes_per_sequence = 18446744073709551615, accepted: at most "
            "1152921504606846976");
  EXPECT_EQ(said([](auto& m) { m.kv[0].bytes_per_token = most; }),
            "kv_bytes of one token = 18446744073709551615, accepted: at most 1152921504606846976");
}

}  // namespace
}  // namespace hotset::memory_model_test
