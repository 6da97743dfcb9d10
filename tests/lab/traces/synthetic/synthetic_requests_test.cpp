// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/synthetic/synthetic_requests.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::synthetic_requests_test {
namespace {

using ::testing::HasSubstr;

std::vector<std::uint64_t> blocks_of(const kv_trace& kv, std::size_t r) {
  const auto blocks = kv.blocks_of(r);
  return {blocks.begin(), blocks.end()};
}

TEST(synthetic_requests, one_conversation_grows_by_a_turn_and_begins_anew) {
  const auto kv = synthetic_requests({.requests = 4,
                                      .conversations = 1,
                                      .turns = 3,
                                      .shared_blocks = 1,
                                      .first_blocks = 2,
                                      .turn_blocks = 1,
                                      .block_tokens = 16,
                                      .output_tokens = 5,
                                      .gap_ms = 10});
  ASSERT_TRUE(kv);
  EXPECT_FALSE(kv->validate());
  EXPECT_EQ(blocks_of(*kv, 0), (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(blocks_of(*kv, 1), (std::vector<std::uint64_t>{0, 1, 2, 3}));
  EXPECT_EQ(blocks_of(*kv, 2), (std::vector<std::uint64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(blocks_of(*kv, 3), (std::vector<std::uint64_t>{0, 5, 6}));
  EXPECT_EQ(kv->timestamp, (std::vector<std::uint64_t>{0, 10, 20, 30}));
  EXPECT_EQ(kv->input_length, (std::vector<std::uint32_t>{48, 64, 80, 48}));
  EXPECT_EQ(kv->output_length, (std::vector<std::uint32_t>{5, 5, 5, 5}));
}

TEST(synthetic_requests, every_prompt_repeats_an_earlier_one_or_is_new) {
  const synthetic_requests_config config{.requests = 300, .conversations = 5, .turns = 4};
  const auto kv = synthetic_requests(config);
  ASSERT_TRUE(kv);
  std::map<std::uint64_t, std::vector<std::uint64_t>> last;  // by first block
  std::size_t again = 0;
  for (std::size_t r = 0; r < kv->requests(); ++r) {
    const auto blocks = blocks_of(*kv, r);
    auto& before = last[blocks.front()];
    ASSERT_TRUE(std::equal(before.begin(), before.end(), blocks.begin())) << "request " << r;
    EXPECT_EQ(blocks.size(), before.empty() ? 4U : before.size() + 1);
    again += before.empty() ? 0U : 1U;
    before = blocks;
  }
  EXPECT_GT(again, 200U);
  EXPECT_EQ(synthetic_requests(config)->blocks, kv->blocks);
  auto other = config;
  other.seed = 2;
  EXPECT_NE(synthetic_requests(other)->blocks, kv->blocks);
}

TEST(synthetic_requests, refuses_invalid_values) {
  const auto refused = [](const synthetic_requests_config& config) {
    const auto kv = synthetic_requests(config);
    return kv ? std::string() : kv.error().message;
  };
  EXPECT_THAT(refused({.requests = 0}), HasSubstr("requests = 0"));
  EXPECT_THAT(refused({.conversations = 0}), HasSubstr("conversations = 0"));
  EXPECT_THAT(refused({.turns = 0}), HasSubstr("turns = 0"));
  EXPECT_THAT(refused({.first_blocks = 0}), HasSubstr("first_blocks = 0"));
  EXPECT_THAT(refused({.block_tokens = 0}), HasSubstr("block_tokens = 0"));
  EXPECT_THAT(refused({.turns = 4000000000U}), HasSubstr("2^31 tokens"));
}

}  // namespace
}  // namespace hotset::synthetic_requests_test
