// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/budget/even_shares.hpp"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "budget_samples.hpp"
#include "hotset/planning/budget/equimarginal.hpp"
#include "hotset/planning/curve/miss_curve.hpp"
#include "random_source.hpp"

namespace hotset::even_shares_test {
namespace {

using testing::ElementsAre;

std::vector<std::uint64_t> evened(const sampled_miss_curve& curve,
                                  std::vector<std::uint64_t> units) {
  const std::vector<memory_consumer> consumers(
      units.size(), {.curve = curve, .unit_bytes = 1, .seconds_per_miss = 1});
  return even_shares(consumers, std::move(units));
}

TEST(even_shares, equal_consumers_meet_as_far_as_it_costs_nothing) {
  const sampled_miss_curve straight({8, 7, 6, 5, 4, 3, 2, 1, 0});
  EXPECT_THAT(evened(straight, {8, 2, 0, 0}), ElementsAre(3U, 3U, 2U, 2U));
  EXPECT_THAT(evened(straight, {0, 0, 2, 8}), ElementsAre(3U, 3U, 2U, 2U));
  const sampled_miss_curve cliff({12, 12, 12, 12, 0});
  EXPECT_THAT(evened(cliff, {4, 0}), ElementsAre(4U, 0U)) << "two halves cannot climb it";
  const sampled_miss_curve steps({8, 8, 8, 4, 4, 4, 0});
  EXPECT_THAT(evened(steps, {6, 0, 0}), ElementsAre(3U, 3U, 0U));
  EXPECT_THAT(evened(steps, {0, 6, 3, 0}), ElementsAre(3U, 3U, 3U, 0U));
}

TEST(even_shares, other_units_prices_floors_or_curves_are_not_equal) {
  const sampled_miss_curve straight({4, 3, 2, 1, 0});
  const sampled_miss_curve bent({4, 3, 2, 1, 0.5});
  const memory_consumer one{.curve = straight, .unit_bytes = 1, .seconds_per_miss = 1};
  std::vector<memory_consumer> consumers(5, one);
  consumers[1].unit_bytes = 2;
  consumers[2].seconds_per_miss = 2;
  consumers[3].curve = bent;
  consumers[4].max_units = 3;
  const std::vector<std::uint64_t> units{4, 0, 0, 0, 0};
  EXPECT_EQ(even_shares(consumers, units), units);
}

/// Copies of a random consumer among others, at random places.
std::vector<memory_consumer> mixed(support::random_source& random, const memory_consumer& one,
                                   std::size_t copies, const std::vector<memory_consumer>& others,
                                   std::vector<std::size_t>& places) {
  std::vector<memory_consumer> out;
  places.clear();
  for (std::size_t o = 0, c = 0; o < others.size() || c < copies;) {
    const bool copy = c < copies && (o == others.size() || random.one_in(2));
    if (copy) places.push_back(out.size());
    out.push_back(copy ? one : others[o]);
    copy ? ++c : ++o;
  }
  return out;
}

TEST(even_shares, of_any_curves_no_two_equal_consumers_could_meet_closer_at_no_cost) {
  support::random_source random(11);
  for (int n = 0; n < 2000; ++n) {
    const auto set = support::random_consumers(
        random, {.consumers = 4, .most_units = 8, .convex = random.one_in(2)});
    std::vector<std::size_t> places;
    const std::vector<memory_consumer> others(set.consumers.begin() + 1, set.consumers.end());
    const auto& one = set.consumers.front();
    const auto consumers = mixed(random, one, 2 + random.below(4), others, places);
    const auto total = support::floors_of(consumers) + random.below(60);
    const auto found = equimarginal().allocate(consumers, total);
    ASSERT_TRUE(found);
    for (const auto a : places)
      for (const auto b : places) {
        const auto large = found->units[a];
        const auto small = found->units[b];
        for (auto part = small + 1; part < large; ++part)
          EXPECT_GT(one.seconds(part) + one.seconds(large + small - part),
                    one.seconds(large) + one.seconds(small))
              << "case " << n << ": " << large << " and " << small << " could be " << part;
      }
  }
}

TEST(even_shares, the_places_of_equal_consumers_change_nothing_but_by_one_unit) {
  support::random_source random(12);
  for (int n = 0; n < 1000; ++n) {
    const auto set = support::random_consumers(
        random, {.consumers = 4, .most_units = 9, .convex = true, .floors = false});
    std::vector<memory_consumer> others(set.consumers.begin() + 1, set.consumers.end());
    // Prices without a common measure: two different consumers never tie.
    for (std::size_t i = 0; i < others.size(); ++i)
      others[i].seconds_per_miss = 1 + 0.0173 * static_cast<double>(i + 1);
    const auto copies = 2 + random.below(5);
    const auto total = random.below(40);
    const auto shares = [&] {
      std::vector<std::size_t> places;
      const auto consumers = mixed(random, set.consumers.front(), copies, others, places);
      const auto found = equimarginal().allocate(consumers, total);
      std::vector<std::uint64_t> out;
      for (const auto i : places) out.push_back(found->units[i]);
      return std::pair(std::move(out), found->seconds);
    };
    const auto [first, seconds] = shares();
    const auto [second, again] = shares();
    EXPECT_NEAR(seconds, again, 1e-9) << "case " << n;
    const auto [least, most] = std::ranges::minmax(first);
    EXPECT_LE(most - least, 1U) << "case " << n;
    EXPECT_EQ(first, second) << "case " << n;
  }
}

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

/// Tries every division that takes from a consumer only bytes that save nothing, and lowers another's misses.
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

TEST(without_idle_bytes, no_byte_saves_nothing_while_another_consumer_could_use_it) {
  int moved = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const auto q = random_question(seed);
    const auto found = without_idle_bytes(q.consumers, q.start, q.total);
    ASSERT_LE(bytes_of(q, found), q.total) << "seed " << seed;
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_GE(found[i], q.consumers[i].min_units) << "seed " << seed;
      ASSERT_LE(found[i], q.consumers[i].cap()) << "seed " << seed;
      ASSERT_LE(q.consumers[i].seconds(found[i]), q.consumers[i].seconds(q.start[i]))
          << "no consumer loses, seed " << seed;
    }
    ASSERT_FALSE(has_idle_bytes(q, found)) << "seed " << seed;
    moved += has_idle_bytes(q, q.start) ? 1 : 0;
  }
  EXPECT_GT(moved, 1000);
}

TEST(without_idle_bytes, bytes_left_by_a_cap_go_to_as_many_layers_as_possible) {
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
}  // namespace hotset::even_shares_test
