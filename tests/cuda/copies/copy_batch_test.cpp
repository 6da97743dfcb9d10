// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/copies/copy_batch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "copied_bytes.hpp"
#include "fake_cuda_runtime.hpp"
#include "hotset/cuda/stream.hpp"

namespace hotset::cuda::copy_batch_test {
namespace {

using support::copied_bytes;
using support::fake_cuda_runtime;

class copy_batch_test : public testing::Test {
 protected:
  static constexpr std::size_t size = 1000;
  fake_cuda_runtime api;
  sticky_failure failures;
  stream work = stream::create(api, 0).value();
  copied_bytes bytes{api, size, true};

  void TearDown() override { EXPECT_THAT(api.violations(), testing::IsEmpty()); }
  void add(copy_batch& batch, std::size_t at, std::size_t length) const {
    batch.add(bytes.copy(at, length));
  }
};

// Hazard 25: a batch of mixed sizes is synchronous on a real device.
TEST_F(copy_batch_test, copies_of_one_size_share_a_call_and_sizes_are_not_mixed) {
  copy_batch batch(api, 8);
  for (const std::size_t at : {0U, 200U, 400U}) {
    add(batch, at, 100);
    add(batch, at + 100, 50);
  }
  add(batch, 600, 7);
  ASSERT_TRUE(batch.issue(work.handle(), failures));
  api.run_all();
  EXPECT_EQ(api.calls("cudaMemcpyBatchAsync"), 2U);
  EXPECT_EQ(api.calls("cudaMemcpyAsync"), 1U);
  EXPECT_EQ(api.synchronous_copies(), 0U);
  EXPECT_EQ(batch.calls(), 3U);
  EXPECT_EQ(batch.bytes(), 457U);
  for (const std::size_t at : {0U, 200U, 400U}) EXPECT_TRUE(bytes.arrived(at, 150));
  EXPECT_TRUE(bytes.arrived(600, 7));
  ASSERT_TRUE(batch.issue(work.handle(), failures)) << "nothing is left from before";
  EXPECT_EQ(api.pending(), 0U);
}

TEST_F(copy_batch_test, a_runtime_without_batches_copies_one_by_one) {
  api.batches = false;
  copy_batch batch(api, 8);
  for (const std::size_t at : {0U, 100U, 200U}) add(batch, at, 100);
  ASSERT_TRUE(batch.issue(work.handle(), failures));
  api.run_all();
  EXPECT_EQ(api.calls("cudaMemcpyAsync"), 3U);
  EXPECT_EQ(api.calls("cudaMemcpyBatchAsync"), 0U);
  EXPECT_TRUE(bytes.arrived(0, 300));
}

TEST_F(copy_batch_test, the_first_failed_call_ends_it) {
  copy_batch batch(api, 8);
  for (const std::size_t at : {0U, 100U}) add(batch, at, 100);
  add(batch, 300, 10);
  add(batch, 400, 500);
  api.fail("cudaMemcpyBatchAsync", 1);
  EXPECT_FALSE(batch.issue(work.handle(), failures));
  EXPECT_EQ(failures.first().call, "cudaMemcpyBatchAsync");
  EXPECT_EQ(batch.bytes(), 10U);
  EXPECT_EQ(api.pending(), 1U) << "the smaller one that went before";
  api.fail("cudaMemcpyAsync", 1);
  sticky_failure own;
  add(batch, 0, 5);
  EXPECT_FALSE(batch.issue(work.handle(), own));
  EXPECT_EQ(own.first().call, "cudaMemcpyAsync");
}

}  // namespace
}  // namespace hotset::cuda::copy_batch_test
