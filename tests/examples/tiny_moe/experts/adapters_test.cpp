// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/experts/adapters.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "adapter_samples.hpp"
#include "hotset/core/error.hpp"
#include "sim_samples.hpp"
#include "tiny_moe/experts/adapter_experts.hpp"
#include "tiny_moe/model/engine.hpp"
#include "tiny_moe/serving/serving.hpp"

namespace adapters_test {
namespace {

using namespace adapter_samples;
using namespace hotset::literals;

TEST(tiny_moe_adapters, a_beginning_that_two_adapters_share_is_computed_for_each) {
  resident_adapters experts(weights(), three_pointers());
  kv_pool pool(weights().config(), {.block_tokens = 8, .blocks = 64});
  batch_engine decoder(weights(), experts, pool, {.virtual_experts = experts.virtual_experts()});
  std::vector<serving_request> requests;
  for (std::uint64_t i = 0; i < 8; ++i)
    requests.push_back({.arrival = i * 40,
                        .prompt = bytes_of(text.substr(0, 40)),
                        .tokens = 6,
                        .adapter = static_cast<adapter_id>(i % 4)});
  const auto report = serve(decoder, requests);
  expect_complete(report, requests);
  // Each of the second four reuses the blocks of its adapter's first request: all but the one with the last token.
  EXPECT_EQ(report.stats.reused_tokens, 4U * 32);
}

TEST(tiny_moe_adapters, an_engine_uses_no_expert_beyond_its_model) {
  resident_adapters experts(weights(), three_pointers());
  kv_pool pool(weights().config(), {.block_tokens = 8, .blocks = 8});
  EXPECT_THROW(batch_engine(weights(), experts, pool, {.virtual_experts = 31}),
               std::invalid_argument);
  batch_engine decoder(weights(), experts, pool);
  const auto sequence = pool.open(40, 1);
  const auto prompt = bytes_of(text.substr(0, 40));
  ASSERT_TRUE(pool.reserve(sequence, prompt.size()));
  std::vector<token_row> rows;
  for (const auto byte : prompt) rows.push_back({sequence, byte});
  EXPECT_THROW(decoder.forward(rows, request_kind::prefill), provider_error);
  decoder.close(sequence);
}

TEST(tiny_moe_adapters, refuses_weights_that_are_none_of_an_adapter) {
  const auto make = [](const tuned_experts& tuned, std::size_t halves) {
    return adapter_weights(weights().config(), "x", tuned, std::vector<std::uint16_t>(halves));
  };
  const auto refused = [&](const tuned_experts& tuned, std::size_t halves) {
    return hotset::support::refusal<hotset::invalid_config>([&] { (void)make(tuned, halves); });
  };
  tuned_experts tuned(12);
  tuned[3] = {4_expert, 9_expert};
  EXPECT_NO_THROW(make(tuned, 2 * 3 * 96 * 40));
  EXPECT_EQ(refused(tuned, 96 * 40), "adapter x: 3840 weights of 2 experts, accepted: 23040");
  EXPECT_EQ(refused(tuned_experts(11), 0), "an adapter of 11 layers, accepted: 12");
  for (const auto& bad : {std::vector{9_expert, 4_expert}, std::vector{9_expert, 9_expert},
                          std::vector{32_expert}, std::vector{hotset::no_expert}}) {
    tuned[3] = bad;
    EXPECT_EQ(refused(tuned, 0),
              "layer 3: expert " + to_string(bad.back()) + ", accepted: 0..31 in ascending order");
  }
}

}  // namespace
}  // namespace adapters_test
