// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/copies/copy_batch.hpp"

#include <cstddef>
#include <utility>
#include <vector>

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
  /// Issues copies of the given sizes from the given offsets.
  bool issue(copy_batch& batch, std::vector<std::pair<std::size_t, std::size_t>> wanted,
             sticky_failure& to) {
    std::vector<copy_request> copies;
    for (const auto& [at, length] : wanted) copies.push_back(bytes.copy(at, length));
    return batch.issue(copies, work.handle(), to);
  }
};

// Hazard 25: on a real device, a batch of mixed sizes is synchronous.
TEST_F(copy_batch_test, copies_of_one_size_share_a_call_and_sizes_are_not_mixed) {
  copy_batch batch(api, 8);
  ASSERT_TRUE(issue(batch,
                    {{0, 100}, {100, 50}, {200, 100}, {300, 50}, {400, 100}, {500, 50}, {600, 7}},
                    failures));
  api.run_all();
  EXPECT_EQ(api.calls("cudaMemcpyBatchAsync"), 2U);
  EXPECT_EQ(api.calls("cudaMemcpyAsync"), 1U);
  EXPECT_EQ(api.synchronous_copies(), 0U);
  EXPECT_EQ(batch.bytes(), 457U);
  for (const std::size_t at : {0U, 200U, 400U}) EXPECT_TRUE(bytes.arrived(at, 150));
  EXPECT_TRUE(bytes.arrived(600, 7));
  ASSERT_TRUE(issue(batch, {}, failures));
  EXPECT_EQ(api.pending(), 0U);
}

TEST_F(copy_batch_test, a_runtime_without_batches_copies_one_by_one) {
  api.batches = false;
  copy_batch batch(api, 8);
  ASSERT_TRUE(issue(batch, {{0, 100}, {100, 100}, {200, 100}}, failures));
  api.run_all();
  EXPECT_EQ(api.calls("cudaMemcpyAsync"), 3U);
  EXPECT_EQ(api.calls("cudaMemcpyBatchAsync"), 0U);
  EXPECT_TRUE(bytes.arrived(0, 300));
}

TEST_F(copy_batch_test, the_first_failed_call_ends_it) {
  copy_batch batch(api, 8);
  api.fail("cudaMemcpyBatchAsync", 1);
  EXPECT_FALSE(issue(batch, {{0, 100}, {100, 100}, {300, 10}, {400, 500}}, failures));
  EXPECT_EQ(failures.first().call, "cudaMemcpyBatchAsync");
  EXPECT_EQ(batch.bytes(), 10U);
  EXPECT_EQ(api.pending(), 1U) << "the smaller one that went before";
  api.fail("cudaMemcpyAsync", 1);
  sticky_failure own;
  EXPECT_FALSE(issue(batch, {{0, 5}}, own));
  EXPECT_EQ(own.first().call, "cudaMemcpyAsync");
}

}  // namespace
}  // namespace hotset::cuda::copy_batch_test
