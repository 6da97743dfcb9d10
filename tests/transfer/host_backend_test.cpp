// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/host_backend.hpp"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fills.hpp"
#include "host_experts.hpp"
#include "watched_source.hpp"

namespace hotset::host_backend_test {
namespace {

using support::fill_of;
using support::gate;
using support::host_experts;

class host_backend_copies : public testing::Test {
 protected:
  host_experts experts{pool_layout::shared({.layers = 2, .experts = 8, .top_k = 2}, 4).value()};
  host_backend<memory_expert_source> backend{experts.source, experts.bank, {.most_fills = 4}};
  host_stream stream{host_stream::mode::worker};
  gate held;
  /// A reader that ends when the gate opens.
  ticket reader() {
    stream.run(gate::pass, &held);
    return backend.record(stream);
  }
  submission submit(std::vector<fill> fills, urgency when = urgency::now) {
    return backend.submit(fills, stream, when);
  }
};

// Hazard 2: a slot is overwritten while a kernel still reads it.
TEST_F(host_backend_copies, a_copy_starts_no_earlier_than_its_after) {
  const auto sent = submit({fill_of({0_layer, 3_expert}, 1_slot, reader())});
  const auto later = submit({fill_of({0_layer, 4_expert}, 2_slot)}, urgency::soon);
  EXPECT_EQ(backend.wait(later.id),
            transfer_state::arrived);  // in order of submission, `sent` would be done too
  EXPECT_EQ(backend.poll(sent.id), transfer_state::pending);
  EXPECT_EQ(backend.bytes_moved(), 96U + 33 + 257);
  held.open();
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  EXPECT_TRUE(experts.holds(1_slot, {0_layer, 3_expert}));
  EXPECT_EQ(backend.bytes_moved(), 2 * (96U + 33 + 257));
}

TEST_F(host_backend_copies, a_full_queue_takes_the_first_and_refuses_the_rest) {
  const auto after = reader();
  std::vector<fill> fills;
  for (const auto e : each<expert_id>(6))
    fills.push_back(fill_of({0_layer, e}, slot_id{number(e) % 4}, after));
  const auto sent = submit(fills, urgency::soon);
  EXPECT_EQ(sent.accepted, 4U);
  EXPECT_EQ(submit({fill_of({1_layer, 1_expert}, 0_slot, after)}, urgency::soon).accepted, 0U);
  held.open();
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  for (const auto e : each<expert_id>(4))
    EXPECT_TRUE(experts.holds(slot_id{number(e)}, {0_layer, e}));
}

TEST_F(host_backend_copies, a_failure_is_not_forgotten_however_many_tickets_follow) {
  experts.source.remove({0_layer, 5_expert});
  const auto bad = submit({fill_of({0_layer, 5_expert}, 1_slot)});
  for (std::size_t n = 0; n < 2 * ticket_board::default_ring; ++n)
    ASSERT_EQ(backend.wait(submit({fill_of({0_layer, 4_expert}, 0_slot)}).id),
              transfer_state::arrived);
  EXPECT_EQ(backend.poll(bad.id), transfer_state::failed);
  host_stream caller;
  EXPECT_EQ(backend.fence(caller, bad.id), status::fill_failed);
}

// A ring full of readers must not fail a visit.
TEST_F(host_backend_copies, demand_waits_while_readers_hold_every_ticket) {
  host_stream slow(host_stream::mode::worker, 2 * ticket_board::default_ring);
  slow.run(gate::pass, &held);
  for (std::size_t n = 0; n < ticket_board::default_ring; ++n) (void)backend.record(slow);
  EXPECT_EQ(submit({fill_of({0_layer, 4_expert}, 0_slot)}, urgency::soon).accepted, 0U)
      << "the ring is full";
  std::thread opener([&] { held.open(); });
  const auto sent = submit({fill_of({0_layer, 4_expert}, 0_slot)});
  opener.join();
  EXPECT_EQ(sent.accepted, 1U);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  EXPECT_TRUE(experts.holds(0_slot, {0_layer, 4_expert}));
}

/// Blocks every caller until this many have called.
class meeting_source {
 public:
  meeting_source(const memory_expert_source& inner, int awaited)
      : inner_(inner), awaited_(awaited) {}
  [[nodiscard]] std::span<const tensor_bytes> tensors(expert_key key,
                                                      precision_id p) const noexcept {
    std::unique_lock lock(mutex_);
    ++asked_;
    met_.notify_all();
    met_.wait(lock, [&] { return asked_ >= awaited_; });
    return inner_.tensors(key, p);
  }

