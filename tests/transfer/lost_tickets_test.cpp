// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/lost_tickets.hpp"

#include <map>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::lost_tickets_test {
namespace {

TEST(lost_tickets, of_nothing_lost_all_have_arrived) {
  lost_tickets past(2);
  for (ticket t = 1; t < 10; ++t) past.leave(t, transfer_state::arrived);
  for (ticket t = 0; t < 10; ++t) EXPECT_EQ(past.state(t), transfer_state::arrived);
}

TEST(lost_tickets, each_keeps_its_state) {
  lost_tickets past(3);
  past.leave(4, transfer_state::failed);
  past.leave(5, transfer_state::cancelled);
  past.leave(9, transfer_state::failed);
  for (ticket t = 0; t < 12; ++t)
    EXPECT_EQ(past.state(t), t == 4 || t == 9 ? transfer_state::failed
                             : t == 5         ? transfer_state::cancelled
                                              : transfer_state::arrived);
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

// More losses than there is memory for: what is known stays exact, and what is not known is no arrival.
TEST(lost_tickets, too_many_take_nothing_for_arrived_that_did_not) {
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
}  // namespace hotset::lost_tickets_test
