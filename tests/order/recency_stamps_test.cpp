// SPDX-License-Identifier: Apache-2.0
#include "hotset/order/recency_stamps.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::recency_stamps_test {
namespace {

pool_layout per_layer(std::int32_t slots) {
  return pool_layout::per_layer({.layers = 3, .experts = 128, .top_k = 2}, slots).value();
}
slot_mask all(const pool_layout& layout) {
  slot_mask mask(layout.slots());
  for (const auto s : each<slot_id>(layout.slots())) mask.set(s);
  return mask;
}
std::vector<slot_id> first(recency_stamps& order, pool_id pool, const slot_mask& eligible,
                           std::size_t count) {
  std::vector<slot_id> out(count, no_slot);
  const auto chosen = order.select(pool, eligible, out);
  for (auto i = chosen; i < count; ++i) EXPECT_EQ(out[i], no_slot);
  out.resize(chosen);
  return out;
}

TEST(recency_stamps, small_pools_alone_are_scanned) {
  EXPECT_TRUE(recency_stamps::suits(per_layer(64)));
  EXPECT_FALSE(recency_stamps::suits(per_layer(65)));
}

TEST(recency_stamps, covers_the_slots_that_a_pool_began_with) {
  const recency_stamps order(per_layer(4));
  EXPECT_TRUE(order.covers(1_pool, 4_slot));
  EXPECT_TRUE(order.covers(1_pool, 7_slot));
  EXPECT_FALSE(order.covers(1_pool, 3_slot));
  EXPECT_FALSE(order.covers(1_pool, 8_slot));
}

TEST(recency_stamps, knows_whether_two_slots_began_in_one_pool) {
  const recency_stamps order(per_layer(4));
  EXPECT_TRUE(order.same_pool(4_slot, 7_slot));
  EXPECT_FALSE(order.same_pool(3_slot, 4_slot));
  EXPECT_FALSE(order.same_pool(100_slot, 4_slot));
}

// Sizes around the width of the scan, eligible subsets, every number of victims.
TEST(recency_stamps, agrees_with_std_list) {
  support::random_source random(1);
  const auto below = [&random](std::size_t n) { return static_cast<std::size_t>(random.below(n)); };
  for (const std::int32_t slots : {2, 3, 4, 5, 7, 8, 16, 33, 63, 64}) {
    SCOPED_TRACE(std::to_string(slots) + " slots");
    const auto layout = per_layer(slots);
    recency_stamps order(layout);
    std::vector<std::list<slot_id>> model(3);
    for (int n = 0; n < 600; ++n) {
      const auto pool = below(3);
      const auto base = static_cast<slot_id>(static_cast<std::int32_t>(pool) * slots);
      std::vector<slot_id> used;
      const auto most = below(4) == 0 ? static_cast<std::size_t>(slots) : 2;
      while (used.size() < 1 + below(most)) {
        const auto slot = base + static_cast<std::int32_t>(below(static_cast<std::size_t>(slots)));
        if (std::find(used.begin(), used.end(), slot) == used.end()) used.push_back(slot);
      }
      order.touch(static_cast<pool_id>(pool), used);
      for (const auto slot : used) {
        model[pool].remove(slot);
        model[pool].push_back(slot);
      }
      if (below(3) == 0) {
        const auto slot = base + static_cast<std::int32_t>(below(static_cast<std::size_t>(slots)));
        order.erase(slot);
        model[pool].remove(slot);
      }
      if (below(3) == 0) {
        const auto from = base + static_cast<std::int32_t>(below(static_cast<std::size_t>(slots)));
        const auto to = base + static_cast<std::int32_t>(below(static_cast<std::size_t>(slots)));
        const auto at = std::ranges::find(model[pool], from);
        if (at != model[pool].end() && std::ranges::find(model[pool], to) == model[pool].end()) {
          order.take_place(from, to);
          *at = to;
        }
      }
      auto eligible = all(layout);
      for (const auto slot : used) eligible.assign(slot, below(2) == 0);
      for (std::size_t p = 0; p < 3; ++p) {
        std::vector<slot_id> expected;
        for (const auto slot : model[p])
          if (eligible.test(slot)) expected.push_back(slot);
        // A few at a time: what was sorted for one question serves the next ones, whatever came between.
        if (below(8) == 0) {
          ASSERT_EQ(first(order, static_cast<pool_id>(p), eligible, 200), expected);
        }
        expected.resize(std::min(expected.size(), below(6)));
        const auto chosen = first(order, static_cast<pool_id>(p), eligible, expected.size());
        ASSERT_EQ(chosen, expected);
        if (chosen.empty()) continue;
        // Told of what was chosen, and then it is used; or of something else, which changes nothing.
        const auto told = below(3);
        if (told == 0) {
          order.give_up(static_cast<pool_id>(p), chosen.size() + 1, chosen.back());
          if (chosen.size() > 1)
            order.give_up(static_cast<pool_id>(p), chosen.size(), chosen.front());
        }
        if (told != 1) continue;
        order.give_up(static_cast<pool_id>(p), chosen.size(), chosen.back());
        order.touch(static_cast<pool_id>(p), chosen);
        for (const auto slot : chosen) model[p].remove(slot);
        model[p].insert(model[p].end(), chosen.begin(), chosen.end());
      }
    }
  }
}

// As where every expert of every visit misses: what was sorted is lengthened, until something else is used or taken out.
TEST(recency_stamps, agrees_with_std_list_where_just_the_oldest_are_used) {
  support::random_source random(2);
  const auto below = [&random](std::size_t n) { return static_cast<std::size_t>(random.below(n)); };
  for (const std::int32_t slots : {2, 3, 8, 17, 64}) {
    SCOPED_TRACE(std::to_string(slots) + " slots");
    const auto layout = per_layer(slots);
    const auto eligible = all(layout);
    recency_stamps order(layout);
    std::list<slot_id> model;
    const auto use = [&](const std::vector<slot_id>& used) {
      order.touch(1_pool, used);
      for (const auto slot : used) model.remove(slot);
      model.insert(model.end(), used.begin(), used.end());
    };
    for (std::int32_t s = 0; s < slots; ++s) use({slot_id{slots + s}});
    for (int n = 0; n < 3000; ++n) {
      const auto some = static_cast<slot_id>(
          slots + static_cast<std::int32_t>(below(static_cast<std::size_t>(slots))));
      if (below(40) == 0) use({some});
      if (below(40) == 0) {
        order.erase(some);
        model.remove(some);
        if (below(2) == 0) use({some});
      }
      const auto count = std::min(model.size(), 1 + below(static_cast<std::size_t>(slots)));
      if (count == 0) continue;
      const std::vector<slot_id> oldest(model.begin(),
                                        std::next(model.begin(), static_cast<int>(count)));
      ASSERT_EQ(first(order, 1_pool, eligible, count), oldest) << n;
      if (below(9) == 0) continue;  // chosen, and nothing comes of it
      order.give_up(1_pool, count, oldest.back());
      auto used = oldest;
      if (below(30) == 0 && count < model.size()) used.insert(used.begin(), model.back());
      use(used);
    }
  }
}

// The clock has 2^31 / 64 ticks before it starts anew.
TEST(recency_stamps, order_outlives_the_clock) {
  const auto layout = per_layer(64);
  const auto eligible = all(layout);
  recency_stamps order(layout);
  std::vector<slot_id> every(64);
  for (std::size_t i = 0; i < 64; ++i) every[i] = static_cast<slot_id>(i * 29 % 64);
  order.touch(1_pool, 64_slot);
  const std::vector<slot_id> some{9_slot, 60_slot, 3_slot};
  std::vector<slot_id> expected = every;
  for (const auto slot : some) std::erase(expected, slot);
  expected.insert(expected.end(), some.begin(), some.end());
  constexpr std::uint64_t ticks = (std::uint64_t{1} << 31U) / 64;
  for (std::uint64_t used = 0; used < 2 * ticks; used += 67) {
    order.touch(0_pool, every);
    order.touch(0_pool, some);
    const auto near = used % ticks;
    if (near > 200 && near < ticks - 20'000) continue;
    ASSERT_EQ(first(order, 0_pool, eligible, 64), expected) << used;
  }
  EXPECT_EQ(first(order, 1_pool, eligible, 64), support::slot_ids({64}));
}

// When the clock starts anew, stamps come again that were sorted long ago: here slot 1 is the second to be used, both times.
TEST(recency_stamps, what_was_sorted_ends_with_the_clock) {
  const auto layout = per_layer(4);
  recency_stamps order(layout);
  order.touch(0_pool, support::slot_ids({0, 1, 2, 3}));
  ASSERT_EQ(first(order, 0_pool, all(layout), 1), support::slot_ids({0}));
  const auto used = support::slot_ids({3, 1, 0, 2});
  constexpr std::uint64_t uses_of_a_clock = (std::uint64_t{1} << 31U) / 64 - 128;
  for (std::uint64_t uses = used.size(); uses < uses_of_a_clock; uses += used.size())
    order.touch(0_pool, used);
  order.touch(0_pool, 2_slot);  // with which it starts anew
  EXPECT_EQ(first(order, 0_pool, all(layout), 1), support::slot_ids({3}));
  EXPECT_EQ(first(order, 0_pool, all(layout), 4), used);
}

}  // namespace
}  // namespace hotset::recency_stamps_test
