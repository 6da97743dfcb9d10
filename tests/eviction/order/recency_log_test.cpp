// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/order/recency_log.hpp"

#include <algorithm>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "written_ids.hpp"

namespace hotset::recency_log_test {
namespace {

using slots = std::vector<slot_id>;

pool_layout layers_of(std::int32_t layers, std::int32_t slots_each) {
  return pool_layout::per_layer({.layers = layers, .experts = 200, .top_k = 1}, slots_each).value();
}
slot_mask all_of(const pool_layout& layout) {
  slot_mask mask(layout.slots());
  for (std::size_t s = 0; s < layout.slots(); ++s) mask.set(static_cast<slot_id>(s));
  return mask;
}
slots select(recency_log& log, pool_id pool, const slot_mask& eligible, std::size_t most) {
  slots out(most);
  out.resize(log.select(pool, eligible, out));
  return out;
}

TEST(recency_log, a_used_candidate_is_no_longer_a_victim) {
  const auto layout = layers_of(1, 8);
  const auto all = all_of(layout);
  recency_log log(layout);
  log.touch(0_pool, support::slot_ids({0, 1, 2, 3, 4}));
  EXPECT_EQ(select(log, 0_pool, all, 2), support::slot_ids({0, 1}));
  log.touch(0_pool, support::slot_ids({1, 3}));
  EXPECT_EQ(select(log, 0_pool, all, 3), support::slot_ids({0, 2, 4}));
}

// A quota change compacts the log: from then on it searches beyond its first range for its slots.
TEST(recency_log, keeps_slots_that_another_pool_lent) {
  const auto layout = layers_of(2, 3);
  const auto all = all_of(layout);
  recency_log log(layout);
  log.touch(0_pool, support::slot_ids({0}));
  log.take_place(0_slot, 4_slot);
  for (int n = 0; n < 100; ++n)
    log.touch(0_pool, support::slot_ids({1, 2}));  // a log with few places
  EXPECT_EQ(select(log, 0_pool, all, 8), support::slot_ids({4, 1, 2}));
}

/// Pools of each size behave like lists, with compaction, skipped slots, ranking and wrap-around. Seeds differ in the
/// number of protected slots.
void compare_with_lists(std::int32_t slots_each, std::uint64_t seed) {
  constexpr std::int32_t pools = 2;
  const auto layout = layers_of(pools, slots_each);
  const auto each = static_cast<std::size_t>(slots_each);
  std::vector<slots> owned(pools);
  for (std::size_t s = 0; s < pools * each; ++s) owned[s / each].push_back(static_cast<slot_id>(s));
  recency_log log(layout);
  std::vector<std::list<slot_id>> model(pools);
  auto eligible = all_of(layout);
  std::uint64_t random = seed;
  const auto draw = [&](std::uint64_t below) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    return (random >> 33U) % below;
  };
  for (int n = 0; n < 3000; ++n) {
    const auto p = static_cast<std::size_t>(draw(pools));
    const auto pool = static_cast<pool_id>(p);
    auto& order = model[p];
    const auto any = [&] { return owned[p][draw(owned[p].size())]; };
    const auto use = [&](const slots& used) {
      std::vector<fill> filled;
      for (const auto s : used)
        if (draw(8) > 0) filled.push_back({.slot = s});
      log.replace(pool, filled);
      log.touch(pool, used);
      for (const auto s : used) {
        order.remove(s);
        order.push_back(s);
      }
    };
    const auto what = draw(16);
    if (what < 6) {
      slots used;
      for (auto count = 1 + draw(std::min<std::uint64_t>(4, each)); count-- > 0;)
        if (const auto s = any(); std::ranges::find(used, s) == used.end()) used.push_back(s);
      use(used);
    } else if (what < 11) {
      const auto most = draw(draw(4) == 0 ? each + 3 : 4);
      slots expected;
      for (const auto s : order)
        if (expected.size() < most && eligible.test(s)) expected.push_back(s);
      const auto chosen = select(log, pool, eligible, most);
      ASSERT_EQ(chosen, expected) << "operation " << n;
      if (what < 9 && !chosen.empty()) use(chosen);
    } else if (what < 12) {
      const auto s = any();
      log.erase(s);
      order.remove(s);
    } else if (what < 13) {
      const auto from = any();
      const auto to = any();
      if (!log.contains(from) || log.contains(to)) continue;
      log.take_place(from, to);
      std::ranges::replace(order, from, to);
    } else if (what < 14 && owned[p].size() > 1) {
      // A quota change: the slot's content moves to another slot, and the other pool gets the slot.
      const auto from = any();
      const auto theirs = owned[1 - p][draw(owned[1 - p].size())];
      const auto to = draw(2) == 0 ? any() : theirs;
      if (log.contains(from) && !log.contains(to)) {
        log.take_place(from, to);
        std::ranges::replace(order, from, to);
        if (to == theirs) {
          std::erase(owned[1 - p], to);
          owned[p].push_back(to);
        }
      } else {
        log.erase(from);
        order.remove(from);
      }
      std::erase(owned[p], from);
      owned[1 - p].push_back(from);
      log.touch(static_cast<pool_id>(1 - p), from);
      model[1 - p].push_back(from);
    } else {
      for (std::size_t flips = each / 16; flips-- > 0;) eligible.assign(any(), draw(6) > seed % 6);
      eligible.assign(any(), draw(6) > seed % 6);
    }
  }
}

TEST(recency_log, agrees_with_std_list) {
  for (const std::int32_t size : {1, 2, 5, 17, 64, 150})
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE("slots " + std::to_string(size) + ", seed " + std::to_string(seed));
      compare_with_lists(size, seed);
    }
}

}  // namespace
}  // namespace hotset::recency_log_test
