// SPDX-License-Identifier: Apache-2.0
#include "hotset/residency/indexed_heap.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace hotset {
namespace {

std::vector<slot_id> first(indexed_heap& heap, pool_id pool, const slot_mask& eligible,
                           std::size_t n) {
  std::vector<slot_id> out(n, no_slot);
  out.resize(heap.select(pool, eligible, out));
  return out;
}

TEST(slot_rank, orders_by_key_then_position) {
  EXPECT_LT((slot_rank{1, 9}), (slot_rank{2, 0}));
  EXPECT_LT((slot_rank{1, 8}), (slot_rank{1, 9}));
  EXPECT_FALSE((slot_rank{1, 9}) < (slot_rank{1, 9}));
  EXPECT_LT((slot_rank{~std::uint64_t{0}, 3}), vacant_rank);
}

TEST(indexed_heap, repairs_a_raised_rank_where_a_choice_meets_it) {
  const geometry shape{.layers = 2, .experts = 128, .top_k = 2};
  const auto layout = pool_layout::shared(shape, 200).value();
  indexed_heap heap(layout);
  slot_mask eligible(200);
  for (slot_id s = 0; s < 200; ++s) {
    heap.assign(0, s, {static_cast<std::uint64_t>(s), 0});
    eligible.set(s);
  }
  heap.raise(0, {500, 1});
  EXPECT_EQ(first(heap, 0, eligible, 2), (std::vector<slot_id>{1, 2}));
  EXPECT_EQ(first(heap, 0, eligible, 2), (std::vector<slot_id>{1, 2}));
  heap.assign(0, 150, {0, 2});
  heap.vacate(1);
  EXPECT_EQ(first(heap, 0, eligible, 3), (std::vector<slot_id>{150, 2, 3}));
  EXPECT_EQ(first(heap, 0, eligible, 200).back(), 0);
  EXPECT_EQ(first(heap, 0, eligible, 200).size(), 199U);
}

// Scanned pools, ordered pools, and a mixture; slots wander between pools.
TEST(indexed_heap, agrees_with_a_sorted_map) {
  const geometry shape{.layers = 3, .experts = 150, .top_k = 2};
  const std::vector<std::int64_t> unequal{40, 90, 20};
  const geometry narrow{.layers = 3, .experts = 30, .top_k = 2};
  const pool_layout layouts[] = {pool_layout::shared(shape, 150).value(),
                                 pool_layout::per_layer(shape, unequal).value(),
                                 pool_layout::per_layer(narrow, 12).value()};
  for (const auto& layout : layouts)
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE(std::to_string(layout.pools()) + " pools, seed " + std::to_string(seed));
      indexed_heap heap(layout);
      std::vector<std::map<std::pair<std::uint64_t, std::uint64_t>, slot_id>> model(layout.pools());
      std::vector<int> home(layout.slots(), -1);
      std::uint64_t random = seed;
      const auto below = [&](std::uint64_t n) {
        random = random * 6364136223846793005U + 1442695040888963407U;
        return (random >> 33U) % n;
      };
      slot_mask eligible(layout.slots());
      std::uint64_t clock = 0;
      for (int n = 0; n < 4000; ++n) {
        const auto at = below(layout.slots());
        const auto s = static_cast<slot_id>(at);
        const auto what = below(10);
        const auto forget = [&] {
          if (home[at] < 0) return;
          const auto r = heap.rank(s);
          model[static_cast<std::size_t>(home[at])].erase({r.key, r.position});
        };
        if (what < 5 && home[at] >= 0) {
          const auto old = heap.rank(s);
          forget();
          const slot_rank rank{old.key + below(3), ++clock};
          heap.raise(s, rank);
          model[static_cast<std::size_t>(home[at])][{rank.key, rank.position}] = s;
        } else if (what < 9) {
          const auto pool = home[at] >= 0 && below(4) != 0 ? static_cast<std::size_t>(home[at])
                                                           : below(layout.pools());
          if (model[pool].size() >= layout.most_slots(static_cast<pool_id>(pool))) continue;
          forget();
          const slot_rank rank{below(50), ++clock};
          heap.assign(static_cast<pool_id>(pool), s, rank);
          home[at] = static_cast<int>(pool);
          model[pool][{rank.key, rank.position}] = s;
        } else {
          forget();
          heap.vacate(s);
          home[at] = -1;
        }
        if (n == 2000) {
          heap.transform([](slot_rank r) { return slot_rank{r.key / 2, r.position}; });
          for (auto& pool : model) {
            std::map<std::pair<std::uint64_t, std::uint64_t>, slot_id> halved;
            for (const auto& [rank, slot] : pool) halved[{rank.first / 2, rank.second}] = slot;
            pool = std::move(halved);
          }
        }
        if (below(4) != 0) continue;
        eligible.clear();
        for (slot_id e = 0; e < static_cast<slot_id>(layout.slots()); ++e)
          eligible.assign(e, below(5) != 0);
        for (std::size_t pool = 0; pool < layout.pools(); ++pool) {
          std::vector<slot_id> expected;
          for (const auto& [rank, slot] : model[pool])
            if (eligible.test(slot)) expected.push_back(slot);
          const auto wanted = below(4) == 0 ? layout.slots() : 1 + below(9);
          if (expected.size() > wanted) expected.resize(wanted);
          ASSERT_EQ(first(heap, static_cast<pool_id>(pool), eligible, wanted), expected);
        }
      }
    }
}

}  // namespace
}  // namespace hotset
