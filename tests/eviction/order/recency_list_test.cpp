// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/order/recency_list.hpp"

#include <algorithm>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "written_ids.hpp"

namespace hotset::recency_list_test {
namespace {

std::vector<slot_id> walk(const recency_list& list, std::size_t head) {
  std::vector<slot_id> out;
  for (auto s = list.front(head); s != no_slot; s = list.after(s)) out.push_back(s);
  return out;
}

TEST(recency_list, keeps_one_order_per_head) {
  recency_list list(5, 2);
  EXPECT_EQ(list.front(0), no_slot);
  list.push_back(0, 3_slot);
  list.push_back(1, 1_slot);
  list.push_back(0, 4_slot);
  list.push_back(0, 0_slot);
  EXPECT_EQ(walk(list, 0), support::slot_ids({3, 4, 0}));
  EXPECT_EQ(walk(list, 1), support::slot_ids({1}));
  list.move_to_back(0, 3_slot);
  list.move_to_back(0, 3_slot);
  EXPECT_EQ(walk(list, 0), support::slot_ids({4, 0, 3}));
  list.erase(0_slot);
  list.erase(0_slot);
  EXPECT_FALSE(list.contains(0_slot));
  EXPECT_TRUE(list.contains(3_slot));
  EXPECT_EQ(walk(list, 0), support::slot_ids({4, 3}));
}

TEST(recency_list, agrees_with_std_list) {
  constexpr std::size_t slots = 40;
  constexpr std::size_t heads = 3;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    recency_list list(slots, heads);
    std::vector<std::list<slot_id>> model(heads);
    std::vector<int> home(slots, -1);
    std::uint64_t random = seed;
    for (int n = 0; n < 2000; ++n) {
      random = random * 6364136223846793005U + 1442695040888963407U;
      const auto at = (random >> 33U) % slots;
      const auto s = static_cast<slot_id>(at);
      const auto head = (random >> 55U) % heads;
      if (home[at] < 0) {
        list.push_back(head, s);
        model[head].push_back(s);
        home[at] = static_cast<int>(head);
      } else if ((random >> 58U) % 4 == 0) {
        const auto to = (random >> 20U) % slots;
        if (home[to] >= 0) continue;
        list.take_place(s, static_cast<slot_id>(to));
        auto& in = model[static_cast<std::size_t>(home[at])];
        std::replace(in.begin(), in.end(), s, static_cast<slot_id>(to));
        home[to] = std::exchange(home[at], -1);
      } else if ((random >> 60U) % 2 == 0) {
        list.move_to_back(static_cast<std::size_t>(home[at]), s);
        model[static_cast<std::size_t>(home[at])].remove(s);
        model[static_cast<std::size_t>(home[at])].push_back(s);
      } else {
        list.erase(s);
        model[static_cast<std::size_t>(home[at])].remove(s);
        home[at] = -1;
      }
      for (std::size_t h = 0; h < heads; ++h)
        ASSERT_EQ(walk(list, h), std::vector<slot_id>(model[h].begin(), model[h].end()));
    }
  }
}

}  // namespace
}  // namespace hotset::recency_list_test
