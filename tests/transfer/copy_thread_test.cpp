// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/copy_thread.hpp"

#include <array>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fills.hpp"
#include "host_experts.hpp"
#include "watched_source.hpp"

namespace hotset {
namespace {

using support::fill_of;
using support::host_experts;
using support::watched_source;

constexpr std::uint64_t expert_bytes = 96 + 33 + 257;

class chunked : public copy_thread<watched_source, unpaced> {
 public:
  chunked(const watched_source& source, const host_slot_bank& bank, std::uint64_t chunk_bytes)
      : copy_thread(source, bank, 2, unpaced(chunk_bytes)) {}
};

class copy_thread_chunks : public testing::Test {
 protected:
  explicit copy_thread_chunks(std::uint64_t chunk_bytes = 64)
      : backend(source, experts.bank, chunk_bytes) {}
  host_experts experts{pool_layout::shared({.layers = 2, .experts = 8, .top_k = 2}, 4).value()};
  watched_source source{experts.source};
  host_stream stream;
  submission inside{};  ///< what a test submitted between two chunks
  chunked backend;

  submission submit(std::vector<fill> fills, urgency when) {
    return backend.submit(fills, stream, when);
  }
  /// Runs of equal experts: the expert and its chunks.
  [[nodiscard]] std::vector<std::pair<expert_id, int>> runs() const {
    std::vector<std::pair<expert_id, int>> out;
    for (const auto key : source.asked) {
      if (out.empty() || out.back().first != key.expert) out.emplace_back(key.expert, 0);
      ++out.back().second;
    }
    return out;
  }
};

TEST_F(copy_thread_chunks, demand_pre_empts_speculation_at_a_border_and_both_are_whole) {
  source.on_ask = [&](std::size_t asked) {
    if (asked == 3) inside = submit({fill_of({0, 2}, 2)}, urgency::now);
  };
  const auto first = submit({fill_of({0, 1}, 1)}, urgency::soon);
  EXPECT_EQ(backend.wait(first.id), transfer_state::arrived);
  EXPECT_EQ(backend.wait(inside.id), transfer_state::arrived);
  EXPECT_THAT(runs(), testing::ElementsAre(std::pair(1, 3), std::pair(2, 7), std::pair(1, 4)));
  EXPECT_TRUE(experts.holds(1, {0, 1}));
  EXPECT_TRUE(experts.holds(2, {0, 2}));
  EXPECT_EQ(backend.bytes_moved(), 2 * expert_bytes);
}

TEST_F(copy_thread_chunks, speculation_does_not_pre_empt_and_a_promoted_copy_is_not_pre_empted) {
  ticket first = no_ticket, waiting = no_ticket;
  source.on_ask = [&](std::size_t asked) {
    if (asked == 2) waiting = submit({fill_of({0, 2}, 2)}, urgency::soon).id;
    if (asked == 3) backend.promote(first);
    if (asked == 4) inside = submit({fill_of({0, 3}, 3)}, urgency::now);
  };
  support::gate held;
  host_stream reader(host_stream::mode::worker);
  reader.run(support::gate::pass, &held);
  first = submit({fill_of({0, 1}, 1, backend.record(reader))}, urgency::soon).id;
  held.open();
  EXPECT_EQ(backend.wait(first), transfer_state::arrived);
  EXPECT_EQ(backend.wait(inside.id), transfer_state::arrived);
  EXPECT_EQ(backend.wait(waiting), transfer_state::arrived);
  EXPECT_THAT(std::vector(source.asked.begin(), source.asked.begin() + 14),
              testing::ElementsAreArray([] {
                std::vector<expert_key> keys(7, {0, 1});
                keys.resize(14, {0, 3});
                return keys;
              }()));
}

TEST_F(copy_thread_chunks, a_copy_that_has_begun_is_not_taken_back) {
  bool taken_back = true;
  ticket first = no_ticket;
  source.on_ask = [&](std::size_t asked) {
    if (asked == 3) inside = submit({fill_of({0, 2}, 2)}, urgency::now);
    if (asked == 5) taken_back = backend.cancel(first);  // while the other is carried
  };
  support::gate held;
  host_stream reader(host_stream::mode::worker);
  reader.run(support::gate::pass, &held);
  first = submit({fill_of({0, 1}, 1, backend.record(reader))}, urgency::soon).id;
  held.open();
  EXPECT_EQ(backend.wait(first), transfer_state::arrived);
  EXPECT_FALSE(taken_back);
}

TEST_F(copy_thread_chunks, a_byte_is_copied_once) {
  source.on_ask = [&](std::size_t asked) {
    if (asked == 3) experts.bank.bytes(1, 0)[95] = experts.bank.bytes(1, 1)[1] = std::byte{255};
  };
  const auto sent = submit({fill_of({0, 1}, 1)}, urgency::now);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  EXPECT_EQ(experts.bank.bytes(1, 0)[95], std::byte{255});
  EXPECT_EQ(experts.bank.bytes(1, 1)[1], std::byte{255});
}

TEST_F(copy_thread_chunks, an_expert_that_goes_away_half_way_fails) {
  source.on_ask = [&](std::size_t asked) {
    if (asked == 4) experts.source.remove({0, 1});
  };
  const auto sent = submit({fill_of({0, 1}, 1)}, urgency::now);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::failed);
  EXPECT_EQ(backend.bytes_moved(), 3U * 64);
}

TEST_F(copy_thread_chunks, what_is_being_copied_takes_no_place_in_the_queue) {
  source.on_ask = [&](std::size_t asked) {
    if (asked == 1)
      inside = submit({fill_of({0, 2}, 2), fill_of({0, 3}, 3), fill_of({0, 4}, 0)}, urgency::soon);
  };
  const auto sent = submit({fill_of({0, 1}, 1)}, urgency::now);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  EXPECT_EQ(inside.accepted, 2U);
  EXPECT_EQ(backend.wait(inside.id), transfer_state::arrived);
  EXPECT_TRUE(experts.holds(2, {0, 2}));
  EXPECT_TRUE(experts.holds(3, {0, 3}));
}

// Full is not failed: a batch of demand larger than the queue is taken whole, piece by piece.
TEST_F(copy_thread_chunks, demand_waits_for_room_in_a_full_queue) {
  host_stream reader(host_stream::mode::worker);
  support::gate held;
  reader.run(support::gate::pass, &held);
  const auto after = backend.record(reader);
  const auto early = submit({fill_of({1, 1}, 0, after), fill_of({1, 2}, 1, after)}, urgency::soon);
  ASSERT_EQ(early.accepted, 2U);
  EXPECT_EQ(submit({fill_of({0, 1}, 2)}, urgency::soon).accepted, 0U) << "full of speculation";
  std::thread opener([&] { held.open(); });
  std::vector<fill> fills;
  for (expert_id e = 0; e < 8; ++e) fills.push_back(fill_of({0, e}, 2 + e % 2));
  const auto sent = submit(fills, urgency::now);
  opener.join();
  EXPECT_EQ(sent.accepted, 8U);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  for (const slot_id s : {2, 3}) EXPECT_TRUE(experts.holds(s, {0, s + 4}));
  EXPECT_EQ(backend.wait(early.id), transfer_state::arrived);
  for (const slot_id s : {0, 1}) EXPECT_TRUE(experts.holds(s, {1, s + 1}));
}
// Two callers at once: each batch arrives whole under its own ticket.
TEST_F(copy_thread_chunks, callers_that_wait_for_room_do_not_disturb_each_other) {
  const auto send = [&](slot_id slot) {
    for (expert_id e = 0; e < 20; ++e) {
      std::vector<fill> fills;
      for (expert_id i = 0; i < 5; ++i) fills.push_back(fill_of({1, (e + i) % 8}, slot));
      const auto sent = submit(fills, urgency::now);
      EXPECT_EQ(sent.accepted, 5U);
      EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
      EXPECT_TRUE(experts.holds(slot, {1, (e + 4) % 8}));
    }
  };
  std::thread other([&] { send(0); });
  send(1);
  other.join();
}

class copy_thread_whole : public copy_thread_chunks {
 protected:
  copy_thread_whole() : copy_thread_chunks(0) {}
};
TEST_F(copy_thread_whole, copies_are_made_at_once) {
  const auto sent = submit({fill_of({0, 1}, 1), fill_of({0, 2}, 2)}, urgency::now);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  EXPECT_THAT(runs(), testing::ElementsAre(std::pair(1, 1), std::pair(2, 1)));
  EXPECT_TRUE(experts.holds(1, {0, 1}));
}

}  // namespace
}  // namespace hotset
