// SPDX-License-Identifier: Apache-2.0
#include "hotset/order/indexed_heap.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "rank_model.hpp"
#include "written_ids.hpp"

namespace hotset::indexed_heap_test {
namespace {

std::vector<slot_id> first(indexed_heap& heap, pool_id pool, const slot_mask& eligible,
                           std::size_t n) {
  std::vector<slot_id> out(n, no_slot);
  out.resize(heap.select(pool, eligible, out));
  return out;
}

TEST(indexed_heap, repairs_a_raised_rank_where_a_choice_meets_it) {
  const geometry shape{.layers = 2, .experts = 128, .top_k = 2};
  const auto layout = pool_layout::shared(shape, 200).value();
  indexed_heap heap(layout);
  slot_mask eligible(200);
  for (const auto s : each<slot_id>(200)) {
    heap.assign(0_pool, s, {static_cast<std::uint64_t>(s), 0});
    eligible.set(s);
  }
  heap.raise(0_slot, {500, 1});
  EXPECT_EQ(first(heap, 0_pool, eligible, 2), support::slot_ids({1, 2}));
  EXPECT_EQ(first(heap, 0_pool, eligible, 2), support::slot_ids({1, 2}));
  heap.assign(0_pool, 150_slot, {0, 2});
  heap.vacate(1_slot);
  EXPECT_EQ(first(heap, 0_pool, eligible, 3), support::slot_ids({150, 2, 3}));
  EXPECT_EQ(first(heap, 0_pool, eligible, 200).back(), 0);
  EXPECT_EQ(first(heap, 0_pool, eligible, 200).size(), 199U);
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
      support::rank_model model(layout);
      support::random_source random(seed);
      std::uint64_t clock = 0;
      for (int n = 0; n < 4000; ++n) {
        const slot_id slot{random.id_below(static_cast<std::int32_t>(layout.slots()))};
        const auto home = model.home(slot);
        const auto what = random.below(10);
        if (what < 4 && home >= 0) {
          const slot_rank rank{heap.rank(slot).key + random.below(3), ++clock};
          heap.raise(slot, rank);
          model.put(home, slot, rank);
        } else if (what < 6 && home >= 0) {
          const slot_id to{random.id_below(static_cast<std::int32_t>(layout.slots()))};
          if (model.home(to) >= 0) continue;
          model.drop(slot);
          model.put(home, to, heap.rank(slot));
          heap.move(slot, to);
        } else if (what < 9) {
          const auto pool =
              home >= 0 && !random.one_in(4)
                  ? home
                  : pool_id{random.id_below(static_cast<std::int32_t>(layout.pools()))};
          if (model.full(pool)) continue;
          const slot_rank rank{random.below(50), ++clock};
          heap.assign(pool, slot, rank);
          model.put(pool, slot, rank);
        } else {
          heap.vacate(slot);
          model.drop(slot);
        }
        if (n == 2000) {
          heap.transform([](slot_rank r) { return slot_rank{r.key / 2, r.position}; });
          model.halve_keys();
        }
        if (!random.one_in(4)) continue;
        ASSERT_TRUE(model.agrees_with(heap, random)) << "operation " << n;
      }
    }
}

}  // namespace
}  // namespace hotset::indexed_heap_test
