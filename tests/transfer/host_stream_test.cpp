// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/host_stream.hpp"

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "host_experts.hpp"

namespace hotset::host_stream_test {
namespace {

using support::gate;

struct note {
  std::vector<int>* to;
  int number;
  static void write(void* self) noexcept {
    auto& n = *static_cast<note*>(self);
    n.to->push_back(n.number);
  }
};

TEST(host_stream, the_callers_stream_runs_at_once) {
  host_stream stream;
  std::vector<int> seen;
  note n{&seen, 1};
  EXPECT_TRUE(stream.is_caller());
  stream.run(note::write, &n);
  EXPECT_THAT(seen, testing::ElementsAre(1));
  const auto board = std::make_shared<ticket_board>();
  const auto t = board->open();
  stream.settle_after(board, t);
  EXPECT_EQ(board->state(t), transfer_state::arrived);
  EXPECT_EQ(stream.wait_for(board, t), status::ok);
  const auto bad = board->open();
  board->settle(bad, transfer_state::failed);
  EXPECT_EQ(stream.wait_for(board, bad), status::fill_failed);
  stream.drain();
}

TEST(host_stream, a_worker_runs_in_order_and_waits_for_tickets) {
  const auto board = std::make_shared<ticket_board>();
  std::vector<int> seen;
  note first{&seen, 1};
  note second{&seen, 2};
  const auto wanted = board->open();
  const auto before = board->open();
  const auto after = board->open();
  host_stream stream(host_stream::mode::worker, 3);  // a full ring only blocks the caller
  EXPECT_FALSE(stream.is_caller());
  stream.run(note::write, &first);
  stream.settle_after(board, before);
  EXPECT_EQ(stream.wait_for(board, wanted), status::ok) << "told by poll, not by the fence";
  stream.run(note::write, &second);
  stream.settle_after(board, after);
  EXPECT_EQ(board->wait(before), transfer_state::arrived);
  EXPECT_THAT(seen, testing::ElementsAre(1));
  EXPECT_EQ(board->state(after), transfer_state::pending);
  board->settle(wanted, transfer_state::arrived);
  stream.drain();
  EXPECT_THAT(seen, testing::ElementsAre(1, 2));
  EXPECT_EQ(board->state(after), transfer_state::arrived);
}

TEST(host_stream, its_end_runs_enqueued_work) {
  std::vector<int> seen;
  std::vector<note> notes;
  for (int n = 0; n < 50; ++n) notes.push_back({&seen, n});
  {
    host_stream stream(host_stream::mode::worker, 4);
    for (auto& n : notes) stream.run(note::write, &n);
  }
  EXPECT_EQ(seen.size(), 50U);
  EXPECT_TRUE(std::ranges::is_sorted(seen));
}

TEST(host_stream, a_worker_without_room_is_refused) {
  EXPECT_EQ(host_stream::create(host_stream::mode::worker, 0).error().message,
            "worker stream capacity = 0, accepted: 1 or more");
  EXPECT_THROW(host_stream(host_stream::mode::worker, 0), invalid_config);
  EXPECT_TRUE(host_stream::create(host_stream::mode::worker, 1));
}

TEST(host_stream, owns_the_boards_of_the_tickets_that_it_has_yet_to_settle) {
  gate held;
  auto board = std::make_shared<ticket_board>();
  const std::weak_ptr<ticket_board> seen = board;
  host_stream stream(host_stream::mode::worker);
  stream.run(gate::pass, &held);
  stream.settle_after(board, board->open());
  board.reset();
  EXPECT_FALSE(seen.expired());
  held.open();
  stream.drain();
  EXPECT_TRUE(seen.expired()) << "and no longer";
}

}  // namespace
}  // namespace hotset::host_stream_test
