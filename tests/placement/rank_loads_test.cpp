// SPDX-License-Identifier: Apache-2.0
#include "hotset/placement/rank_loads.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/placement/even_packing.hpp"
#include "made_loads.hpp"

namespace rank_loads_test {
namespace {

using namespace hotset;
using hotset::detail::rank_loads;
using hotset_test::made_loads;

rank_loads placed_loads(const placement_shape& shape, const step_loads& loads,
                        const expert_placement& placed) {
  rank_loads out(shape, loads);
  for (const auto e : each<expert_id>(shape.experts)) out.put(e, placed);
  out.find_fullest();
  return out;
}

TEST(rank_loads, cost_what_the_definition_says) {
  const auto shape = placement_shape::of(12, 6, 6).value();
  const auto loads = made_loads(12, 21, 1, 12);
  const auto placed = even_packing(shape, loads.sums());
  const auto found = placed_loads(shape, loads, placed);
  // The unit of loads: a token is 2^k of them.
  const auto unit = 6.0 * static_cast<double>(found.mean()) / static_cast<double>([&] {
                      std::uint64_t all = 0;
                      for (const auto sum : loads.sums()) all += sum;
                      return all;
                    }());
  EXPECT_DOUBLE_EQ(static_cast<double>(found.cost()) / unit,
                   hotset_test::cost_of(shape, placed, loads));
}

TEST(rank_loads, follow_changes_of_the_placement) {
  const auto shape = placement_shape::of(10, 5, 5).value();
  const auto loads = made_loads(10, 33, 2);
  auto placed = even_packing(shape, loads.sums());
  auto followed = placed_loads(shape, loads, placed);
  splitmix64 random(7);
  for (int n = 0; n < 200; ++n) {
    const auto i = random.below(placed.size());
    const auto j = random.below(placed.size());
    const auto e = placed[i];
    const auto f = placed[j];
    followed.take(e, placed);
    if (e != f) followed.take(f, placed);
    std::swap(placed[i], placed[j]);
    followed.put(e, placed);
    if (e != f) followed.put(f, placed);
    followed.find_fullest();
    const auto anew = placed_loads(shape, loads, placed);
    ASSERT_EQ(followed.cost(), anew.cost()) << "after " << n;
    for (std::int32_t r = 0; r < shape.ranks; ++r)
      ASSERT_TRUE(std::ranges::equal(followed.load(r), anew.load(r))) << "after " << n;
  }
}

TEST(rank_loads, know_the_fullest_of_the_other_ranks) {
  for (const std::int32_t ranks : {1, 2, 3, 4, 5, 8}) {
    const auto shape = placement_shape::of(ranks * 3, 0, ranks).value();
    const auto loads = made_loads(shape.experts, 40, 3);
    const auto found = placed_loads(shape, loads, even_packing(shape, loads.sums()));
    rank_loads::others others;
    for (std::int32_t p = 0; p < ranks; ++p)
      for (std::int32_t q = 0; q < ranks; ++q) {
        found.find_others(p, q, -1, others);
        for (std::size_t s = 0; s < found.steps(); ++s) {
          std::vector<std::int32_t> rest{0, 0};
          for (std::int32_t r = 0; r < ranks; ++r)
            if (r != p && r != q) rest.push_back(found.load(r)[s]);
          std::ranges::sort(rest, std::greater{});
          ASSERT_EQ(others.fullest[s], rest[0]) << ranks << ' ' << p << ' ' << q << ' ' << s;
          ASSERT_EQ(others.second[s], rest[1]) << ranks << ' ' << p << ' ' << q << ' ' << s;
        }
      }
  }
}

TEST(rank_loads, hold_steps_of_any_size) {
  const auto shape = placement_shape::of(2, 0, 2).value();
  for (const std::uint32_t most : {0U, 1U, 1000U, 1U << 20U, 1U << 31U, ~0U}) {
    const auto loads = step_loads::of(2, {most, most, most, 0}).value();
    const auto found = placed_loads(shape, loads, placement_in_order(shape));
    EXPECT_GE(found.cost(), 0) << most;
    EXPECT_LE(found.cost(), std::int64_t{5} << 20U) << most;
    if (most > 0) {
      EXPECT_GE(found.cost(), std::int64_t{5} << 17U) << most;
    }
  }
}

}  // namespace
}  // namespace rank_loads_test
