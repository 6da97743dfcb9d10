// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/budget/idle_bytes.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/planning/budget/equimarginal.hpp"
#include "hotset/planning/curve/sampled_miss_curve.hpp"
#include "random_source.hpp"

namespace hotset::idle_bytes_test {
namespace {

using testing::ElementsAre;

using units_list = std::vector<std::uint64_t>;

struct question {
  std::vector<sampled_miss_curve> curves;
  std::vector<memory_consumer> consumers;
  std::uint64_t total = 0;
  units_list start;
};

/// Curves with flat parts, unequal units, floors and caps.
question random_question(std::uint64_t seed) {
  support::random_source random(seed);
  question q;
  const auto count = 1 + random.below(4);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::vector<double> misses(2 + random.below(7));
    double left = 0;
    for (auto m = misses.rbegin(); m != misses.rend(); ++m) {
      *m = left;
      if (random.one_in(2)) left += static_cast<double>(1 + random.below(5));
    }
    q.curves.emplace_back(misses);
  }
  for (const auto& curve : q.curves) {
    memory_consumer c{.curve = curve,
                      .unit_bytes = 1 + random.below(5),
                      .seconds_per_miss = static_cast<double>(random.below(4)),
                      .min_units = random.below(3)};
    c.max_units = c.min_units + random.below(8);
    q.start.push_back(c.min_units + random.below(c.cap() - c.min_units + 1));
    q.total += q.start.back() * c.unit_bytes;
    q.consumers.push_back(c);
  }
  q.total += random.below(12);
  return q;
}

std::uint64_t bytes_of(const question& q, const units_list& units) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < units.size(); ++i) bytes += units[i] * q.consumers[i].unit_bytes;
  return bytes;
}

/// Tries every division: one that takes from a consumer only what saves it nothing, and with which another misses less.
bool has_idle_bytes(const question& q, const units_list& units) {
  units_list other(units.size());
  const auto search = [&](const auto& self, std::size_t i) -> bool {
    if (i < units.size()) {
      const auto& c = q.consumers[i];
      for (other[i] = c.min_units; other[i] <= c.cap(); ++other[i])
        if (c.seconds(other[i]) <= c.seconds(units[i]) && self(self, i + 1)) return true;
      return false;
    }
    if (bytes_of(q, other) > q.total) return false;
    for (std::size_t j = 0; j < units.size(); ++j)
      if (q.consumers[j].seconds(other[j]) < q.consumers[j].seconds(units[j])) return true;
    return false;
  };
  return search(search, 0);
}

TEST(without_idle_bytes, no_byte_lies_where_it_saves_nothing_while_another_could_use_it) {
  int moved = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const auto q = random_question(seed);
    const auto found = without_idle_bytes(q.consumers, q.start, q.total);
    ASSERT_LE(bytes_of(q, found), q.total) << "seed " << seed;
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_GE(found[i], q.consumers[i].min_units) << "seed " << seed;
      ASSERT_LE(found[i], q.consumers[i].cap()) << "seed " << seed;
      ASSERT_LE(q.consumers[i].seconds(found[i]), q.consumers[i].seconds(q.start[i]))
          << "nobody loses, seed " << seed;
    }
    ASSERT_FALSE(has_idle_bytes(q, found)) << "seed " << seed;
    moved += has_idle_bytes(q, q.start) ? 1 : 0;
  }
  EXPECT_GT(moved, 1000);
}

// A piece of a hull that no longer fits takes what units do, and may end where its curve is flat.
TEST(without_idle_bytes, hulls_leave_some_behind) {
  int idle = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const auto q = random_question(seed);
    const auto found = equimarginal().allocate(q.consumers, q.total);
    ASSERT_TRUE(found);
    idle += has_idle_bytes(q, found->units) ? 1 : 0;
    ASSERT_FALSE(has_idle_bytes(q, without_idle_bytes(q.consumers, found->units, q.total)));
  }
  EXPECT_GT(idle, 0);
}

// 13 GiB beside the cache while 27 of 32 layers could hold one expert more.
TEST(without_idle_bytes, what_a_cap_leaves_over_goes_to_as_many_layers_as_it_can) {
  const sampled_miss_curve line({8, 7, 6, 5, 4, 3, 2, 1, 0});
  const std::vector<memory_consumer> layers(
      5, {.curve = line, .unit_bytes = 10, .seconds_per_miss = 0.1, .min_units = 2});
  EXPECT_THAT(without_idle_bytes(layers, units_list(5, 6), 339), ElementsAre(7, 7, 7, 6, 6))
      << "one each: all lose as much, and none is given two";
  EXPECT_THAT(without_idle_bytes(layers, units_list(5, 6), 309), ElementsAre(6, 6, 6, 6, 6));
  EXPECT_THAT(without_idle_bytes(layers, units_list(5, 6), 10'000), ElementsAre(8, 8, 8, 8, 8));
}

TEST(without_idle_bytes, looks_beyond_a_flat_part) {
  const sampled_miss_curve cliff({9, 9, 9, 0});
  const sampled_miss_curve slope({4, 3, 2, 2});
  const std::vector<memory_consumer> two = {
      {.curve = cliff, .unit_bytes = 1, .seconds_per_miss = 1},
      {.curve = slope, .unit_bytes = 1, .seconds_per_miss = 1}};
  EXPECT_THAT(without_idle_bytes(two, {0, 3}, 3), ElementsAre(0, 2)) << "one unit saves nothing";
  EXPECT_THAT(without_idle_bytes(two, {2, 0}, 3), ElementsAre(3, 0));
  EXPECT_THAT(without_idle_bytes(two, {2, 3}, 5), ElementsAre(3, 2));
}

}  // namespace
}  // namespace hotset::idle_bytes_test
