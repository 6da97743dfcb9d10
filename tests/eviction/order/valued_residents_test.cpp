// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/order/valued_residents.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::valued_residents_test {
namespace {

constexpr geometry shape{.layers = 4, .experts = 20, .top_k = 2};

struct held {
  expert_key key;
  std::uint64_t position = 0;
};

/// All residents of a pool, sorted.
std::vector<slot_id> sorted(const std::map<slot_id, held>& all, const pool_layout& layout,
                            pool_id pool, const std::vector<std::vector<float>>& values,
                            layer_id running, const std::vector<float>& of_running,
                            const slot_mask& eligible) {
  std::vector<std::tuple<double, std::uint64_t, slot_id>> order;
  for (const auto& [slot, one] : all) {
    if (layout.pool_of_layer(one.key.layer) != pool || !eligible.test(slot)) continue;
    const auto distance = (one.key.layer - running - 1 + 8) % 4 + 1;
    const auto factor = static_cast<float>(std::pow(0.6, distance / 4.0));
    const auto e = static_cast<std::size_t>(one.key.expert);
    const auto value = one.key.layer == running && !of_running.empty()
                           ? of_running[e]
                           : values[index_of(one.key.layer)][e];
    order.emplace_back(double{value} * double{factor}, one.position, slot);
  }
  std::ranges::sort(order);
  std::vector<slot_id> out;
  for (const auto& [worth, position, slot] : order) out.push_back(slot);
  return out;
}

void walk(const pool_layout& layout, std::uint64_t seed) {
  support::random_source random(seed);
  valued_residents residents(layout, 0.6);
  std::map<slot_id, held> naive;
  std::uint64_t clock = 0;
  std::vector<std::vector<float>> values(4, std::vector<float>(20, 0.0F));
  std::vector<slot_id> free;
  for (const auto s : each<slot_id>(layout.slots())) free.push_back(s);
  const auto few = [&] { return static_cast<float>(random.below(6)) / 8.0F; };  // many ties
  for (int n = 0; n < 3000; ++n) {
    const auto what = random.below(6);
    if (what == 0) {
      const auto l = static_cast<std::size_t>(random.below(4));
      for (auto& v : values[l]) v = few();
      residents.set_values(static_cast<layer_id>(l), values[l]);
    } else if (what <= 2 && !free.empty()) {
      const expert_key key{static_cast<layer_id>(random.below(4)),
                           static_cast<expert_id>(random.below(20))};
      const bool there =
          std::ranges::any_of(naive, [&](const auto& one) { return one.second.key == key; });
      const auto at = std::ranges::find_if(free, [&](slot_id s) {
        return layout.pool_of_slot(s) == layout.pool_of_layer(key.layer);
      });
      if (there || at == free.end()) continue;
      residents.fill(*at, key, 0_precision);
      naive[*at] = {key, ++clock};
      free.erase(at);
    } else if (what == 3 && !naive.empty()) {
      const auto slot =
          std::next(naive.begin(), static_cast<std::ptrdiff_t>(random.below(naive.size())))->first;
      if (random.below(2) == 0) {
        residents.use(slot);
        naive[slot].position = ++clock;
        continue;
      }
      std::vector<slot_id> of_layer;
      for (const auto& [other, one] : naive)
        if (one.key.layer == naive[slot].key.layer && random.below(3) != 0)
          of_layer.push_back(other);
      residents.use(of_layer);
      for (const auto other : of_layer) naive[other].position = ++clock;
    } else if (what == 4 && !naive.empty() && random.below(2) == 0) {
      const auto slot =
          std::next(naive.begin(), static_cast<std::ptrdiff_t>(random.below(naive.size())))->first;
      if (!free.empty() && random.below(2) == 0 && layout.pools() == 1) {
        residents.move(slot, free.back());
        naive[free.back()] = naive[slot];
        free.back() = slot;
      } else {
        residents.vacate(slot);
        free.push_back(slot);
      }
      naive.erase(slot);
    } else {
      slot_mask eligible(layout.slots());
      for (const auto& [slot, one] : naive) eligible.assign(slot, random.below(4) != 0);
      const auto running = static_cast<layer_id>(random.below(5)) - 1;
      std::vector<float> now;
      if (running >= 0 && random.below(2) == 0)
        for (int e = 0; e < 20; ++e) now.push_back(few());
      for (const auto pool : each<pool_id>(layout.pools())) {
        const auto wanted = sorted(naive, layout, pool, values, running, now, eligible);
        std::vector<slot_id> out(random.below(12));
        out.resize(residents.select(pool, running, now, eligible, out));
        ASSERT_LE(out.size(), wanted.size());
        ASSERT_TRUE(std::equal(out.begin(), out.end(), wanted.begin())) << "operation " << n;
        // Sometimes they all leave, sometimes some, sometimes the plan is aborted; something else may leave before.
        const auto leave = random.below(3);
        if (out.size() < wanted.size() && random.below(2) == 0)
          out.insert(out.begin(), wanted[out.size()]);
        for (const auto slot : out) {
          if (leave == 0 || (leave == 1 && random.below(3) == 0)) continue;
          residents.vacate(slot);
          naive.erase(slot);
          free.push_back(slot);
        }
      }
    }
  }
}

TEST(valued_residents, as_sorting_all_of_them_in_one_pool) {
  for (const std::int64_t slots : {30, 65})
    for (std::uint64_t seed = 1; seed <= 5; ++seed)
      walk(pool_layout::shared(shape, slots).value(), seed);
}
TEST(valued_residents, as_sorting_all_of_them_a_pool_a_layer) {
  for (std::uint64_t seed = 11; seed <= 15; ++seed)
    walk(pool_layout::per_layer(shape, 9).value(), seed);
}

TEST(valued_residents, all_that_are_eligible_are_found_once) {
  const auto layout = pool_layout::shared(shape, 6).value();
  valued_residents residents(layout, 0.6);
  slot_mask eligible(6);
  for (const auto s : each<slot_id>(4)) {
    residents.fill(s, {layer_id{number(s) % 2}, expert_id{number(s)}}, 0_precision);
    eligible.set(s);
  }
  eligible.reset(2_slot);
  std::vector<slot_id> out(6, no_slot);
  out.resize(residents.select(0_pool, 0_layer, {}, eligible, out));
  std::ranges::sort(out);
  EXPECT_EQ(out, support::slot_ids({0, 1, 3}));
}

}  // namespace
}  // namespace hotset::valued_residents_test
