// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/emulated_link_backend.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fills.hpp"
#include "host_experts.hpp"
#include "lab/replay/clock_backend.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "watched_source.hpp"

namespace hotset::emulated_link_backend_test {
namespace {

using std::chrono::nanoseconds;
using support::fill_of;
using support::gate;
using support::host_experts;
using support::watched_source;

/// Time advances only in waits, and every wait ends 7 ns late.
struct late_clock {
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr std::int64_t lateness = 7;
  static inline std::atomic<std::int64_t> time = 0;
  static inline std::atomic<std::thread::id> watched{};
  static inline std::atomic<int> reads = 0;  ///< by the watched thread

  static void reset() {
    time = 0;
    reads = 0;
    watched = std::this_thread::get_id();
  }
  static time_point now() noexcept {
    const auto seen = time.load();
    if (std::this_thread::get_id() == watched.load()) ++reads;
    return time_point(nanoseconds(seen));
  }
  static void wait_until(time_point end) noexcept {
    const std::int64_t at = nanoseconds(end.time_since_epoch()).count();
    if (at > time) time = at + lateness;
  }
};
late_clock::time_point at(std::int64_t ns) { return late_clock::time_point(nanoseconds(ns)); }

/// One byte takes one nanosecond, each copy 5 more.
const link_model::config slow{.bytes_per_second = 1'000'000'000, .latency = 5, .chunk_bytes = 10};

TEST(link_pace, a_chunk_that_ends_late_does_not_make_the_next_one_late) {
  late_clock::reset();
  link_pace<late_clock> pace{link_model(slow)};
  EXPECT_EQ(pace.hold(at(0), 0, 28), 15U);
  EXPECT_EQ(late_clock::time, 15 + 7);
  EXPECT_EQ(pace.hold(at(0), 10, 28), 10U);
  EXPECT_EQ(late_clock::time, 25 + 7);
  EXPECT_EQ(pace.hold(at(0), 20, 28), 8U);
  EXPECT_EQ(late_clock::time, 33 + 7);
}

TEST(link_pace, a_link_that_fell_behind_catches_up) {
  late_clock::reset();
  link_pace<late_clock> pace{link_model(slow)};
  (void)pace.hold(at(0), 0, 20);
  late_clock::time = 1000;
  (void)pace.hold(at(0), 10, 20);  // due at 25
  EXPECT_EQ(late_clock::time, 1000);
}

TEST(link_pace, copies_start_after_submission_and_the_link_after_resume) {
  late_clock::reset();
  link_pace<late_clock> pace{link_model(slow)};
  (void)pace.hold(at(200), 0, 10);
  EXPECT_EQ(late_clock::time, 215 + 7);
  late_clock::time = 500;
  pace.resume();
  (void)pace.hold(at(300), 0, 10);
  EXPECT_EQ(late_clock::time, 515 + 7);
}

TEST(link_pace, without_chunks_a_copy_is_held_once) {
  late_clock::reset();
  auto whole = slow;
  whole.chunk_bytes = 0;
  link_pace<late_clock> pace{link_model(whole)};
  EXPECT_EQ(pace.hold(at(0), 0, 28), 33U);
}

TEST(patient_clock, waits_until_the_given_time) {
  for (const int length : {80, 400, 0, -100}) {  // too short for a sleep, with one, in the past
    const auto end = patient_clock::now() + std::chrono::microseconds(length);
    patient_clock::wait_until(end);
    EXPECT_GE(patient_clock::now(), end);
  }
}

const geometry shape{.layers = 2, .experts = 16, .top_k = 2};
constexpr std::uint64_t expert_bytes = 96 + 33 + 127;  // 256

/// Each expert has its own slot.
class emulated_link_copies : public testing::Test {
 protected:
  using backend_type = emulated_link_backend<watched_source, late_clock>;
  emulated_link_copies() { late_clock::reset(); }

  host_experts experts{pool_layout::shared(shape, 32).value(), {96, 33, 127}};
  watched_source source{experts.source};
  host_stream stream;
  static fill copy_of(std::size_t n, ticket after = no_ticket) {
    return fill_of(shape.key(n), static_cast<slot_id>(n), after);
  }
  [[nodiscard]] bool holds(std::size_t n) const {
    return experts.holds(static_cast<slot_id>(n), shape.key(n));
  }
  [[nodiscard]] std::unique_ptr<backend_type> make(std::uint64_t chunk_bytes = 64) const {
    const backend_type::config setup{
        .link = {.bytes_per_second = 1'000'000'000, .chunk_bytes = chunk_bytes}};
    return std::make_unique<backend_type>(source, experts.bank, setup);
  }
};

TEST_F(emulated_link_copies, a_config_that_cannot_work_is_refused) {
  EXPECT_THROW(backend_type(source, experts.bank, {}), invalid_config);
  EXPECT_THROW(backend_type(source, experts.bank, {.link = slow, .most_fills = 0}), invalid_config);
}

TEST_F(emulated_link_copies, bytes_are_right_when_demand_pre_empts_a_prefetch_half_way) {
  for (const std::uint64_t chunk_bytes : {1U, 50U, 64U, 129U}) {
    source.asked.clear();
    const auto backend = make(chunk_bytes);
    submission demand;
    source.on_ask = [&](std::size_t asked) {
      if (asked == 2) {
        const std::vector fills{copy_of(5)};
        demand = backend->submit(fills, stream, urgency::now);
      }
    };
    const std::vector fills{copy_of(3)};
    const auto sent = backend->submit(fills, stream, urgency::soon);
    EXPECT_EQ(backend->wait(sent.id), transfer_state::arrived);
    EXPECT_EQ(backend->wait(demand.id), transfer_state::arrived);
    const auto chunks = (expert_bytes - 1) / chunk_bytes + 1;
    ASSERT_EQ(source.asked.size(), 2 * chunks);
    EXPECT_EQ(source.asked[1], shape.key(3));
    for (std::size_t n = 2; n < 2 + chunks; ++n) ASSERT_EQ(source.asked[n], shape.key(5));
    EXPECT_TRUE(holds(3));
    EXPECT_TRUE(holds(5));
    EXPECT_EQ(backend->bytes_moved(), 2 * expert_bytes);
    EXPECT_EQ(backend->busy(), 2 * expert_bytes);
    experts.bank.bytes(3_slot, 0)[0] = experts.bank.bytes(5_slot, 2)[126] = std::byte{255};
  }
}

TEST_F(emulated_link_copies, a_fence_of_the_caller_counts_how_long_it_waited) {
  const auto backend = make();
  gate held;
  source.on_ask = [&](std::size_t asked) {  // no copy starts before the fence waits
    while (asked == 1 && late_clock::reads < 2) std::this_thread::yield();
    while (asked == 5 && late_clock::reads < 5) std::this_thread::yield();
    if (asked == 9) gate::pass(&held);
  };
  const std::vector fills{copy_of(1)};
  const auto each = expert_bytes + late_clock::lateness;
  ticket last = no_ticket;
  for (const int round : {1, 2}) {  // a submit reads the clock once, a fence twice
    last = backend->submit(fills, stream, urgency::now).id;
    EXPECT_EQ(backend->fence(stream, last), status::ok);
    EXPECT_EQ(backend->blocked(), static_cast<ticks>(round) * each);
    EXPECT_EQ(late_clock::reads, 3 * round);
  }
  EXPECT_EQ(backend->fence(stream, last), status::ok);
  EXPECT_EQ(late_clock::reads, 6) << "it had arrived: no time is taken";
  host_stream beside(host_stream::mode::worker);
  const auto third = backend->submit(fills, stream, urgency::now);
  EXPECT_EQ(backend->fence(beside, third.id), status::ok);
  EXPECT_EQ(late_clock::reads, 7) << "the caller does not wait";
  held.open();
  beside.drain();
  EXPECT_EQ(backend->poll(third.id), transfer_state::arrived);
  EXPECT_EQ(backend->blocked(), 2 * each);
}

/// A test's action on a backend after this many chunks have begun.
struct deed {
  std::size_t chunk = 0;
  int kind = 0;  // 0: demand, 1: speculation, 2: promote, 3: cancel
  std::vector<std::size_t> copies{};
  std::size_t batch = 0;
};
template <class Backend>
void carry_out(const deed& d, Backend& backend, typename Backend::stream_type& stream,
               std::vector<ticket>& batches, ticket after = no_ticket) {
  if (d.kind < 2) {
    std::vector<fill> fills;
    for (const auto n : d.copies)
      fills.push_back(fill_of(shape.key(n), static_cast<slot_id>(n), after));
    batches.push_back(backend.submit(fills, stream, d.kind == 0 ? urgency::now : urgency::soon).id);
  } else if (d.kind == 2) {
    backend.promote(batches[d.batch % batches.size()]);
  } else {
    (void)backend.cancel(batches[d.batch % batches.size()]);
  }
}
/// A few first batches at chunk 0, then actions between the chunks.
std::vector<deed> script_of(std::uint64_t seed) {
  splitmix64 random(seed);
  std::vector<deed> script;
  std::size_t next = 0;
  std::size_t chunk = 0;
  for (int n = 0; n < 24; ++n) {
    if (n >= 4) chunk += random.below(6);
    const auto submits = n < 4 || random.below(2) == 0;
    deed d{chunk, static_cast<int>(random.below(2) + (submits ? 0 : 2)), {}, random.below(32)};
    for (auto left = submits ? 1 + random.below(2) : 0; left-- > 0 && next < 32;)
      d.copies.push_back(next++);
    if (!submits || !d.copies.empty()) script.push_back(d);
  }
  return script;
}
struct chunk_log final : link_observer {
  std::vector<expert_key> chunks{};
  void on_copy(ticks, ticks, const fill& what, urgency, std::uint64_t bytes) noexcept override {
    chunks.insert(chunks.end(), bytes / 64, what.key);
  }
  void on_wait(ticks, ticks) noexcept override {}
};

TEST_F(emulated_link_copies, are_made_in_the_order_of_the_clock) {
  const link_model link({.bytes_per_second = 1'000'000'000, .chunk_bytes = 64});
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const auto script = script_of(seed);
    source.asked.clear();
    std::vector<ticket> batches;
    const auto backend = make();
    auto due = script.begin();
    std::mutex acting;
    source.on_ask = [&](std::size_t asked) {
      const std::lock_guard lock(acting);
      for (; due != script.end() && due->chunk <= asked; ++due)
        carry_out(*due, *backend, stream, batches);
    };
    gate held;
    host_stream reader(host_stream::mode::worker);
    reader.run(gate::pass, &held);
    const auto opening = backend->record(reader);
    for (; due != script.end() && due->chunk == 0; ++due)
      carry_out(*due, *backend, stream, batches, opening);
    held.open();
    // The copying thread adds batches while one is unsettled.
    const auto batch_at = [&](std::size_t b) {
      const std::lock_guard lock(acting);
      return b < batches.size() ? batches[b] : no_ticket;
    };
    for (std::size_t b = 0; batch_at(b) != no_ticket; ++b) (void)backend->wait(batch_at(b));

    clock_backend clock({.link = link, .shape = {2, 16, 2, 1, {expert_bytes}, {}}});
    clock_stream clock_side;
    chunk_log log;
    clock.watch(&log);
    std::vector<ticket> clock_batches;
    for (const auto& d : script) {
      if (d.chunk > source.asked.size()) break;  // the link had run out of copies
      // The n-th chunk begins at (n - 1) * 64.
      if (d.chunk != 0) clock_side.issue_at((d.chunk - 1) * 64 + 1);
      clock.advance(clock_side.host());
      carry_out(d, clock, clock_side, clock_batches);
    }
    clock.advance(1'000'000);
    ASSERT_EQ(log.chunks, source.asked);
    ASSERT_EQ(clock_batches.size(), batches.size());
    for (std::size_t b = 0; b < batches.size(); ++b)
      ASSERT_EQ(clock.poll(clock_batches[b]), backend->poll(batches[b])) << "batch " << b;
    for (const auto key : source.asked) ASSERT_TRUE(holds(shape.index(key)));
    ASSERT_EQ(backend->busy(), clock.busy());
  }
}

}  // namespace
}  // namespace hotset::emulated_link_backend_test
