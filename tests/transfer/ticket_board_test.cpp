// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/ticket_board.hpp"

#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::ticket_board_test {
namespace {

TEST(ticket_board, a_ticket_is_pending_until_it_is_settled) {
  ticket_board board;
  const auto a = board.open();
  const auto b = board.open();
  EXPECT_NE(a, no_ticket);
  EXPECT_NE(a, b);
  EXPECT_EQ(board.state(a), transfer_state::pending);
  board.settle(a, transfer_state::failed);
  EXPECT_EQ(board.state(a), transfer_state::failed);
  EXPECT_EQ(board.wait(a), transfer_state::failed) << "sticky";
  EXPECT_EQ(board.state(b), transfer_state::pending);
}

TEST(ticket_board, no_ticket_has_arrived) {
  ticket_board board;
  EXPECT_EQ(board.state(no_ticket), transfer_state::arrived);
  EXPECT_EQ(board.wait(no_ticket), transfer_state::arrived);
}

// Hazard 26: a place in the ring is reused only after its ticket is settled.
TEST(ticket_board, a_full_ring_gives_no_ticket_until_the_oldest_is_settled) {
  ticket_board board(2);
  const auto a = board.open();
  const auto b = board.open();
  EXPECT_EQ(board.open(), no_ticket);
  board.settle(b, transfer_state::arrived);
  EXPECT_EQ(board.open(), no_ticket) << "b is not the oldest";
  board.settle(a, transfer_state::failed);
  const auto c = board.open();
  EXPECT_NE(c, no_ticket);
  EXPECT_EQ(board.state(c), transfer_state::pending);
  EXPECT_EQ(board.state(a), transfer_state::failed) << "older than the ring";
  board.settle(a, transfer_state::arrived);
  EXPECT_EQ(board.state(a), transfer_state::failed);
  EXPECT_EQ(board.state(c), transfer_state::pending) << "an old ticket cannot settle a new one";
}

TEST(ticket_board, a_failure_is_kept_when_its_place_is_reused) {
  ticket_board board(4);
  const auto failed = board.open();
  const auto cancelled = board.open();
  const auto arrived = board.open();
  board.settle(failed, transfer_state::failed);
  board.settle(cancelled, transfer_state::cancelled);
  board.settle(arrived, transfer_state::arrived);
  for (int n = 0; n < 5000; ++n) board.settle(board.open(), transfer_state::arrived);
  EXPECT_EQ(board.state(failed), transfer_state::failed);
  EXPECT_EQ(board.wait(failed), transfer_state::failed);
  EXPECT_EQ(board.state(cancelled), transfer_state::cancelled);
  EXPECT_EQ(board.state(arrived), transfer_state::arrived);
}

TEST(ticket_board, waits_for_a_place_in_a_full_ring) {
  ticket_board board(2);
  const auto a = board.open();
  const auto b = board.open();
  ASSERT_EQ(board.open(), no_ticket);
  std::thread other([&] { board.settle(a, transfer_state::arrived); });
  EXPECT_EQ(board.wait_to_open(), b + 1);
  other.join();
  EXPECT_EQ(board.state(a), transfer_state::arrived);
  EXPECT_EQ(board.state(b), transfer_state::pending);
}

TEST(ticket_board, wait_returns_when_another_thread_settles) {
  ticket_board board;
  const auto t = board.open();
  std::thread other([&] { board.settle(t, transfer_state::cancelled); });
  EXPECT_EQ(board.wait(t), transfer_state::cancelled);
  other.join();
}

TEST(lost_tickets, without_memory_all_before_the_last_loss_count_as_failed) {
  lost_tickets past(0);
  EXPECT_EQ(past.state(7), transfer_state::arrived);
  past.leave(7, transfer_state::cancelled);
  EXPECT_EQ(past.state(6), transfer_state::failed);
  EXPECT_EQ(past.state(7), transfer_state::failed);
  EXPECT_EQ(past.state(8), transfer_state::arrived);
  EXPECT_EQ(past.state(no_ticket), transfer_state::arrived);
}

// More losses than the memory holds: recorded ones stay exact, and unrecorded tickets never count as arrived.
TEST(lost_tickets, unrecorded_losses_never_count_as_arrived) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    support::random_source random(seed);
    constexpr std::size_t most = 8;
    lost_tickets past(most);
    std::map<ticket, transfer_state> all;
    for (ticket t = 1; t <= 200; ++t) {
      const auto state = random.one_in(4)   ? transfer_state::failed
                         : random.one_in(4) ? transfer_state::cancelled
                                            : transfer_state::arrived;
      past.leave(t, state);
      all[t] = state;
      std::size_t known = 0;
      for (auto one = all.rbegin(); one != all.rend(); ++one) {
        known += one->second == transfer_state::arrived ? 0U : 1U;
        ASSERT_EQ(past.state(one->first), known <= most ? one->second : transfer_state::failed)
            << one->first << " of " << t;
      }
    }
  }
}

}  // namespace
}  // namespace hotset::ticket_board_test