 private:
  const memory_expert_source& inner_;
  int awaited_;
  mutable std::mutex mutex_;
  mutable std::condition_variable met_;
  mutable int asked_ = 0;
};

TEST_F(host_backend_copies, several_threads_ask_the_source_at_once) {
  const meeting_source source(experts.source, 3);
  host_backend<meeting_source> several(source, experts.bank, {.threads = 3});
  const std::array fills{fill_of({0_layer, 1_expert}, 0_slot), fill_of({0_layer, 2_expert}, 1_slot),
                         fill_of({0_layer, 3_expert}, 2_slot)};
  const auto sent = several.submit(fills, stream, urgency::now);
  EXPECT_EQ(several.wait(sent.id), transfer_state::arrived);
  for (const auto s : each<slot_id>(3))
    EXPECT_TRUE(experts.holds(s, {0_layer, expert_id{number(s) + 1}}));
}

/// Records whether it is called again before it has returned; it returns slowly.
class watchful_source {
 public:
  explicit watchful_source(const memory_expert_source& inner) : inner_(inner) {}
  [[nodiscard]] std::span<const tensor_bytes> tensors(expert_key key,
                                                      precision_id p) const noexcept {
    if (++inside_ > 1) ++overlaps;
    for (int n = 0; n < 200; ++n) std::this_thread::yield();
    --inside_;
    return inner_.tensors(key, p);
  }
  mutable std::atomic<int> overlaps{0};

 private:
  const memory_expert_source& inner_;
  mutable std::atomic<int> inside_{0};
};

// Two threads that write one slot at once would mix its content.
TEST_F(host_backend_copies, several_threads_never_write_one_slot_together) {
  const watchful_source source(experts.source);
  host_backend<watchful_source> several(source, experts.bank, {.threads = 4});
  for (std::int32_t n = 0; n < 100; ++n) {
    std::vector<fill> fills;
    for (std::int32_t i = 0; i < 4; ++i)
      fills.push_back(fill_of({0_layer, expert_id{(n + i) % 8}}, 1_slot));
    const auto sent = several.submit(fills, stream, urgency::now);
    ASSERT_EQ(several.wait(sent.id), transfer_state::arrived);
    ASSERT_TRUE(experts.holds(1_slot, {0_layer, expert_id{(n + 3) % 8}}));
  }
  EXPECT_EQ(source.overlaps, 0);
}

TEST_F(host_backend_copies, numbers_that_cannot_work_are_refused) {
  using backend_type = host_backend<memory_expert_source>;
  for (const std::size_t threads : {std::size_t{0}, std::size_t{257}})
    EXPECT_EQ(
        backend_type::create(experts.source, experts.bank, {.threads = threads}).error().message,
        "threads = " + std::to_string(threads) + ", accepted: 1..256");
  EXPECT_EQ(backend_type::create(experts.source, experts.bank, {.most_fills = 0}).error().message,
            "most_fills = 0, accepted: 1 or more");
  EXPECT_THROW(backend_type(experts.source, experts.bank, {.most_fills = 0}), invalid_config);
  EXPECT_TRUE(backend_type::create(experts.source, experts.bank));
}

/// One tensor is shorter than its slot.
struct short_source {
  std::array<std::byte, 96> a{};
  std::array<std::byte, 32> b{};
  std::array<std::byte, 257> c{};
  std::array<tensor_bytes, 3> all{a, b, c};
  [[nodiscard]] std::span<const tensor_bytes> tensors(expert_key, precision_id) const noexcept {
    return all;
  }
};

// Hazard 17: a failed call or copy counts as a success.
TEST_F(host_backend_copies, a_mis_sized_tensor_fails_and_writes_nothing) {
  const short_source source;
  host_backend<short_source> other(source, experts.bank);
  const auto before = submit({fill_of({0_layer, 1_expert}, 0_slot)});
  EXPECT_EQ(backend.wait(before.id), transfer_state::arrived);
  const std::array fills{fill_of({0_layer, 2_expert}, 0_slot)};
  const auto sent = other.submit(fills, stream, urgency::now);
  EXPECT_EQ(other.wait(sent.id), transfer_state::failed);
  EXPECT_EQ(other.bytes_moved(), 0U);
  EXPECT_TRUE(experts.holds(0_slot, {0_layer, 1_expert}));
}

TEST_F(host_backend_copies, a_promoted_copy_precedes_other_speculation) {
  const auto after = reader();
  const auto first = submit({fill_of({0_layer, 1_expert}, 0_slot, after)}, urgency::soon);
  const auto second = submit({fill_of({0_layer, 2_expert}, 0_slot, after)},
                             urgency::soon);  // the same slot: the last copy stays
  backend.promote(second.id);
  held.open();
  EXPECT_EQ(backend.wait(first.id), transfer_state::arrived);
  EXPECT_EQ(backend.wait(second.id), transfer_state::arrived);
  EXPECT_TRUE(experts.holds(0_slot, {0_layer, 1_expert})) << "the promoted one was copied first";
}

TEST_F(host_backend_copies, its_end_completes_submitted_copies) {
  {
    host_backend<memory_expert_source> brief(experts.source, experts.bank);
    const std::array fills{fill_of({1_layer, 7_expert}, 3_slot)};
    EXPECT_EQ(brief.submit(fills, stream, urgency::soon).accepted, 1U);
  }
  EXPECT_TRUE(experts.holds(3_slot, {1_layer, 7_expert}));
}

/// A backend in memory that is all zeros before and after its lifetime.
template <class Backend>
class buried {
 public:
  template <class... Arguments>
  explicit buried(Arguments&&... arguments)
      : backend_(new (memory_) Backend(std::forward<Arguments>(arguments)...)) {}
  buried(const buried&) = delete;
  buried& operator=(const buried&) = delete;
  ~buried() {
    if (backend_ != nullptr) end();
  }
  void end() {
    std::exchange(backend_, nullptr)->~Backend();
    std::memset(memory_, 0, sizeof(memory_));
  }
  Backend* operator->() { return backend_; }

