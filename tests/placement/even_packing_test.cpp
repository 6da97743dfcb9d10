// SPDX-License-Identifier: Apache-2.0
#include "hotset/placement/even_packing.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/numbers/splitmix64.hpp"

namespace even_packing_test {
namespace {

using namespace hotset;
using testing::ElementsAreArray;

std::vector<int> numbers(const expert_placement& placed) {
  std::vector<int> out;
  for (const auto e : placed) out.push_back(number(e));
  return out;
}

/// The example in the README of deepseek-ai/EPLB: its two layers, 12 experts in 4 groups, 16 slots, 2 nodes, 8 ranks.
TEST(even_packing, equals_the_published_example) {
  const auto shape = placement_shape::of(12, 4, 8, 2, 4).value();
  const std::vector<std::uint64_t> first{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
  const std::vector<std::uint64_t> second{20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27};
  EXPECT_THAT(numbers(even_packing(shape, first)),
              ElementsAreArray({5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1}));
  EXPECT_THAT(numbers(even_packing(shape, second)),
              ElementsAreArray({7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}));
}

/// The rule of numbers with a fraction, as numpy's port of the original writes it.
std::vector<int> naive(const std::vector<double>& loads, std::size_t slots, std::size_t ranks) {
  std::vector<std::size_t> experts(loads.size());
  std::iota(experts.begin(), experts.end(), std::size_t{0});
  std::vector<double> count(loads.size(), 1);
  while (experts.size() < slots) {
    std::size_t heaviest = 0;
    for (std::size_t e = 1; e < loads.size(); ++e)
      if (loads[e] / count[e] > loads[heaviest] / count[heaviest]) heaviest = e;
    experts.push_back(heaviest);
    ++count[heaviest];
  }
  std::vector<std::size_t> order(slots);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto weight = [&](std::size_t i) { return loads[experts[i]] / count[experts[i]]; };
  std::ranges::stable_sort(order, [&](auto a, auto b) { return weight(a) > weight(b); });
  std::vector<std::vector<int>> out(ranks);
  std::vector<double> sums(ranks, 0);
  for (const auto i : order) {
    std::size_t lightest = ranks;
    for (std::size_t r = 0; r < ranks; ++r)
      if (out[r].size() < slots / ranks && (lightest == ranks || sums[r] < sums[lightest]))
        lightest = r;
    out[lightest].push_back(static_cast<int>(experts[i]));
    sums[lightest] += weight(i);
  }
  std::vector<int> flat;
  for (const auto& rank : out) flat.insert(flat.end(), rank.begin(), rank.end());
  return flat;
}

TEST(even_packing, equals_the_rule_in_floating_point) {
  splitmix64 random(5);
  for (int n = 0; n < 200; ++n) {
    const auto ranks = static_cast<std::int32_t>(2 + random.below(5));
    const auto wide = static_cast<std::int32_t>(2 + random.below(4));
    const auto slots = ranks * wide;
    const auto redundant =
        static_cast<std::int32_t>(random.below(static_cast<unsigned>(slots) / 2));
    const auto experts = slots - redundant;
    if (wide > experts) continue;
    std::vector<std::uint64_t> loads;
    for (std::int32_t e = 0; e < experts; ++e) loads.push_back(random.below(100'000));
    const auto shape = placement_shape::of(experts, redundant, ranks).value();
    EXPECT_EQ(numbers(even_packing(shape, loads)),
              naive({loads.begin(), loads.end()}, static_cast<std::size_t>(slots),
                    static_cast<std::size_t>(ranks)))
        << "case " << n;
  }
}

TEST(even_packing, keeps_groups_in_a_node) {
  const auto shape = placement_shape::of(16, 8, 4, 2, 4).value();
  std::vector<std::uint64_t> loads(16);
  splitmix64 random(9);
  for (auto& load : loads) load = random.below(1000);
  const auto placed = even_packing(shape, loads);
  EXPECT_FALSE(check_placement(shape, placed));
  std::vector<std::set<int>> nodes_of_group(4);
  for (std::size_t slot = 0; slot < placed.size(); ++slot)
    nodes_of_group[index_of(placed[slot]) / 4].insert(shape.rank_of(slot) / 2);
  for (const auto& nodes : nodes_of_group) EXPECT_EQ(nodes.size(), 1U);
}

TEST(even_packing, gives_unused_experts_a_slot) {
  const auto shape = placement_shape::of(8, 4, 4).value();
  EXPECT_FALSE(check_placement(shape, even_packing(shape, std::vector<std::uint64_t>(8, 0))));
}

TEST(even_packing, knows_the_start_of_engines) {
  EXPECT_THAT(numbers(placement_in_order({4, 2, 3, 1, 1})), ElementsAreArray({0, 1, 2, 3, 0, 1}));
}

}  // namespace
}  // namespace even_packing_test
