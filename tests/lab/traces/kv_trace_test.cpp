// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/kv_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/trace/visit_sequence.hpp"

namespace kv_trace_test {
namespace {
using namespace hotset;
using ::testing::ElementsAre;

kv_trace two_requests() {
  kv_trace kv;
  kv.timestamp = {0, 40};
  kv.input_length = {1024, 1500};
  kv.output_length = {6, 3};
  kv.block_end = {2, 5};
  kv.blocks = {900, 7, 900, 7, ~std::uint64_t{0}};
  return kv;
}

TEST(kv_trace, blocks_become_dense_in_order_of_first_appearance) {
  const auto kv = two_requests();
  EXPECT_FALSE(kv.validate());
  EXPECT_EQ(kv.distinct(), 3U);
  EXPECT_EQ(kv.references(), 5U);
  EXPECT_THAT(kv.blocks_of(0), ElementsAre(900, 7));
  const auto trace = block_accesses(kv, 4096).value();
  EXPECT_THAT(trace.ids, ElementsAre(0, 1, 0, 1, 2));
  EXPECT_THAT(trace.sequence, ElementsAre(0, 0, 1, 1, 1));
  EXPECT_EQ(trace.experts, 3);
  EXPECT_EQ(trace.top_k, 1);
  EXPECT_EQ(trace.shape().bytes_of(0_layer), 4096U);
  EXPECT_EQ(visit_sequence(trace).size(), 5U);
}

TEST(kv_trace, refuses_arrays_that_do_not_belong_together) {
  auto kv = two_requests();
  kv.block_end = {3, 2};
  EXPECT_TRUE(kv.validate());
  kv = two_requests();
  kv.output_length.pop_back();
  EXPECT_FALSE(block_accesses(kv));
  EXPECT_FALSE(block_accesses(kv_trace{}));
  kv = two_requests();
  kv.block_end = {0, 0};
  kv.blocks.clear();
  EXPECT_FALSE(block_accesses(kv)) << "no block at all";
}

TEST(kv_trace, prompts_that_name_no_blocks_get_their_own) {
  kv_trace kv;
  kv.name = "a";
  kv.block_tokens = 4;
  kv.timestamp = {0, 1, 2};
  kv.input_length = {9, 0, 4};
  kv.output_length = {1, 1, 1};
  kv.block_end = {0, 0, 0};
  ASSERT_FALSE(give_own_blocks(kv));
  EXPECT_TRUE(kv.own_blocks);
  EXPECT_EQ(kv.block_end, (std::vector<std::uint64_t>{3, 3, 4}));
  EXPECT_EQ(kv.distinct(), 4U) << "nothing is shared";
  EXPECT_FALSE(kv.validate());
  EXPECT_EQ(block_accesses(kv)->tokens(), 4U);
  const auto before = kv.blocks;
  ASSERT_FALSE(give_own_blocks(kv));
  EXPECT_EQ(kv.blocks, before) << "those that there are stay";
}

TEST(kv_trace, a_few_requests_cannot_ask_for_gigabytes_of_blocks) {
  kv_trace kv;
  kv.name = "a";
  kv.block_tokens = 1;
  kv.timestamp = {0};
  kv.input_length = {4'000'000'000U};
  kv.output_length = {1};
  kv.block_end = {0};
  const auto bad = give_own_blocks(kv);
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->message, "a: prompts of 4000000000 blocks of 1 tokens, accepted: at most 1048640");
  EXPECT_TRUE(kv.blocks.empty());
}

}  // namespace
}  // namespace kv_trace_test
