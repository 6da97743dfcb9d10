// SPDX-License-Identifier: Apache-2.0
#include "hotset/trace/kv_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/trace/visit_sequence.hpp"

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
  EXPECT_EQ(trace.shape().bytes_of(0), 4096U);
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

}  // namespace
