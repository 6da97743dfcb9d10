// SPDX-License-Identifier: Apache-2.0
#include "hotset/cache/copies_underway.hpp"

#include <map>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::copies_underway_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using enum transfer_state;

struct stub_backend {
  std::map<ticket, transfer_state> state;
  std::vector<ticket> waited;
  [[nodiscard]] transfer_state poll(ticket t) const { return state.at(t); }
  transfer_state wait(ticket t) {
    waited.push_back(t);
    return state[t] = arrived;
  }
};
struct stub_pages {
  std::vector<slot_entry> slots{8};
  std::vector<std::pair<slot_id, std::uint32_t>> arrivals, failures;
  [[nodiscard]] const slot_entry& slot(slot_id s) const {
    return slots[static_cast<std::size_t>(s)];
  }
  void arrived(slot_id s, std::uint32_t generation) { arrivals.emplace_back(s, generation); }
  void failed(slot_id s, std::uint32_t generation) { failures.emplace_back(s, generation); }
};

class watched_copies : public testing::Test {
 protected:
  copies_underway copies{4};
  stub_backend backend;
  stub_pages pages;
};

TEST_F(watched_copies, report_ended_copies_and_keep_the_others) {
  copies.watch({.batch = 1, .slot = 2_slot, .generation = 7});
  copies.watch({.batch = 2, .slot = 3_slot, .generation = 1, .speculative = true});
  copies.watch({.batch = 3, .slot = no_slot});
  EXPECT_EQ(copies.speculative(), 1U);
  backend.state = {{1, arrived}, {2, pending}, {3, failed}};
  EXPECT_TRUE(copies.take_in_settled(backend, pages)) << "an abandoned copy has no reader";
  EXPECT_THAT(pages.arrivals, ElementsAre(Pair(2, 7U)));
  EXPECT_THAT(pages.failures, IsEmpty());
  EXPECT_EQ(copies.size(), 1U);
  backend.state[2] = arrived;
  EXPECT_TRUE(copies.take_in_settled(backend, pages));
  EXPECT_EQ(copies.size(), 0U);
  EXPECT_EQ(copies.speculative(), 0U);
}

TEST_F(watched_copies, a_failed_one_is_a_loss_unless_its_slot_waits_for_it_still) {
  pages.slots[2].state = slot_state::filling;
  pages.slots[2].generation = 7;
  copies.watch({.batch = 1, .slot = 2_slot, .generation = 7});
  backend.state = {{1, failed}};
  EXPECT_TRUE(copies.take_in_settled(backend, pages));
  EXPECT_THAT(pages.failures, ElementsAre(Pair(2, 7U)));

  pages.slots[2].state = slot_state::resident;
  copies.watch({.batch = 1, .slot = 2_slot, .generation = 7});
  EXPECT_FALSE(copies.take_in_settled(backend, pages));

  pages.slots[2].state = slot_state::filling;
  copies.watch({.batch = 1, .slot = 2_slot, .generation = 6});
  EXPECT_FALSE(copies.take_in_settled(backend, pages))
      << "another copy is on its way into the slot";
}

TEST_F(watched_copies, are_waited_for_in_their_order) {
  copies.watch({.batch = 5, .slot = 2_slot});
  copies.watch({.batch = 4, .slot = 3_slot});
  copies.wait_for_first(backend);
  copies.wait_for_all(backend);
  EXPECT_THAT(backend.waited, ElementsAre(5U, 5U, 4U));
}

}  // namespace
}  // namespace hotset::copies_underway_test