 private:
  alignas(Backend) unsigned char memory_[sizeof(Backend)]{};
  Backend* backend_;
};

// A stream that has not reached them yet ends the readers and waits for the copies.
TEST_F(host_backend_copies, a_workers_stream_may_outlive_a_backend) {
  buried<host_backend<memory_expert_source>> brief(experts.source, experts.bank);
  const std::array fills{fill_of({1_layer, 7_expert}, 3_slot)};
  stream.run(gate::pass, &held);
  const auto sent = brief->submit(fills, stream, urgency::now);
  EXPECT_EQ(brief->fence(stream, sent.id), status::ok);
  EXPECT_EQ(brief->poll(brief->record(stream)), transfer_state::pending);
  brief.end();
  held.open();
  stream.drain();
  EXPECT_TRUE(experts.holds(3_slot, {1_layer, 7_expert}));
}

TEST_F(host_backend_copies, a_backend_may_outlive_the_stream_of_its_readers) {
  ticket read_until = no_ticket;
  {
    host_stream brief(host_stream::mode::worker);
    brief.run(gate::pass, &held);
    read_until = backend.record(brief);
    EXPECT_EQ(backend.poll(read_until), transfer_state::pending);
    held.open();
  }
  EXPECT_EQ(backend.poll(read_until), transfer_state::arrived);
}

using support::watched_source;

constexpr std::uint64_t expert_bytes = 96 + 33 + 257;

class host_backend_chunks : public testing::Test {
 protected:
  explicit host_backend_chunks(std::uint64_t chunk_bytes = 64)
      : backend(source, experts.bank, {.most_fills = 2, .pace = unpaced(chunk_bytes)}) {}
  host_experts experts{pool_layout::shared({.layers = 2, .experts = 8, .top_k = 2}, 4).value()};
  watched_source source{experts.source};
  host_stream stream;
  submission inside{};  ///< submitted by a test between two chunks
  host_backend<watched_source> backend;

