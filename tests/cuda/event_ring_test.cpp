// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/event_ring.hpp"

#include <functional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_cuda_runtime.hpp"
#include "hotset/cuda/stream.hpp"

namespace hotset::cuda::event_ring_test {
namespace {

using support::fake_cuda_runtime;

class event_ring_of_four : public testing::Test {
 protected:
  fake_cuda_runtime api;
  sticky_failure failures;
  event_ring ring = event_ring::create(api, 0, 4, failures).value();
  stream work = stream::create(api, 0).value();

  ticket recorded() {
    const auto t = ring.open();
    ring.record(t, work.handle());
    return t;
  }
  void TearDown() override { EXPECT_THAT(api.violations(), testing::IsEmpty()); }
};

TEST_F(event_ring_of_four, a_ticket_arrives_when_its_stream_has_passed) {
  const auto t = ring.open();
  EXPECT_EQ(ring.poll(t), transfer_state::pending);
  EXPECT_FALSE(ring.is_recorded(t));
  ring.record(t, work.handle());
  EXPECT_TRUE(ring.is_recorded(t));
  EXPECT_EQ(ring.poll(t), transfer_state::pending);
  api.run_all();
  EXPECT_EQ(ring.poll(t), transfer_state::arrived);
  const auto calls = api.calls("cudaEventQuery");
  EXPECT_EQ(ring.poll(t), transfer_state::arrived);
  EXPECT_EQ(api.calls("cudaEventQuery"), calls) << "an answer is asked for once";
}

// Hazard 26: if two steps use one event, it answers for the wrong one.
TEST_F(event_ring_of_four, an_event_is_not_used_again_while_it_is_pending) {
  const auto first = recorded();
  for (int n = 0; n < 3; ++n) ASSERT_NE(recorded(), no_ticket);
  EXPECT_EQ(ring.open(), no_ticket);
  EXPECT_EQ(ring.oldest(), first);
  EXPECT_EQ(ring.wait(first), transfer_state::arrived);
  const auto next = ring.open();
  ASSERT_NE(next, no_ticket);
  EXPECT_EQ(ring.poll(next), transfer_state::pending);
  EXPECT_EQ(ring.poll(first), transfer_state::arrived) << "older than the ring";
  EXPECT_EQ(api.calls("cudaEventCreateWithFlags"), 4U) << "none is made on the way";
}

TEST_F(event_ring_of_four, an_opened_ticket_keeps_its_place_too) {
  const auto first = ring.open();
  for (int n = 0; n < 3; ++n) ring.settle(ring.open(), transfer_state::arrived);
  EXPECT_EQ(ring.open(), no_ticket);
  ring.settle(first, transfer_state::cancelled);
  EXPECT_EQ(ring.poll(first), transfer_state::cancelled);
  EXPECT_NE(ring.open(), no_ticket);
}

TEST_F(event_ring_of_four, a_failure_is_kept_when_its_place_is_reused) {
  const auto failed = ring.open();
  ring.settle(failed, transfer_state::failed);
  const auto cancelled = ring.open();
  ring.settle(cancelled, transfer_state::cancelled);
  const auto arrived = recorded();
  const auto lost_by_the_device = recorded();
  api.run_all();
  api.fail("cudaEventQuery", 2);  // of `arrived`, then of this one
  EXPECT_EQ(ring.poll(arrived), transfer_state::arrived);
  for (int n = 0; n < 100; ++n) {
    ASSERT_NE(recorded(), no_ticket);
    api.run_all();
  }
  EXPECT_EQ(ring.poll(failed), transfer_state::failed);
  EXPECT_EQ(ring.wait(failed), transfer_state::failed);
  EXPECT_EQ(ring.poll(cancelled), transfer_state::cancelled);
  EXPECT_EQ(ring.poll(arrived), transfer_state::arrived);
  EXPECT_EQ(ring.poll(lost_by_the_device), transfer_state::failed) << "its place knew first";
}

TEST_F(event_ring_of_four, a_fence_holds_a_stream_until_the_ticket) {
  auto other = stream::create(api, 0).value();
  bool closed = true;
  api.hold(work.handle(), [&] { return !closed; });
  const auto t = recorded();
  bool ran = false;
  EXPECT_TRUE(ring.fence(other.handle(), t));
  api.launch(other.handle(), [&] { ran = true; });
  api.run_all();
  EXPECT_FALSE(ran);
  closed = false;
  api.run_all();
  EXPECT_TRUE(ran);
  const auto calls = api.calls("cudaStreamWaitEvent");
  EXPECT_TRUE(ring.fence(other.handle(), t));
  EXPECT_TRUE(ring.fence(other.handle(), no_ticket));
  EXPECT_EQ(api.calls("cudaStreamWaitEvent"), calls) << "nothing to wait for";
}

// Hazard 17: a failed call or copy counts as a success.
TEST_F(event_ring_of_four, every_failed_call_is_kept_and_fails_its_ticket) {
  for (const auto* const name : {"cudaEventRecord", "cudaEventQuery", "cudaEventSynchronize"}) {
    SCOPED_TRACE(name);
    sticky_failure own;
    auto fresh = event_ring::create(api, 0, 4, own).value();
    api.fail(name, 1);
    const auto t = fresh.open();
    fresh.record(t, work.handle());
    if (std::string(name) == "cudaEventSynchronize") (void)fresh.wait(t);
    EXPECT_EQ(fresh.poll(t), transfer_state::failed);
    EXPECT_EQ(fresh.wait(t), transfer_state::failed);
    EXPECT_EQ(own.first().call, name);
    api.run_all();
  }
}

/// A runtime that does something else, once, before or after it answers an event query.
struct racing : fake_cuda_runtime {
  std::function<void()> before{};
  std::function<void()> after{};
  error_code query_event(event_handle event) noexcept override {
    if (auto now = std::exchange(before, {})) now();
    const auto answer = fake_cuda_runtime::query_event(event);
    if (auto now = std::exchange(after, {})) now();
    return answer;
  }
};
struct event_ring_of_one : testing::Test {
  racing api;
  sticky_failure failures;
  event_ring ring = event_ring::create(api, 0, 1, failures).value();
  stream work = stream::create(api, 0).value();
  ticket first = ring.open();

