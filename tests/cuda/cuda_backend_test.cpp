// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/cuda_backend.hpp"

#include <atomic>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device_experts.hpp"
#include "fake_cuda_runtime.hpp"
#include "fills.hpp"
#include "hotset/cache/slot_cache.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/transfer/memory_expert_source.hpp"

namespace hotset::cuda::cuda_backend_test {
namespace {

using support::device_experts;
using support::fake_cuda_runtime;
using support::fill_of;
using testing::HasSubstr;
using backend = cuda_backend<memory_expert_source>;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2};

/// Work runs only if something waits for it.
class cuda_backend_test : public testing::Test {
 protected:
  fake_cuda_runtime api;
  std::unique_ptr<device_experts> experts =
      std::make_unique<device_experts>(api, pool_layout::shared(shape, 4).value());
  stream engine = stream::create(api, 0).value();
  std::unique_ptr<backend> copies;

  backend& make(backend::config setup = {}) {
    copies =
        backend::create(api, experts->host.source, experts->bank, experts->pages, setup).value();
    return *copies;
  }
  submission submit(std::vector<fill> fills, urgency when = urgency::now) {
    return copies->submit(fills, engine, when);
  }
  void TearDown() override {
    copies.reset();
    EXPECT_THAT(api.violations(), testing::IsEmpty());
    EXPECT_EQ(api.synchronous_copies(), 0U);
  }
};

TEST_F(cuda_backend_test, a_submit_is_a_batch_for_each_size_and_one_event) {
  make();
  const auto events = api.calls("cudaEventRecord");
  const auto sent =
      submit({fill_of({0_layer, 1_expert}, 0_slot), fill_of({0_layer, 2_expert}, 1_slot),
              fill_of({1_layer, 3_expert}, 2_slot)});
  EXPECT_EQ(sent.accepted, 3U);
  EXPECT_EQ(api.calls("cudaMemcpyBatchAsync"), 3U);
  EXPECT_EQ(api.calls("cudaMemcpyAsync"), 0U);
  EXPECT_EQ(api.calls("cudaEventRecord"), events + 1);
  EXPECT_EQ(api.calls("cudaStreamWaitEvent"), 0U) << "nobody reads the slots";
  EXPECT_EQ(copies->wait(sent.id), transfer_state::arrived);
  EXPECT_TRUE(experts->holds(2_slot, {1_layer, 3_expert}));
  EXPECT_EQ(copies->counts().bytes_direct, 3U * (96 + 33 + 257));
}

TEST_F(cuda_backend_test, the_readers_of_a_batch_are_waited_for_once_each) {
  make();
  api.hold(engine.handle(), [] { return false; });
  const auto one = copies->record(engine);
  const auto two = copies->record(engine);
  const auto waits = api.calls("cudaStreamWaitEvent");
  const auto sent =
      submit({fill_of({0_layer, 1_expert}, 0_slot, one), fill_of({0_layer, 2_expert}, 1_slot, one),
              fill_of({0_layer, 3_expert}, 2_slot), fill_of({0_layer, 4_expert}, 3_slot, two)});
  EXPECT_EQ(api.calls("cudaStreamWaitEvent"), waits + 2);
  api.run_all();
  EXPECT_EQ(copies->poll(sent.id), transfer_state::pending);
  EXPECT_FALSE(experts->holds(2_slot, {0_layer, 3_expert})) << "one event covers the batch";
  api.release_holds();
  EXPECT_EQ(copies->wait(sent.id), transfer_state::arrived);
}

// Copies that wait for a reader use another lane than those that do not.
TEST_F(cuda_backend_test, demand_without_readers_overtakes_waiting_demand) {
  make();
  api.hold(engine.handle(), [] { return false; });
  const auto reader = copies->record(engine);
  const auto waits = submit({fill_of({0_layer, 1_expert}, 0_slot, reader)});
  const auto free = submit({fill_of({0_layer, 2_expert}, 1_slot)});
  EXPECT_EQ(copies->wait(free.id), transfer_state::arrived);
  EXPECT_EQ(copies->poll(waits.id), transfer_state::pending);
  api.release_holds();
  EXPECT_EQ(copies->wait(waits.id), transfer_state::arrived);
}

TEST_F(cuda_backend_test, demand_waits_for_the_chunks_that_are_ahead_and_no_more) {
  make({.chunk_bytes = 32, .chunks_ahead = 2});
  const auto speculative = submit(
      {fill_of({0_layer, 1_expert}, 0_slot), fill_of({0_layer, 2_expert}, 1_slot)}, urgency::soon);
  EXPECT_EQ(api.calls("cudaMemcpyAsync"), 2U) << "of 24 chunks";
  const auto demand = submit({fill_of({0_layer, 3_expert}, 2_slot)});
  EXPECT_EQ(copies->wait(demand.id), transfer_state::arrived);
  EXPECT_LT(copies->counts().bytes_direct, 386U + 8 * 32U);
  EXPECT_EQ(copies->poll(speculative.id), transfer_state::pending);
  while (copies->poll(speculative.id) == transfer_state::pending) api.run_all();
  EXPECT_TRUE(experts->holds(0_slot, {0_layer, 1_expert}));
  EXPECT_TRUE(experts->holds(1_slot, {0_layer, 2_expert}));
}

// A stream does not wait for an event that was never recorded.
TEST_F(cuda_backend_test, a_fence_of_a_batch_that_is_not_enqueued_enqueues_it) {
  make({.chunk_bytes = 16, .chunks_ahead = 1});
  const auto late = submit({fill_of({0_layer, 1_expert}, 0_slot)}, urgency::soon);
  bool right = false;
  ASSERT_EQ(copies->fence(engine, late.id), status::ok);
  api.launch(engine.handle(), [&] { right = experts->holds(0_slot, {0_layer, 1_expert}); });
  EXPECT_EQ(api.synchronize_stream(engine.handle()), error_code::success);
  EXPECT_TRUE(right);
}

TEST_F(cuda_backend_test, a_copy_may_wait_for_a_batch_that_is_not_enqueued) {
  make({.chunk_bytes = 16, .chunks_ahead = 1});
  const auto given_up = submit({fill_of({0_layer, 1_expert}, 0_slot)}, urgency::soon);
  const auto next = submit({fill_of({0_layer, 2_expert}, 0_slot, given_up.id)});
  EXPECT_EQ(copies->wait(next.id), transfer_state::arrived);
  EXPECT_EQ(copies->poll(given_up.id), transfer_state::arrived);
  api.run_all();
  EXPECT_TRUE(experts->holds(0_slot, {0_layer, 2_expert}));
}

TEST_F(cuda_backend_test, in_the_engines_stream_no_event_is_waited_for) {
  make({.mode = copy_mode::same_stream, .chunk_bytes = 16, .chunks_ahead = 1});
  const auto streams = api.leaks();
  EXPECT_EQ(copies->record(engine), no_ticket);
  int step = 0;
  int before = -1;
  bool right = false;
  api.launch(engine.handle(), [&] { before = step++; });
  const auto now = submit({fill_of({0_layer, 1_expert}, 0_slot)});
  const auto soon = submit({fill_of({0_layer, 2_expert}, 1_slot)}, urgency::soon);
  ASSERT_EQ(copies->fence(engine, now.id), status::ok);
  ASSERT_EQ(copies->fence(engine, soon.id), status::ok);
  api.launch(engine.handle(), [&] {
    right = before == 0 && experts->holds(0_slot, {0_layer, 1_expert}) &&
            experts->holds(1_slot, {0_layer, 2_expert});
  });
  EXPECT_EQ(api.synchronize_stream(engine.handle()), error_code::success);
  EXPECT_TRUE(right);
  EXPECT_EQ(api.calls("cudaStreamWaitEvent"), 0U);
  EXPECT_EQ(api.leaks(), streams);
  EXPECT_EQ(api.calls("cudaStreamCreateWithPriority"), 1U) << "the engine's own";
}

// Hazard 16: the path is reported, and an asynchronous copy never gets pageable memory.
TEST_F(cuda_backend_test, pageable_experts_are_staged_or_refused) {
  experts = std::make_unique<device_experts>(api, pool_layout::shared(shape, 4).value(), false);
  make();
  const auto refused = submit({fill_of({0_layer, 1_expert}, 0_slot)});
  EXPECT_EQ(copies->wait(refused.id), transfer_state::failed);
  EXPECT_FALSE(copies->trouble()) << "the backend goes on";
  make({.staging_pieces = 2, .staging_piece_bytes = 64, .staging_threads = 2});
  for (const auto when : {urgency::now, urgency::soon}) {
    const auto sent =
        submit({fill_of({0_layer, 2_expert}, 0_slot), fill_of({1_layer, 2_expert}, 1_slot)}, when);
    EXPECT_EQ(copies->wait(sent.id), transfer_state::arrived);
    EXPECT_TRUE(experts->holds(0_slot, {0_layer, 2_expert}));
    EXPECT_TRUE(experts->holds(1_slot, {1_layer, 2_expert}));
  }
  EXPECT_EQ(copies->counts().bytes_staged, 4U * 386);
  EXPECT_EQ(copies->counts().bytes_direct, 0U);
}

// Hazard 13: waiting across streams is illegal in a capture, and a capture keeps the values that it sees.
TEST_F(cuda_backend_test, nothing_of_it_enters_a_capture) {
  make({.chunk_bytes = 16, .chunks_ahead = 1});
  const auto late = submit({fill_of({0_layer, 1_expert}, 0_slot)}, urgency::soon);
  const auto early = submit({fill_of({0_layer, 4_expert}, 3_slot)});
  ASSERT_EQ(copies->wait(early.id), transfer_state::arrived);
  api.begin_capture(engine.handle());
  EXPECT_EQ(copies->poll(late.id), transfer_state::pending) << "asked, and told nothing";
  const auto sent = submit({fill_of({0_layer, 2_expert}, 1_slot)});
  EXPECT_EQ(sent.accepted, 0U);
  EXPECT_EQ(copies->fence(engine, late.id), status::fill_failed);
  EXPECT_FALSE(copies->trouble());
  EXPECT_EQ(copies->fence(engine, early.id), status::ok) << "it has arrived: nothing is enqueued";
  EXPECT_EQ(copies->record(engine), no_ticket);
  EXPECT_THAT(copies->trouble()->message, HasSubstr("cuda_backend::record: fakeError (900)"));
  api.end_capture(engine.handle());
  EXPECT_EQ(submit({fill_of({0_layer, 3_expert}, 2_slot)}).accepted, 0U)
      << "a reader is unknown from here on: no slot may be filled again";
}

// Hazards 14 and 20: memory that copies read or write outlives them.
TEST_F(cuda_backend_test, ends_after_its_copies) {
  for (const auto mode : {copy_mode::side_stream, copy_mode::same_stream}) {
    make({.mode = mode, .chunk_bytes = 64, .chunks_ahead = 2});
    (void)submit({fill_of({0_layer, 1_expert}, 0_slot)});
    (void)submit({fill_of({0_layer, 2_expert}, 1_slot)}, urgency::soon);
    (void)submit({fill_of({0_layer, 3_expert}, 2_slot)}, urgency::soon);
    copies.reset();
    EXPECT_EQ(api.pending(), 0U);
  }
  const auto& source = experts->host.source;
  ASSERT_FALSE(source.tensors({0_layer, 1_expert}, 0_precision).empty());
  experts.reset();  // TearDown checks that no copy still needed it
}

// Hazard 17: a failed call or copy counts as a success.
TEST_F(cuda_backend_test, the_first_failed_call_stays) {
  for (const auto* const name :
       {"cudaMemcpyAsync", "cudaMemcpyBatchAsync", "cudaEventRecord", "cudaStreamIsCapturing"}) {
    SCOPED_TRACE(name);
    make();
    const std::string call = name;
    api.fail(name, 1);
    std::vector<fill> fills{fill_of({0_layer, 1_expert}, 0_slot)};
    if (call == "cudaMemcpyBatchAsync") fills.push_back(fill_of({0_layer, 2_expert}, 1_slot));
    const auto sent = submit(fills);
    if (call == "cudaStreamIsCapturing") {
      EXPECT_EQ(sent.accepted, 0U);
    } else {
      EXPECT_EQ(copies->poll(sent.id), transfer_state::failed);
      EXPECT_EQ(copies->fence(engine, sent.id), status::fill_failed);
    }
    EXPECT_THAT(copies->trouble()->message, testing::StartsWith(call + ": fakeError (999)"));
    const auto made = api.calls("cudaMemcpyAsync");
    EXPECT_EQ(submit({fill_of({0_layer, 3_expert}, 2_slot)}).accepted, 0U);
    EXPECT_EQ(api.calls("cudaMemcpyAsync"), made);
  }
}

// Hazard 17: a tensor of another size fails its batch before any byte is copied.
TEST_F(cuda_backend_test, a_tensor_of_another_size_moves_nothing) {
  make();
  const std::span small(experts->pages.allocate(10).value());
  struct other_source {
    std::vector<tensor_bytes> views;
    [[nodiscard]] std::span<const tensor_bytes> tensors(expert_key, precision_id) const noexcept {
      return views;
    }
  } source{{small, small, small}};
  auto other =
      cuda_backend<other_source>::create(api, source, experts->bank, experts->pages, {}).value();
  const auto calls = api.calls("cudaMemcpyAsync");
  const std::vector<fill> fills{fill_of({0_layer, 1_expert}, 0_slot)};
  EXPECT_EQ(other->wait(other->submit(fills, engine, urgency::now).id), transfer_state::failed);
  EXPECT_EQ(api.calls("cudaMemcpyAsync"), calls);
  source.views.pop_back();
  EXPECT_EQ(other->wait(other->submit(fills, engine, urgency::now).id), transfer_state::failed);
}

// Hazard 18: copies use the bank's device, whatever device is current.
TEST_F(cuda_backend_test, serves_a_cache_of_the_layout_of_its_bank_only) {
  make();
  EXPECT_FALSE(copies->check(pool_layout::shared(shape, 4).value()));
  EXPECT_EQ(copies->check(pool_layout::shared(shape, 6).value())->message,
            "the bank has 4 slots, accepted: 6, as in the cache");
  using cache_type = slot_cache<pager<lru>, backend>;
  EXPECT_FALSE(
      cache_type::create(pager<lru>({.layout = pool_layout::shared(shape, 6).value()}), *copies));
}

TEST_F(cuda_backend_test, works_on_the_device_of_its_bank) {
  api.devices = 2;
  experts = std::make_unique<device_experts>(api, pool_layout::shared(shape, 4).value(), true, 1);
  engine = stream::create(api, 1).value();
  make({.chunk_bytes = 64, .chunks_ahead = 1});
  const auto demand =
      submit({fill_of({0_layer, 1_expert}, 0_slot), fill_of({0_layer, 2_expert}, 1_slot)});
  const auto speculative = submit({fill_of({0_layer, 3_expert}, 2_slot)}, urgency::soon);
  EXPECT_EQ(copies->wait(demand.id), transfer_state::arrived);
  EXPECT_EQ(copies->wait(speculative.id), transfer_state::arrived);
  EXPECT_TRUE(experts->holds(2_slot, {0_layer, 3_expert}));
  int device = -1;
  EXPECT_EQ(api.current_device(device), error_code::success);
  EXPECT_EQ(device, 0) << "the caller's current device is its own again";
  copies.reset();
  experts.reset();
}

TEST_F(cuda_backend_test, speculation_beyond_the_capacity_is_refused) {
  make({.chunk_bytes = 16, .chunks_ahead = 1});
  std::size_t taken = 0;
  while (submit({fill_of({0_layer, 1_expert}, 0_slot)}, urgency::soon).accepted == 1) ++taken;
  EXPECT_EQ(taken, 2U * 4 * 8 / 3) << "tensors of two fills a slot";
  EXPECT_EQ(submit({fill_of({0_layer, 2_expert}, 1_slot)}).accepted, 1U)
      << "demand needs no room there";
}

// A full queue is no failure.
TEST_F(cuda_backend_test, demand_of_pageable_memory_waits_for_room) {
  experts = std::make_unique<device_experts>(api, pool_layout::shared(shape, 4).value(), false);
  make({.staging_pieces = 3, .staging_piece_bytes = 64});
  std::atomic<bool> open{false};
  api.hold(engine.handle(), [&] { return open.load(); });
  const auto reader = copies->record(engine);
  std::size_t taken = 0;
  while (submit({fill_of({0_layer, 1_expert}, 0_slot, reader)}, urgency::soon).accepted == 1)
    ++taken;
  EXPECT_GT(taken, 4U);
  std::thread opener([&] { open = true; });
  const auto sent = submit({fill_of({0_layer, 2_expert}, 1_slot)});
  opener.join();
  EXPECT_EQ(sent.accepted, 1U);
  EXPECT_EQ(copies->wait(sent.id), transfer_state::arrived);
  EXPECT_TRUE(experts->holds(1_slot, {0_layer, 2_expert}));
}

TEST_F(cuda_backend_test, a_full_ring_of_tickets_makes_demand_wait_and_refuses_speculation) {
  make({.tickets = 2});
  int passed = 0;
  for (int n = 0; n < 2; ++n) {
    (void)copies->record(engine);
    api.launch(engine.handle(), [&] { ++passed; });
  }
  EXPECT_EQ(submit({fill_of({0_layer, 1_expert}, 0_slot)}, urgency::soon).accepted, 0U);
  EXPECT_EQ(passed, 0);
  const auto sent = submit({fill_of({0_layer, 1_expert}, 0_slot)});
  EXPECT_EQ(sent.accepted, 1U);
  EXPECT_EQ(copies->wait(sent.id), transfer_state::arrived);
  const auto reader = copies->record(engine);
  EXPECT_NE(copies->record(engine), reader);
  EXPECT_EQ(copies->wait(reader), transfer_state::arrived);
  EXPECT_EQ(passed, 2);
}

TEST(cuda_backend_setup, has_no_effect_if_any_call_fails) {
  for (const auto* const name :
       {"cudaEventCreateWithFlags", "cudaStreamCreateWithPriority", "cudaHostAlloc"})
    for (std::size_t nth = 1; nth <= 3; ++nth) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(nth));
      fake_cuda_runtime api;
      const device_experts experts(api, pool_layout::shared(shape, 4).value());
      const auto before = api.leaks();
      api.fail(name, nth);
      const auto made = backend::create(api, experts.host.source, experts.bank, experts.pages,
                                        {.tickets = 2, .chunks_ahead = 1, .staging_pieces = 2});
      if (std::string(name) == "cudaHostAlloc" && nth > 1) break;
      ASSERT_FALSE(made.has_value());
      EXPECT_THAT(made.error().message, HasSubstr(name));
      EXPECT_EQ(api.leaks(), before);
    }
}

}  // namespace
}  // namespace hotset::cuda::cuda_backend_test
