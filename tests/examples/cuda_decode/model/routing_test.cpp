// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/model/routing.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda_decode/program/ceiling.hpp"
#include "sim_samples.hpp"

namespace cuda_decode::routing_test {
namespace {

using namespace hotset::literals;
using hotset::support::add_step;
using hotset::support::empty_trace;
using testing::ElementsAre;
using testing::HasSubstr;

const model_shape two_layers = make_shape("test", number_format::bf16, {2, 8, 2, 64, 32});

/// Token 1 belongs to a prompt.
hotset::routing_trace hand_made() {
  auto t = empty_trace(3, 8, 2);
  add_step(t, {{0, 1, 2, 3, 7, 7}});
  add_step(t, {{6, 6, 6, 6, 6, 6}}, hotset::request_class::prefill);
  add_step(t, {{1, 4, 5, 5, 7, 7}});
  add_step(t, {{4, 1, -1, 2, 7, 7}});
  return t;
}

TEST(routing, takes_decoded_tokens_and_the_first_layers) {
  const decode_routing routing(hand_made(), two_layers, 3);
  EXPECT_EQ(routing.steps(), 3U);
  EXPECT_THAT(routing.ids(0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(routing.ids(1), ElementsAre(1, 4, 5, 5));
  EXPECT_THAT(routing.ids(2, 1_layer), ElementsAre(-1, 2));
  EXPECT_THAT(routing.weights(0), ElementsAre(0.5F, 0.5F, 0.5F, 0.5F));
}

TEST(routing, keeps_the_weights_of_a_trace) {
  auto trace = hand_made();
  for (std::size_t i = 0; i < trace.ids.size(); ++i) trace.weights.push_back(static_cast<float>(i));
  const decode_routing routing(trace, two_layers, 2);
  EXPECT_THAT(routing.weights(1), ElementsAre(12.0F, 13.0F, 14.0F, 15.0F));
}

TEST(routing, counts_distinct_and_new_experts) {
  const decode_routing routing(hand_made(), two_layers, 3);
  EXPECT_EQ(routing.distinct(0, 3), 2U + 2U + 2U + 1U + 2U + 1U);
  EXPECT_EQ(routing.turned_over(1, 2), 2U);  // 4; 5
  EXPECT_EQ(routing.turned_over(2, 3), 1U);  // none; 2
  EXPECT_DOUBLE_EQ(turnover_bytes_per_step(routing, 1, 3, 1000), 1500.0);
}

TEST(routing, refuses_a_trace_of_another_model) {
  const auto told = [](const model_shape& shape, std::size_t steps) {
    return hotset::support::refusal<hotset::trace_error>(
        [&] { const decode_routing made(hand_made(), shape, steps); });
  };
  EXPECT_EQ(told(two_layers, 4),
            "the trace has 3 decoded tokens, accepted: 4 or more (--steps, --warmup)");
  EXPECT_THAT(told(make_shape("m", number_format::bf16, {2, 16, 2, 64, 32}), 1),
              HasSubstr("8 experts, accepted: 16 (m)"));
  EXPECT_THAT(told(make_shape("m", number_format::bf16, {2, 8, 3, 64, 32}), 1),
              HasSubstr("2 experts a token, accepted: 3 (m)"));
  EXPECT_THAT(told(make_shape("m", number_format::bf16, {4, 8, 2, 64, 32}), 1),
              HasSubstr("3 layers, accepted: 4 or more"));
}

// WiSP section 4: in each of 48 layers, half of the top 8 changes.
TEST(the_ceiling, is_that_of_wisps_example) {
  const auto qwen = shape_named("qwen3-30b-a3b");
  auto trace = empty_trace(48, 128, 8);
  for (std::int32_t step = 0; step < 3; ++step) {
    std::vector<std::int32_t> ids;
    for (int l = 0; l < 48; ++l)
      for (int k = 0; k < 8; ++k) ids.push_back(4 * step + k);
    add_step(trace, {ids});
  }
  const decode_routing routing(trace, qwen, 3);
  const auto bytes = turnover_bytes_per_step(routing, 1, 3, qwen.expert_bytes());
  EXPECT_DOUBLE_EQ(bytes, 4.0 * 48 * 9'437'184);
  EXPECT_NEAR(bytes / (1024.0 * 1024 * 1024), 1.69, 0.005);
  // At 25 GB/s of a PCIe 4.0 link that is 13.8 tokens/s.
  EXPECT_NEAR(tokens_per_second_ceiling(bytes, 25e9), 13.8, 0.05);
  EXPECT_EQ(tokens_per_second_ceiling(0, 25e9), 0);
}

TEST(synthetic_routing, follows_its_statistics) {
  const auto shape = shape_named("small-bf16");
  const auto still = synthetic_routing(shape, {.zipf = 0, .stickiness = 1, .seed = 1}, 20);
  EXPECT_EQ(still.turned_over(1, 20), 0U);
  const auto restless = synthetic_routing(shape, {.zipf = 0, .stickiness = 0, .seed = 1}, 20);
  EXPECT_GT(restless.turned_over(1, 20), 60U);
}

}  // namespace
}  // namespace cuda_decode::routing_test