  void SetUp() override {
    ring.record(first, work.handle());
    api.run_all();
  }
};

// One thread queries a ticket. While it holds the driver's answer, another thread gives the place to the next ticket.
TEST_F(event_ring_of_one, a_late_answer_does_not_settle_the_next_ticket) {
  ticket second = no_ticket;
  bool recorded = false;
  for (const bool and_record : {false, true}) {
    api.after = [&] {
      second = ring.open();
      if (and_record) ring.record(second, work.handle());
      recorded = and_record;
    };
    EXPECT_EQ(ring.poll(and_record ? second : first), transfer_state::arrived);
    EXPECT_EQ(ring.poll(second), transfer_state::pending);
    EXPECT_EQ(ring.is_recorded(second), recorded);
    if (!and_record) ring.record(second, work.handle());
    if (!and_record) api.run_all();
  }
  api.run_all();
  EXPECT_EQ(ring.poll(second), transfer_state::arrived);
}

// The place went to the next ticket while the driver answered: the answer concerns the next ticket's copies.
TEST_F(event_ring_of_one, a_late_answer_is_not_used_for_a_failed_ticket) {
  api.before = [&] {
    api.fail("cudaEventQuery", 1);
    const auto second = ring.open();  // the query finds that the first one failed
    ring.record(second, work.handle());
    api.run_all();
  };
  EXPECT_EQ(ring.poll(first), transfer_state::failed);
}

TEST(event_ring, has_no_effect_if_an_event_is_refused) {
  fake_cuda_runtime api;
  sticky_failure failures;
  api.fail("cudaEventCreateWithFlags", 3, error_code::memory_allocation);
  EXPECT_THAT(event_ring::create(api, 0, 8, failures).error().message,
              testing::HasSubstr("cudaEventCreateWithFlags"));
  EXPECT_EQ(api.leaks(), 0U);
  EXPECT_THAT(event_ring::create(api, 0, 0, failures).error().message,
              testing::HasSubstr("0 places"));
  EXPECT_EQ(api.leaks(), 0U);
}

}  // namespace
}  // namespace hotset::cuda::event_ring_test
