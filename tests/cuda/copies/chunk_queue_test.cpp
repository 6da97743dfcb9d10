// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/copies/chunk_queue.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "copied_bytes.hpp"
#include "fake_cuda_runtime.hpp"
#include "hotset/cuda/stream.hpp"

namespace hotset::cuda::chunk_queue_test {
namespace {

using support::copied_bytes;
using support::fake_cuda_runtime;
using testing::HasSubstr;

class chunk_queue_test : public testing::Test {
 protected:
  static constexpr std::size_t size = 2000;
  fake_cuda_runtime api;  // runs work as late as possible
  sticky_failure failures;
  event_ring events = event_ring::create(api, 0, 16, failures).value();
  stream work = stream::create(api, 0).value();
  copied_bytes bytes{api, size, true};
  chunk_queue queue = chunk_queue::create(api, 0, 100, 2, 8, events, failures).value();

  void TearDown() override { EXPECT_THAT(api.violations(), testing::IsEmpty()); }

  ticket submit(std::size_t at, std::vector<std::size_t> sizes) {
    std::vector<copy_request> copies;
    for (const auto length : sizes) {
      copies.push_back(bytes.copy(at, length));
      at += length;
    }
    const auto t = events.open();
    queue.submit(t, copies, work.handle());
    return t;
  }
  [[nodiscard]] std::size_t copies() const { return api.calls("cudaMemcpyAsync"); }
};

TEST_F(chunk_queue_test, no_more_chunks_than_stated_are_ahead_of_the_device) {
  const auto t = submit(0, {250, 320});  // 3 and 4 chunks
  EXPECT_EQ(copies(), 2U);
  queue.pump();
  EXPECT_EQ(copies(), 2U);
  EXPECT_EQ(events.poll(t), transfer_state::pending);
  for (std::size_t passed = 1; passed <= 5; ++passed) {
    ASSERT_TRUE(api.run_one());  // runs a chunk
    ASSERT_TRUE(api.run_one());  // runs its event
    queue.pump();
    EXPECT_EQ(copies(), 2 + passed);
  }
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(events.poll(t), transfer_state::pending) << "its last chunks have not been copied";
  api.run_all();
  EXPECT_EQ(events.poll(t), transfer_state::arrived);
  EXPECT_TRUE(bytes.arrived(0, 570));
  EXPECT_EQ(queue.bytes(), 570U);
  EXPECT_EQ(copies(), 7U);
}

TEST_F(chunk_queue_test, a_pushed_batch_precedes_earlier_submissions) {
  const auto first = submit(0, {500});
  const auto second = submit(500, {500});
  const auto third = submit(1000, {150, 90});
  EXPECT_TRUE(queue.push(third));
  EXPECT_EQ(copies(), 4U) << "two chunks of the first, and two copies whole";
  EXPECT_TRUE(events.is_recorded(third));
  EXPECT_FALSE(events.is_recorded(first));
  api.run_all();
  EXPECT_EQ(events.poll(third), transfer_state::arrived);
  EXPECT_TRUE(bytes.arrived(1000, 240));
  EXPECT_FALSE(queue.push(third)) << "it waits no more";
  EXPECT_TRUE(queue.push(first));
  EXPECT_TRUE(queue.push(second));
  api.run_all();
  EXPECT_TRUE(bytes.arrived(0, 1240));
  EXPECT_EQ(queue.bytes(), 1240U);
}

TEST_F(chunk_queue_test, a_started_batch_cannot_be_cancelled) {
  const auto begun = submit(0, {100, 100, 100});
  const auto waits = submit(300, {100});
  EXPECT_FALSE(queue.cancel(begun));
  EXPECT_TRUE(queue.cancel(waits));
  EXPECT_EQ(events.poll(waits), transfer_state::cancelled);
  EXPECT_FALSE(queue.cancel(waits));
  api.run_all();
  queue.pump();
  api.run_all();
  EXPECT_EQ(events.poll(begun), transfer_state::arrived);
  EXPECT_FALSE(queue.cancel(begun));
  EXPECT_TRUE(bytes.arrived(0, 300));
  EXPECT_EQ(*bytes.device(300), std::byte{0});
}

// The second copy of a batch has started too, although none of its bytes was enqueued.
TEST_F(chunk_queue_test, a_batch_is_begun_with_its_first_copy) {
  const auto t = submit(0, {200, 10});
  EXPECT_EQ(copies(), 2U);
  EXPECT_FALSE(queue.cancel(t));
  EXPECT_TRUE(queue.push(t));
  api.run_all();
  EXPECT_EQ(events.poll(t), transfer_state::arrived);
}

TEST_F(chunk_queue_test, finish_completes_started_batches_and_cancels_the_rest) {
  const auto begun = submit(0, {250, 30});
  const auto waits = submit(300, {100});
  queue.finish();
  EXPECT_TRUE(queue.empty());
  api.run_all();
  EXPECT_EQ(events.poll(begun), transfer_state::arrived);
  EXPECT_EQ(events.poll(waits), transfer_state::cancelled);
  EXPECT_TRUE(bytes.arrived(0, 280));
}

TEST_F(chunk_queue_test, room_is_counted_in_copies) {
  EXPECT_TRUE(queue.has_room(8));
  EXPECT_FALSE(queue.has_room(9));
  (void)submit(0, {300, 10, 10});
  EXPECT_TRUE(queue.has_room(5));
  EXPECT_FALSE(queue.has_room(6));
  queue.finish();
  api.run_all();
  EXPECT_TRUE(queue.has_room(8));
}

// Hazard 17: a failed call or copy counts as a success.
TEST_F(chunk_queue_test, after_a_failed_call_every_batch_fails_and_nothing_is_enqueued) {
  api.fail("cudaMemcpyAsync", 2);
  const auto first = submit(0, {300});
  const auto second = submit(300, {300});
  EXPECT_EQ(failures.first().call, "cudaMemcpyAsync");
  EXPECT_EQ(events.poll(first), transfer_state::failed);
  EXPECT_EQ(events.poll(second), transfer_state::failed);
  EXPECT_EQ(copies(), 2U);
  EXPECT_EQ(queue.bytes(), 100U);
  EXPECT_TRUE(queue.empty());
}

TEST(chunk_queue, refusals_are_reported_and_have_no_effect) {
  fake_cuda_runtime api;
  sticky_failure failures;
  {
    auto events = event_ring::create(api, 0, 1, failures).value();
    EXPECT_THAT(chunk_queue::create(api, 0, 0, 2, 8, events, failures).error().message,
                HasSubstr("chunks of 0 bytes"));
    api.fail("cudaEventCreateWithFlags", 2);
    EXPECT_THAT(chunk_queue::create(api, 0, 100, 2, 8, events, failures).error().message,
                HasSubstr("cudaEventCreateWithFlags"));
  }
  EXPECT_EQ(api.leaks(), 0U);
}

}  // namespace
}  // namespace hotset::cuda::chunk_queue_test
