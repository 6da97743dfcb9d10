// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/adapters.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/error.hpp"
#include "random_source.hpp"
#include "tiny_moe/engine.hpp"
#include "tiny_moe/serving.hpp"

namespace {

using namespace tiny_moe;
using hotset::support::random_source;

const model& weights() {
  static const model loaded(HOTSET_TINY_MOE_DIR);
  return loaded;
}
std::vector<std::uint8_t> bytes_of(std::string_view words) { return {words.begin(), words.end()}; }

/// Each tuned expert is another one's weights: a wrong place is a wrong answer.
adapter_weights shuffled(const std::string& name, std::uint64_t seed, std::size_t most) {
  const auto& shape = weights().config();
  random_source random(seed);
  tuned_experts tuned(shape.layers);
  std::vector<std::uint16_t> halves;
  for (std::size_t l = 0; l < shape.layers; ++l) {
    for (std::int32_t e = 0; e < static_cast<std::int32_t>(shape.experts); ++e)
      if (tuned[l].size() < most && random.one_in(3)) tuned[l].push_back(e);
    for (const auto e : tuned[l]) {
      const auto other =
          (static_cast<std::size_t>(e) + 1 + random.below(shape.experts - 1)) % shape.experts;
      for (const auto& tensor : weights().expert_bytes(l, other)) {
        const auto at = halves.size();
        halves.resize(at + tensor.size() / 2);
        std::memcpy(&halves[at], tensor.data(), tensor.size());
      }
    }
  }
  return {shape, name, std::move(tuned), std::move(halves)};
}

struct three_adapters {
  adapter_weights a = shuffled("a", 1, 8);
  adapter_weights b = shuffled("b", 2, 8);
  adapter_weights c = shuffled("c", 3, 3);
  std::vector<const adapter_weights*> all{&a, &b, &c};
};
const three_adapters& adapters() {
  static const three_adapters made;
  return made;
}
std::unique_ptr<expert_provider> alone(adapter_id adapter) {
  if (adapter == base_model) return std::make_unique<resident_experts>(weights());
  return std::make_unique<merged_experts>(weights(), *adapters().all[adapter - 1]);
}

const std::string_view text = "The ledger was kept in two columns: return a + b; 17 + 25 = 42.";

std::vector<float> logits_alone(adapter_id adapter, std::string_view words) {
  const auto provider = alone(adapter);
  engine decoder(weights(), *provider);
  const auto logits = decoder.forward(bytes_of(words));
  return {logits.begin(), logits.end()};
}

TEST(tiny_moe_adapters, rows_of_a_pass_each_get_the_bytes_of_their_own_merged_model) {
  resident_adapters experts(weights(), adapters().all);
  kv_pool pool(weights().config(), {.block_tokens = 8, .blocks = 64});
  batch_engine decoder(weights(), experts, pool, {.virtual_experts = experts.virtual_experts()});
  std::vector<sequence_id> sequences;
  for (adapter_id a = 0; a <= 3; ++a) sequences.push_back(pool.open(text.size(), a));
  std::vector<std::vector<float>> got(4);
  // Chunks of other lengths for each, so that a pass has rows of all of them in any mix.
  random_source random(5);
  while (pool.length(sequences[3]) < text.size()) {
    std::vector<token_row> rows;
    std::vector<std::size_t> whose;
    for (std::size_t s = 0; s < 4; ++s) {
      const auto length = pool.length(sequences[s]);
      const auto count = std::min(text.size() - length, s == 3 ? 5 : random.below(9));
      ASSERT_TRUE(pool.reserve(sequences[s], count));
      for (std::size_t i = 0; i < count; ++i) {
        rows.push_back({sequences[s], static_cast<std::uint8_t>(text[length + i])});
        whose.push_back(s);
      }
    }
    const auto logits = decoder.forward(rows, request_kind::prefill);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto row = logits.subspan(r * 256, 256);
      got[whose[r]].insert(got[whose[r]].end(), row.begin(), row.end());
    }
  }
  for (adapter_id a = 0; a <= 3; ++a) {
    SCOPED_TRACE(a);
    const auto wanted = logits_alone(a, text);
    ASSERT_GE(got[a].size(), 256U);
    ASSERT_LE(got[a].size(), wanted.size());
    EXPECT_EQ(std::memcmp(got[a].data(), wanted.data(), got[a].size() * sizeof(float)), 0);
    for (adapter_id other = 0; other < a; ++other)
      EXPECT_NE(std::memcmp(got[a].data(), got[other].data(),
                            std::min(got[a].size(), got[other].size()) * sizeof(float)),
                0)
          << "an adapter that changes nothing shows nothing";
  }
  for (const auto s : sequences) decoder.close(s);
}

