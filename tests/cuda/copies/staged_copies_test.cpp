// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/copies/staged_copies.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "copied_bytes.hpp"
#include "fake_cuda_runtime.hpp"
#include "hotset/cuda/stream.hpp"
#include "refused_threads.hpp"

namespace hotset::cuda::staged_copies_test {
namespace {

using support::copied_bytes;
using support::fake_cuda_runtime;
using testing::HasSubstr;

class staged_copies_test : public testing::Test {
 protected:
  static constexpr std::size_t size = 2000;
  fake_cuda_runtime api{fake_cuda_runtime::pace::soon};
  sticky_failure failures;
  event_ring events = event_ring::create(api, 0, 16, failures).value();
  stream work = stream::create(api, 0).value();
  stream readers = stream::create(api, 0).value();
  copied_bytes bytes{api, size, false};
  pinned_memory pages{api, 4096};
  std::unique_ptr<staged_copies> staged;

  void SetUp() override { staged = make(3); }
  void TearDown() override {
    staged.reset();
    EXPECT_THAT(api.violations(), testing::IsEmpty());
    EXPECT_EQ(api.synchronous_copies(), 0U);
  }
  std::unique_ptr<staged_copies> make(std::size_t threads) {
    return staged_copies::create(
               api, {.pieces = 4, .piece_bytes = 50, .threads = threads, .most_copies = 8}, pages,
               events, failures)
        .value();
  }
  ticket submit(std::size_t at, std::size_t length, ticket after = no_ticket,
                urgency when = urgency::now) {
    const auto copy = bytes.copy(at, length);
    const auto t = events.open();
    staged->submit(t, {&copy, 1}, {&after, 1}, work.handle(), when);
    return t;
  }
  transfer_state wait(ticket t) {
    events.wait_until_recorded(t);
    return events.wait(t);
  }
  /// A reader that ends when `open` is true.
  ticket reader_held_by(std::atomic<bool>& open) {
    api.hold(readers.handle(), [&open] { return open.load(); });
    const auto t = events.open();
    events.record(t, readers.handle());
    return t;
  }
};

TEST_F(staged_copies_test, a_batch_arrives_whole_whatever_its_pieces) {
  const auto t = submit(0, 777);
  EXPECT_EQ(wait(t), transfer_state::arrived);
  EXPECT_TRUE(bytes.arrived(0, 777));
  EXPECT_EQ(*bytes.device(777), std::byte{0});
  EXPECT_EQ(staged->counts().bytes_staged, 777U);
  EXPECT_EQ(api.calls("cudaMemcpyAsync"), 16U);
  EXPECT_EQ(staged->counts().bytes_direct, 0U);
}

TEST_F(staged_copies_test, room_is_waited_for) {
  std::atomic<bool> open{false};
  const auto reader = reader_held_by(open);
  std::vector<ticket> all;
  for (std::size_t n = 0; n < 8; ++n) all.push_back(submit(n * 100, 100, reader));
  EXPECT_FALSE(staged->has_room(1));
  std::thread opener([&] { open = true; });
  staged->wait_for_room(3);
  opener.join();
  EXPECT_TRUE(staged->has_room(3));
  for (const auto t : all) EXPECT_EQ(wait(t), transfer_state::arrived);  // in any order
  EXPECT_TRUE(bytes.arrived(0, 800));
}

TEST_F(staged_copies_test, page_locked_memory_is_not_staged) {
  ASSERT_FALSE(pages.lock(bytes.host(0, 500)));
  const std::vector<copy_request> copies{bytes.copy(0, 500), bytes.copy(500, 100)};
  const std::vector<ticket> after(2, no_ticket);
  const auto t = events.open();
  staged->submit(t, copies, after, work.handle(), urgency::now);
  EXPECT_EQ(wait(t), transfer_state::arrived);
  EXPECT_TRUE(bytes.arrived(0, 600));
  EXPECT_EQ(staged->counts().bytes_direct, 500U);
  EXPECT_EQ(staged->counts().bytes_staged, 100U);
}

// Hazard 2: a copy that waits for a reader holds no piece of the ring.
TEST_F(staged_copies_test, a_copy_waits_for_its_reader_and_the_others_do_not) {
  for (const std::size_t threads : {1U, 3U}) {
    SCOPED_TRACE(threads);
    staged = make(threads);
    bytes.clear_device();
    std::atomic<bool> open{false};
    const auto reader = reader_held_by(open);
    std::vector<ticket> before;
    if (threads > 1) {
      const auto waits = submit(0, 1000, reader);
      while (api.calls("cudaEventSynchronize") == 0) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // time for the others to run
      EXPECT_EQ(wait(submit(1000, 1000)), transfer_state::arrived);
      EXPECT_EQ(events.poll(waits), transfer_state::pending);
      EXPECT_EQ(*bytes.device(0), std::byte{0}) << "overwritten while it was read";
      open = true;
      EXPECT_EQ(wait(waits), transfer_state::arrived);
    } else {  // the only thread may wait for the reader
      const auto waits = submit(0, 1000, reader);
      const auto other = submit(1000, 1000);
      open = true;
      EXPECT_EQ(wait(other), transfer_state::arrived);
      EXPECT_EQ(wait(waits), transfer_state::arrived);
    }
    EXPECT_TRUE(bytes.arrived(0, size));
  }
}

TEST_F(staged_copies_test, demand_and_promoted_copies_precede_speculation) {
  staged = make(1);
  std::atomic<bool> open{false};
  const auto reader = reader_held_by(open);
  const auto first = submit(0, 300, reader, urgency::soon);  // the thread waits for its reader
  const auto second = submit(300, 300, reader, urgency::soon);
  const auto demand = submit(600, 300, reader, urgency::now);
  staged->promote(second);
  api.hold(work.handle(), [&] { return false; });  // so that the ring's four pieces show the order
  open = true;
  while (staged->counts().bytes_staged < 200) std::this_thread::yield();
  EXPECT_FALSE(staged->cancel(second)) << "promoted: it was the first to go";
  EXPECT_TRUE(staged->cancel(first));
  EXPECT_TRUE(staged->cancel(demand)) << "submitted after the promoted one";
  EXPECT_EQ(events.poll(first), transfer_state::cancelled);
  EXPECT_FALSE(staged->cancel(first));
  api.release_holds();
  EXPECT_EQ(wait(second), transfer_state::arrived);
  EXPECT_TRUE(bytes.arrived(300, 300));
  EXPECT_EQ(*bytes.device(0), std::byte{0});
  EXPECT_EQ(*bytes.device(600), std::byte{0});
}

TEST_F(staged_copies_test, its_end_completes_submitted_copies) {
  std::vector<ticket> sent;
  for (std::size_t n = 0; n < 5; ++n) sent.push_back(submit(n * 300, 300));
  staged.reset();
  for (const auto t : sent) EXPECT_EQ(wait(t), transfer_state::arrived);
  EXPECT_TRUE(bytes.arrived(0, 1500));
}

// Hazard 17: a failed call or copy counts as a success.
TEST_F(staged_copies_test, after_a_failed_call_every_batch_fails) {
  api.fail("cudaMemcpyAsync", 3);
  const auto first = submit(0, 400);
  EXPECT_EQ(wait(first), transfer_state::failed);
  EXPECT_EQ(failures.first().call, "cudaMemcpyAsync");
  EXPECT_EQ(wait(submit(400, 100)), transfer_state::failed);
}

// Hazard 18: a new thread's current device is 0, whatever device its creator used.
TEST(staged_copies, threads_work_on_the_device_that_they_were_made_for) {
  fake_cuda_runtime api(fake_cuda_runtime::pace::soon);
  api.devices = 2;
  ASSERT_EQ(api.set_device(1), error_code::success);
  {
    sticky_failure failures;
    auto events = event_ring::create(api, 1, 4, failures).value();
    auto work = stream::create(api, 1).value();
    const pinned_memory pages(api, 0);
    void* memory = nullptr;
    ASSERT_EQ(api.allocate(memory, 100), error_code::success);
    auto staged =
        staged_copies::create(
            api, {.device = 1, .pieces = 2, .piece_bytes = 50, .threads = 2, .most_copies = 1},
            pages, events, failures)
            .value();
    const std::vector<std::byte> from(100, std::byte{7});
    const copy_request copy{memory, from.data(), 100};
    const auto after = no_ticket;
    const auto t = events.open();
    staged->submit(t, {&copy, 1}, {&after, 1}, work.handle(), urgency::now);
    events.wait_until_recorded(t);
    EXPECT_EQ(events.wait(t), transfer_state::arrived);
    staged.reset();
    EXPECT_EQ(api.free(memory), error_code::success);
  }
  EXPECT_THAT(api.violations(), testing::IsEmpty());
  EXPECT_EQ(api.leaks(), 0U);
  ASSERT_EQ(api.set_device(0), error_code::success);
}

TEST(staged_copies, refusals_are_reported) {
  fake_cuda_runtime api;
  sticky_failure failures;
  auto events = event_ring::create(api, 0, 1, failures).value();
  const pinned_memory pages(api, 0);
  EXPECT_THAT(staged_copies::create(api, {.threads = 0}, pages, events, failures).error().message,
              HasSubstr("0 staging threads"));
  EXPECT_THAT(staged_copies::create(api, {.threads = 1}, pages, events, failures).error().message,
              HasSubstr("0 pieces"));
}

TEST_F(staged_copies_test, a_refused_thread_is_an_error_and_the_started_ones_end) {
  if (const auto reason = support::refused_threads::why_not(); !reason.empty())
    GTEST_SKIP() << reason;
  const support::refused_threads two(2);
  const auto refused =
      staged_copies::create(api, {.pieces = 4, .piece_bytes = 50, .threads = 3, .most_copies = 8},
                            pages, events, failures);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("cannot start thread 3 of 3: "));
  EXPECT_EQ(support::refused_threads::ended(), 2);
}

}  // namespace
}  // namespace hotset::cuda::staged_copies_test
