// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/copy_thread.hpp"

#include <array>
#include <cstdint>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fills.hpp"
#include "host_experts.hpp"
#include "watched_source.hpp"

namespace hotset::copy_thread_test {
namespace {

using support::fill_of;
using support::host_experts;
using support::watched_source;

constexpr std::uint64_t expert_bytes = 96 + 33 + 257;

class chunked : public copy_thread<watched_source, unpaced> {
 public:
  chunked(const watched_source& source, const host_slot_bank& bank, std::uint64_t chunk_bytes)
      : copy_thread(source, bank, 2, unpaced(chunk_bytes)) {
    require_valid(start());
  }
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
  [[nodiscard]] std::vector<std::pair<std::int32_t, int>> runs() const {
    std::vector<std::pair<std::int32_t, int>> out;
    for (const auto key : source.asked) {
      if (out.empty() || out.back().first != key.expert) out.emplace_back(number(key.expert), 0);
      ++out.back().second;
    }
    return out;
  }
};

TEST_F(copy_thread_chunks, demand_pre_empts_speculation_at_a_border_and_both_are_whole) {
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

TEST_F(copy_thread_chunks, speculation_does_not_pre_empt_and_a_promoted_copy_is_not_pre_empted) {
  ticket first = no_ticket, waiting = no_ticket;
  source.on_ask = [&](std::size_t asked) {
    if (asked == 2) waiting = submit({fill_of({0_layer, 2_expert}, 2_slot)}, urgency::soon).id;
    if (asked == 3) backend.promote(first);
    if (asked == 4) inside = submit({fill_of({0_layer, 3_expert}, 3_slot)}, urgency::now);
  };
  support::gate held;
  host_stream reader(host_stream::mode::worker);
  reader.run(support::gate::pass, &held);
  first = submit({fill_of({0_layer, 1_expert}, 1_slot, backend.record(reader))}, urgency::soon).id;
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

TEST_F(copy_thread_chunks, a_copy_that_has_begun_is_not_taken_back) {
  bool taken_back = true;
  ticket first = no_ticket;
  source.on_ask = [&](std::size_t asked) {
    if (asked == 3) inside = submit({fill_of({0_layer, 2_expert}, 2_slot)}, urgency::now);
    if (asked == 5) taken_back = backend.cancel(first);  // while the other is carried
  };
  support::gate held;
  host_stream reader(host_stream::mode::worker);
  reader.run(support::gate::pass, &held);
  first = submit({fill_of({0_layer, 1_expert}, 1_slot, backend.record(reader))}, urgency::soon).id;
  held.open();
  EXPECT_EQ(backend.wait(first), transfer_state::arrived);
  EXPECT_FALSE(taken_back);
}

TEST_F(copy_thread_chunks, a_byte_is_copied_once) {
  source.on_ask = [&](std::size_t asked) {
    if (asked == 3)
      experts.bank.bytes(1_slot, 0)[95] = experts.bank.bytes(1_slot, 1)[1] = std::byte{255};
  };
  const auto sent = submit({fill_of({0_layer, 1_expert}, 1_slot)}, urgency::now);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  EXPECT_EQ(experts.bank.bytes(1_slot, 0)[95], std::byte{255});
  EXPECT_EQ(experts.bank.bytes(1_slot, 1)[1], std::byte{255});
}

TEST_F(copy_thread_chunks, an_expert_that_goes_away_half_way_fails) {
  source.on_ask = [&](std::size_t asked) {
    if (asked == 4) experts.source.remove({0_layer, 1_expert});
  };
  const auto sent = submit({fill_of({0_layer, 1_expert}, 1_slot)}, urgency::now);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::failed);
  EXPECT_EQ(backend.bytes_moved(), 3U * 64);
}

TEST_F(copy_thread_chunks, what_is_being_copied_takes_no_place_in_the_queue) {
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

// Full is not failed: a batch of demand larger than the queue is taken whole, piece by piece.
TEST_F(copy_thread_chunks, demand_waits_for_room_in_a_full_queue) {
  host_stream reader(host_stream::mode::worker);
  support::gate held;
  reader.run(support::gate::pass, &held);
  const auto after = backend.record(reader);
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
// Two callers at once: each batch arrives whole under its own ticket.
TEST_F(copy_thread_chunks, callers_that_wait_for_room_do_not_disturb_each_other) {
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

class copy_thread_whole : public copy_thread_chunks {
 protected:
  copy_thread_whole() : copy_thread_chunks(0) {}
};
TEST_F(copy_thread_whole, copies_are_made_at_once) {
  const auto sent = submit(
      {fill_of({0_layer, 1_expert}, 1_slot), fill_of({0_layer, 2_expert}, 2_slot)}, urgency::now);
  EXPECT_EQ(backend.wait(sent.id), transfer_state::arrived);
  EXPECT_THAT(runs(), testing::ElementsAre(std::pair(1, 1), std::pair(2, 1)));
  EXPECT_TRUE(experts.holds(1_slot, {0_layer, 1_expert}));
}

}  // namespace
}  // namespace hotset::copy_thread_test