TEST(tiny_moe_adapters, a_beginning_that_two_adapters_share_is_computed_for_each) {
  resident_adapters experts(weights(), adapters().all);
  kv_pool pool(weights().config(), {.block_tokens = 8, .blocks = 64});
  batch_engine decoder(weights(), experts, pool, {.virtual_experts = experts.virtual_experts()});
  std::vector<serving_request> requests;
  for (std::uint64_t i = 0; i < 8; ++i)
    requests.push_back({.arrival = i * 40,
                        .prompt = bytes_of(text.substr(0, 40)),
                        .tokens = 6,
                        .adapter = static_cast<adapter_id>(i % 4)});
  const auto report = serve(decoder, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    const auto provider = alone(requests[i].adapter);
    kv_pool own(weights().config(), {.block_tokens = 8, .blocks = 16});
    batch_engine single(weights(), *provider, own);
    auto request = requests[i];
    request.arrival = 0;
    EXPECT_EQ(report.requests[i].refusal, "");
    EXPECT_EQ(report.requests[i].output, serve(single, {&request, 1}).requests[0].output);
  }
  // Of the second four each finds what the first of its adapter left: all blocks but the one with the last token.
  EXPECT_EQ(report.stats.reused_tokens, 4U * 32);
}

TEST(tiny_moe_adapters, a_row_of_an_unknown_adapter_is_refused) {
  resident_adapters experts(weights(), adapters().all);
  kv_pool pool(weights().config(), {.block_tokens = 8, .blocks = 8});
  batch_engine decoder(weights(), experts, pool, {.virtual_experts = experts.virtual_experts()});
  const auto stranger = pool.open(8, 4);
  ASSERT_TRUE(pool.reserve(stranger, 1));
  const token_row row{stranger, 65};
  EXPECT_THROW(decoder.forward({&row, 1}, request_kind::prefill), provider_error);
  EXPECT_EQ(pool.length(stranger), 0U);
  decoder.close(stranger);
}

TEST(tiny_moe_adapters, an_engine_names_no_expert_past_those_it_was_made_for) {
  resident_adapters experts(weights(), adapters().all);
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

std::string refusal(tuned_experts tuned, std::size_t halves) {
  try {
    const adapter_weights made(weights().config(), "x", std::move(tuned),
                               std::vector<std::uint16_t>(halves));
  } catch (const hotset::invalid_config& bad) {
    return bad.what();
  }
  return "accepted";
}

TEST(tiny_moe_adapters, refuses_weights_that_are_none_of_an_adapter) {
  tuned_experts tuned(12);
  tuned[3] = {4, 9};
  EXPECT_EQ(refusal(tuned, 2 * 3 * 96 * 40), "accepted");
  EXPECT_EQ(refusal(tuned, 96 * 40), "adapter x: 3840 weights of 2 experts, accepted: 23040");
  EXPECT_EQ(refusal(tuned_experts(11), 0), "an adapter of 11 layers, accepted: 12");
  tuned[3] = {9, 4};
  EXPECT_EQ(refusal(tuned, 0), "layer 3: expert 4, accepted: 0..31 in ascending order");
  tuned[3] = {9, 9};
  EXPECT_EQ(refusal(tuned, 0), "layer 3: expert 9, accepted: 0..31 in ascending order");
  tuned[3] = {32};
  EXPECT_EQ(refusal(tuned, 0), "layer 3: expert 32, accepted: 0..31 in ascending order");
  tuned[3] = {-1};
  EXPECT_EQ(refusal(tuned, 0), "layer 3: expert -1, accepted: 0..31 in ascending order");
}

}  // namespace