  host_stream readers{host_stream::mode::worker};
  gate held;
  /// A reader that ends when the gate opens.
  ticket reader() {
    readers.run(gate::pass, &held);
    return backend.record(readers);
  }
  submission submit(std::vector<fill> fills, urgency when) {
    return backend.submit(fills, stream, when);
  }
  /// Runs of equal experts: the expert and its number of chunks.
  [[nodiscard]] std::vector<std::pair<std::int32_t, int>> runs() const {
    std::vector<std::pair<std::int32_t, int>> out;
    for (const auto key : source.asked) {
      if (out.empty() || out.back().first != key.expert) out.emplace_back(number(key.expert), 0);
      ++out.back().second;
    }
    return out;
  }
};

TEST_F(host_backend_chunks, demand_pre_empts_speculation_at_a_border_and_both_are_whole) {
  source.on_ask = [&](std::size_t asked) {
    if (asked == 3) inside = submit({fill_of({0_layer, 2_expert}, 2_slot)}, urgency::now);
  };
  const auto first = submit({fill_of({0_layer, 1_expert}, 1_slot)}, urgency::soon);
  EXPECT_EQ(backend.wait(first.id), transfer_state::arrived);
  EXPECT_EQ(backend.wait(inside.id), transfer_state::arrived);
  EXPECT_THAT(runs(), testing::ElementsAre(std::pair(1, 3), std::pair(2, 7), std::pair(1, 4)));
  EXPECT_TRUE(experts.holds(1_slot, {0_layer, 1_expert}));
  EXPECT_TRUE(experts.holds(2_slot, {0_layer, 2_expert}));
  EXPECT_EQ(backend.bytes_moved(), 2 * expert_bytes);
}

TEST_F(host_backend_chunks, speculation_does_not_pre_empt_and_a_promoted_copy_is_not_pre_empted) {
  ticket first = no_ticket, waiting = no_ticket;
  source.on_ask = [&](std::size_t asked) {
    if (asked == 2) waiting = submit({fill_of({0_layer, 2_expert}, 2_slot)}, urgency::soon).id;
    if (asked == 3) backend.promote(first);
    if (asked == 4) inside = submit({fill_of({0_layer, 3_expert}, 3_slot)}, urgency::now);
  };
  first = submit({fill_of({0_layer, 1_expert}, 1_slot, reader())}, urgency::soon).id;
  held.open();
  EXPECT_EQ(backend.wait(first), transfer_state::arrived);
  EXPECT_EQ(backend.wait(inside.id), transfer_state::arrived);
  EXPECT_EQ(backend.wait(waiting), transfer_state::arrived);
  EXPECT_THAT(std::vector(source.asked.begin(), source.asked.begin() + 14),
              testing::ElementsAreArray([] {
                std::vector<expert_key> keys(7, {0_layer, 1_expert});
                keys.resize(14, {0_layer, 3_expert});
                return keys;
              }()));
}

TEST_F(host_backend_chunks, a_started_copy_is_not_cancelled) {
  bool taken_back = true;
  ticket first = no_ticket;
  source.on_ask = [&](std::size_t asked) {
    if (asked == 3) inside = submit({fill_of({0_layer, 2_expert}, 2_slot)}, urgency::now);
    if (asked == 5) taken_back = backend.cancel(first);  // while the other is copied
  };
  first = submit({fill_of({0_layer, 1_expert}, 1_slot, reader())}, urgency::soon).id;
  held.open();
  EXPECT_EQ(backend.wait(first), transfer_state::arrived);
  EXPECT_FALSE(taken_back);
}

TEST_F(host_backend_chunks, a_byte_is_copied_once) {
  source.on_ask = [&](std::size_t asked) {
    if (asked == 3)
      experts.bank.bytes(1_slot, 0)[95] = experts.bank.bytes(1_slot, 1)[1] = std::byte{255};
  };
  const auto sent = submit({fill_of({0_layer, 1_expert}, 1_slot)}, urgency::now);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  EXPECT_EQ(experts.bank.bytes(1_slot, 0)[95], std::byte{255});
  EXPECT_EQ(experts.bank.bytes(1_slot, 1)[1], std::byte{255});
}

TEST_F(host_backend_chunks, an_expert_removed_during_its_copy_fails) {
  source.on_ask = [&](std::size_t asked) {
    if (asked == 4) experts.source.remove({0_layer, 1_expert});
  };
  const auto sent = submit({fill_of({0_layer, 1_expert}, 1_slot)}, urgency::now);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::failed);
  EXPECT_EQ(backend.bytes_moved(), 3U * 64);
}

TEST_F(host_backend_chunks, a_running_copy_takes_no_place_in_the_queue) {
  source.on_ask = [&](std::size_t asked) {
    if (asked == 1)
      inside = submit({fill_of({0_layer, 2_expert}, 2_slot), fill_of({0_layer, 3_expert}, 3_slot),
                       fill_of({0_layer, 4_expert}, 0_slot)},
                      urgency::soon);
  };
  const auto sent = submit({fill_of({0_layer, 1_expert}, 1_slot)}, urgency::now);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  EXPECT_EQ(inside.accepted, 2U);
  EXPECT_EQ(backend.wait(inside.id), transfer_state::arrived);
  EXPECT_TRUE(experts.holds(2_slot, {0_layer, 2_expert}));
  EXPECT_TRUE(experts.holds(3_slot, {0_layer, 3_expert}));
}

// A full queue is no failure: a demand batch larger than the queue is accepted in pieces.
TEST_F(host_backend_chunks, demand_waits_for_room_in_a_full_queue) {
  const auto after = reader();
  const auto early = submit(
      {fill_of({1_layer, 1_expert}, 0_slot, after), fill_of({1_layer, 2_expert}, 1_slot, after)},
      urgency::soon);
  ASSERT_EQ(early.accepted, 2U);
  EXPECT_EQ(submit({fill_of({0_layer, 1_expert}, 2_slot)}, urgency::soon).accepted, 0U)
      << "full of speculation";
  std::thread opener([&] { held.open(); });
  std::vector<fill> fills;
  for (const auto e : each<expert_id>(8))
    fills.push_back(fill_of({0_layer, e}, 2_slot + number(e) % 2));
  const auto sent = submit(fills, urgency::now);
  opener.join();
  EXPECT_EQ(sent.accepted, 8U);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  for (const auto s : {2_slot, 3_slot})
    EXPECT_TRUE(experts.holds(s, {0_layer, expert_id{number(s) + 4}}));
  EXPECT_EQ(backend.wait(early.id), transfer_state::arrived);
  for (const auto s : {0_slot, 1_slot})
    EXPECT_TRUE(experts.holds(s, {1_layer, expert_id{number(s) + 1}}));
}
// Two callers at once: each batch arrives complete under its own ticket.
TEST_F(host_backend_chunks, callers_that_wait_for_room_do_not_disturb_each_other) {
  const auto send = [&](slot_id slot) {
    for (std::int32_t e = 0; e < 20; ++e) {
      std::vector<fill> fills;
      for (std::int32_t i = 0; i < 5; ++i)
        fills.push_back(fill_of({1_layer, expert_id{(e + i) % 8}}, slot));
      const auto sent = submit(fills, urgency::now);
      EXPECT_EQ(sent.accepted, 5U);
      EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
      EXPECT_TRUE(experts.holds(slot, {1_layer, expert_id{(e + 4) % 8}}));
    }
  };
  std::thread other([&] { send(0_slot); });
  send(1_slot);
  other.join();
}

class host_backend_whole : public host_backend_chunks {
 protected:
  host_backend_whole() : host_backend_chunks(0) {}
};
TEST_F(host_backend_whole, copies_are_made_at_once) {
  const auto sent = submit(
      {fill_of({0_layer, 1_expert}, 1_slot), fill_of({0_layer, 2_expert}, 2_slot)}, urgency::now);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  EXPECT_THAT(runs(), testing::ElementsAre(std::pair(1, 1), std::pair(2, 1)));
  EXPECT_TRUE(experts.holds(1_slot, {0_layer, 1_expert}));
}

}  // namespace
}  // namespace hotset::host_backend_test
