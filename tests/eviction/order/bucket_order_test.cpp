// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/order/bucket_order.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "rank_model.hpp"
#include "written_ids.hpp"

namespace hotset::bucket_order_test {
namespace {

/// Keys in steps of `width`, the last bucket without an end.
struct steps {
  std::uint64_t width = 1;
  std::size_t count = 1;
  std::size_t operator()(std::uint64_t key) const noexcept {
    return std::min(static_cast<std::size_t>(key / width), count - 1);
  }
  std::size_t buckets() const noexcept { return count; }
};

std::vector<slot_id> first(bucket_order<steps>& order, pool_id pool, const slot_mask& eligible,
                           std::size_t n) {
  std::vector<slot_id> out(n, no_slot);
  out.resize(order.select(pool, eligible, out));
  return out;
}

TEST(bucket_order, repairs_a_raised_rank_during_a_choice) {
  const geometry shape{.layers = 1, .experts = 40, .top_k = 2};
  bucket_order<steps> order(pool_layout::shared(shape, 30).value(), {2, 8});
  slot_mask eligible(30);
  for (const auto s : each<slot_id>(4)) {
    order.put(0_pool, s, {static_cast<std::uint64_t>(s), static_cast<std::uint64_t>(s) + 1});
    eligible.set(s);
  }
  order.raise(0_slot, {2, 5});  // to the next bucket
  EXPECT_EQ(first(order, 0_pool, eligible, 2), support::slot_ids({1, 2}));
  EXPECT_EQ(first(order, 0_pool, eligible, 4), support::slot_ids({1, 2, 0, 3}));
  order.raise(2_slot, {3, 6});  // last within its bucket
  EXPECT_EQ(first(order, 0_pool, eligible, 4), support::slot_ids({1, 0, 3, 2}));
  order.drop(3_slot);
  order.put(0_pool, 3_slot, {0, 7});  // first of all
  EXPECT_EQ(first(order, 0_pool, eligible, 4), support::slot_ids({3, 1, 0, 2}));
  eligible.reset(1_slot);
  EXPECT_EQ(first(order, 0_pool, eligible, 2), support::slot_ids({3, 0}));
  EXPECT_TRUE(first(order, 0_pool, eligible, 0).empty());
}

std::vector<slot_id> all_of(bucket_order<steps>& order, pool_id pool, std::size_t slots) {
  slot_mask eligible(slots);
  for (const auto s : each<slot_id>(slots)) eligible.set(s);
  return first(order, pool, eligible, slots);
}

/// Residents of a pool get other ranks at once; their positions are updated afterwards.
void replace(bucket_order<steps>& order, support::rank_model& model, pool_id pool,
             std::span<const slot_id> slots, std::uint64_t least, std::uint64_t& clock,
             support::random_source& random) {
  std::vector<std::uint64_t> keys(model.slots());
  for (const auto s : slots) keys[index_of(s)] = least + random.below(random.one_in(3) ? 6 : 60);
  const auto key_of = [&](slot_id s) { return keys[index_of(s)]; };
  const auto highest = clock + 2 * slots.size() + 3;
  order.leave(pool, slots, std::identity{});
  order.put_again(pool, slots, std::identity{}, key_of, highest);
  for (const auto s : slots) {
    const slot_rank rank{key_of(s), clock += 2};
    order.raise(s, rank);
    model.put(pool, s, rank);
  }
  clock = highest;
}
/// Changes the ranks of a few: the lowest, or any.
void replace_some(bucket_order<steps>& order, support::rank_model& model, pool_id pool,
                  std::uint64_t& clock, support::random_source& random) {
  auto slots = all_of(order, pool, model.slots());
  const auto count = std::min(slots.size(), 1 + random.below(8));
  if (random.one_in(2))
    for (auto& s : std::span(slots).first(count)) std::swap(s, slots[random.below(slots.size())]);
  replace(order, model, pool, std::span(slots).first(count), 0, clock, random);
}

// The highest ranks become low again and again: more of them than a front holds.
TEST(bucket_order, gives_the_upper_half_of_a_full_front_back) {
  const geometry shape{.layers = 1, .experts = 200, .top_k = 2};
  const auto layout = pool_layout::shared(shape, 180).value();
  for (const steps buckets : {steps{1, 300}, steps{7, 40}}) {
    bucket_order<steps> order(layout, buckets);
    support::rank_model model(layout);
    support::random_source random(buckets.count);
    std::uint64_t clock = 0;
    const auto raise = [&](slot_id slot, std::uint64_t by) {
      const slot_rank rank{order.rank(slot).key + by, ++clock};
      order.raise(slot, rank);
      model.put(0_pool, slot, rank);
    };
    for (const auto s : each<slot_id>(layout.slots())) {
      const slot_rank rank{100, ++clock};
      order.put(0_pool, s, rank);
      model.put(0_pool, s, rank);
    }
    for (int n = 0; n < 1500; ++n) {
      const auto slots = all_of(order, 0_pool, layout.slots());
      for (int m = 0; m < 8; ++m)
        raise(slots[random.below(slots.size())], random.one_in(2) ? random.below(3) : 60);
      const bool lowest = random.one_in(4);
      const auto chosen = std::span(slots);
      const auto least = static_cast<std::uint64_t>(199 - n % 200);  // lower each time
      replace(order, model, 0_pool, lowest ? chosen.first(5) : chosen.last(8), least, clock,
              random);
      ASSERT_TRUE(model.agrees_with(order, random)) << "operation " << n;
    }
  }
}

// One key per bucket, several, and all; scanned pools and others; slots move between pools.
TEST(bucket_order, agrees_with_a_sorted_map) {
  const geometry shape{.layers = 3, .experts = 60, .top_k = 2};
  const std::vector<std::int64_t> unequal{12, 36, 26};
  const pool_layout layouts[] = {
      pool_layout::shared(shape, 50).value(), pool_layout::shared(shape, 170).value(),
      pool_layout::per_layer(shape, 12).value(), pool_layout::per_layer(shape, 13).value(),
      pool_layout::per_layer(shape, unequal).value()};
  for (const auto& layout : layouts)
    for (const steps buckets : {steps{1, 200}, steps{7, 20}, steps{1, 3}, steps{1, 1}}) {
      SCOPED_TRACE(std::to_string(layout.pools()) + " pools, " + std::to_string(buckets.count) +
                   " buckets of " + std::to_string(buckets.width));
      bucket_order<steps> order(layout, buckets);
      support::rank_model model(layout);
      support::random_source random(buckets.count);
      std::uint64_t clock = 0;
      for (int n = 0; n < 20000; ++n) {
        const slot_id slot{random.id_below(static_cast<std::int32_t>(layout.slots()))};
        if (model.home(slot) < 0) {
          const pool_id pool{random.id_below(static_cast<std::int32_t>(layout.pools()))};
          if (model.full(pool)) continue;
          const slot_rank rank{random.below(60), ++clock};
          order.put(pool, slot, rank);
          model.put(pool, slot, rank);
        } else if (random.one_in(8)) {
          const slot_id to{random.id_below(static_cast<std::int32_t>(layout.slots()))};
          if (model.home(to) >= 0) continue;
          const auto home = model.home(slot);
          model.drop(slot);
          model.put(home, to, order.rank(slot));
          order.move(slot, to);
        } else if (random.one_in(n / 2500 % 2 == 0 ? 2 : 8)) {
          replace_some(order, model, model.home(slot), clock, random);
        } else if (random.below(10) < 7) {
          const slot_rank rank{order.rank(slot).key + random.below(3), ++clock};
          order.raise(slot, rank);
          model.put(model.home(slot), slot, rank);
        } else if (random.one_in(3)) {
          order.drop(slot);
          model.drop(slot);
        }
        if (n % 5000 == 4999) {
          order.transform([](slot_rank r) { return slot_rank{r.key / 2, r.position}; });
          model.halve_keys();
        }
        if (!random.one_in(4)) continue;
        ASSERT_TRUE(model.agrees_with(order, random)) << "operation " << n;
      }
    }
}

}  // namespace
}  // namespace hotset::bucket_order_test
