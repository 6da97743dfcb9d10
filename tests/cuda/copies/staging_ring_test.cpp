// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/copies/staging_ring.hpp"

#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "copied_bytes.hpp"
#include "fake_cuda_runtime.hpp"
#include "hotset/cuda/stream.hpp"

namespace hotset::cuda::staging_ring_test {
namespace {

using support::copied_bytes;
using support::fake_cuda_runtime;
using testing::HasSubstr;

// Hazard 16: a copy from pageable memory is slow and synchronous, without an error.
TEST(staging_ring, pageable_bytes_reach_the_device_through_page_locked_pieces) {
  fake_cuda_runtime api;
  {
    const copied_bytes bytes(api, 1000, false);
    sticky_failure failures;
    auto work = stream::create(api, 0).value();
    auto ring = staging_ring::create(api, 0, 3, 100).value();
    EXPECT_EQ(api.pinned_bytes(), 300U);
    for (std::size_t at = 0; at < 1000; at += 100)
      ASSERT_TRUE(ring->copy(bytes.host(at, 100), bytes.device(at), work.handle(), failures));
    api.run_all();
    EXPECT_TRUE(bytes.arrived(0, 1000));
  }
  EXPECT_EQ(api.synchronous_copies(), 0U);
  EXPECT_EQ(api.leaks(), 0U);
  EXPECT_THAT(api.violations(), testing::IsEmpty());
}

TEST(staging_ring, a_piece_is_written_again_only_when_the_device_has_read_it) {
  fake_cuda_runtime api;  // runs work as late as possible
  const copied_bytes bytes(api, 300, false);
  sticky_failure failures;
  auto work = stream::create(api, 0).value();
  auto ring = staging_ring::create(api, 0, 2, 100).value();
  const auto copy = [&](std::size_t at) {
    return ring->copy(bytes.host(at, 100), bytes.device(at), work.handle(), failures);
  };
  ASSERT_TRUE(copy(0));
  ASSERT_TRUE(copy(100));
  EXPECT_EQ(api.calls("cudaEventSynchronize"), 0U);
  EXPECT_EQ(api.pending(), 4U);
  ASSERT_TRUE(copy(200));
  EXPECT_EQ(api.calls("cudaEventSynchronize"), 1U);
  api.run_all();
  EXPECT_TRUE(bytes.arrived(0, 300));
}

TEST(staging_ring, ends_only_when_the_device_has_read_every_piece) {
  fake_cuda_runtime api;
  const copied_bytes bytes(api, 100, false);
  sticky_failure failures;
  auto work = stream::create(api, 0).value();
  {
    auto ring = staging_ring::create(api, 0, 2, 100).value();
    ASSERT_TRUE(ring->copy(bytes.host(0, 100), bytes.device(), work.handle(), failures));
  }
  EXPECT_THAT(api.violations(), testing::IsEmpty());
  EXPECT_TRUE(bytes.arrived(0, 100));
}

TEST(staging_ring, many_threads_share_it) {
  fake_cuda_runtime api(fake_cuda_runtime::pace::random);
  const copied_bytes bytes(api, 4000, false);
  sticky_failure failures;
  auto work = stream::create(api, 0).value();
  auto ring = staging_ring::create(api, 0, 3, 10).value();
  std::vector<std::thread> threads;
  for (std::size_t part = 0; part < 4; ++part)
    threads.emplace_back([&, part] {
      for (auto at = part * 1000; at < (part + 1) * 1000; at += 10)
        if (!ring->copy(bytes.host(at, 10), bytes.device(at), work.handle(), failures)) return;
    });
  for (auto& t : threads) t.join();
  api.run_all();
  EXPECT_TRUE(bytes.arrived(0, 4000));
  EXPECT_THAT(api.violations(), testing::IsEmpty());
}

TEST(staging_ring, refusals_are_reported_and_have_no_effect) {
  fake_cuda_runtime api;
  EXPECT_THAT(staging_ring::create(api, 0, 0, 8).error().message,
              HasSubstr("0 pieces of 8 bytes, accepted: 1 or more"));
  api.fail("cudaHostAlloc", 1, error_code::memory_allocation);
  EXPECT_THAT(staging_ring::create(api, 0, 4, 8).error().message,
              HasSubstr("cannot page-lock 32 bytes"));
  api.fail("cudaEventCreateWithFlags", 3);
  EXPECT_FALSE(staging_ring::create(api, 0, 4, 8).has_value());
  EXPECT_EQ(api.leaks(), 0U);
}

TEST(staging_ring, each_failed_call_is_kept) {
  for (const auto* const name : {"cudaMemcpyAsync", "cudaEventRecord", "cudaEventSynchronize"}) {
    SCOPED_TRACE(name);
    fake_cuda_runtime api;
    const copied_bytes bytes(api, 10, false);
    sticky_failure failures;
    auto work = stream::create(api, 0).value();
    auto ring = staging_ring::create(api, 0, 1, 10).value();
    api.fail(name, 1);
    bool ok = true;
    for (int n = 0; n < 2 && ok; ++n)
      ok = ring->copy(bytes.host(0, 10), bytes.device(), work.handle(), failures);
    EXPECT_FALSE(ok);
    EXPECT_EQ(failures.first().call, name);
    api.run_all();
  }
}

}  // namespace
}  // namespace hotset::cuda::staging_ring_test
