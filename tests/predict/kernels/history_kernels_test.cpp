// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/kernels/history_kernels.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::history_kernels_test {
namespace {

using namespace history_kernels;

struct rows_of_bits {
  rows_of_bits(support::random_source& random, std::size_t rows, std::size_t planes) {
    for (std::size_t p = 0; p < planes; ++p) {
      auto& one = bits.emplace_back(rows / 64);
      for (auto& word : one)
        for (int b = 0; b < 64; ++b) word |= std::uint64_t{random.below(3) == 0} << b;
    }
    for (const auto& one : bits) planes_of.push_back(one.data());
  }
  std::vector<std::vector<std::uint64_t>> bits;
  std::vector<const std::uint64_t*> planes_of;
};

TEST(history_kernels, the_order_of_places_is_its_own_inverse) {
  std::vector<bool> taken(1024);
  for (std::size_t row = 0; row < 1024; ++row) {
    EXPECT_EQ(row_at(place_of(row)), row);
    EXPECT_FALSE(taken[place_of(row)]);
    taken[place_of(row)] = true;
    EXPECT_EQ(place_of(row) / block, row / block);
  }
}

TEST(history_kernels, a_row_gains_for_each_match_and_fades) {
  support::random_source random(1);
  const rows_of_bits rows(random, 256, 3);
  std::vector<std::uint16_t> similar(256, 6553);
  move_on({.planes = rows.planes_of, .decay = 6554, .gain = 100}, similar, similar,
          vector_level::scalar);
  for (std::size_t row = 0; row < 256; ++row) {
    int matches = 0;
    for (const auto& plane : rows.bits)
      matches += static_cast<int>((plane[row / 64] >> (row % 64)) & 1U);
    EXPECT_EQ(similar[place_of(row)], 6553 - 655 + 100 * matches);
  }
}

TEST(history_kernels, all_levels_give_the_same_bits) {
  support::random_source random(2);
  const auto level = best_vector_level();
  for (const std::size_t rows : {256U, 1024U, 2304U})
    for (const std::size_t planes : {0U, 1U, 2U, 7U, 8U, 15U, 16U, 33U}) {
      const rows_of_bits bits(random, rows, planes);
      const auto decay = static_cast<std::uint16_t>(1 + random.below(65535));
      const auto gain = static_cast<std::uint16_t>(planes == 0 ? 0 : decay / 2 / planes);
      std::vector<std::uint16_t> one(rows);
      for (auto& s : one) s = static_cast<std::uint16_t>(random.below(32768));
      auto other = one;
      std::vector<std::uint16_t> apart(rows);
      for (int n = 0; n < 20; ++n) {
        move_on({bits.planes_of, decay, gain}, one, apart, level);
        move_on({bits.planes_of, decay, gain}, one, one, vector_level::scalar);
        move_on({bits.planes_of, decay, gain}, other, other, level);
        ASSERT_EQ(one, other) << rows << " rows, " << planes << " planes";
        ASSERT_EQ(one, apart) << "written elsewhere, from what stays as it was";
      }
    }
}

TEST(history_kernels, rows_that_are_alike_for_ever_stay_within_16_bits) {
  for (const unsigned decay : {262U, 5461U, 65535U})
    for (const std::size_t planes : {1U, 3U, 8U, 15U, 40U}) {
      const std::vector<std::uint64_t> all(4, ~std::uint64_t{0});
      const std::vector<const std::uint64_t*> of(planes, all.data());
      const auto gain = static_cast<std::uint16_t>(decay / 2 / planes);
      std::vector<std::uint16_t> similar(256, 0);
      std::uint16_t before = 0;
      for (int n = 0; n < 4000; ++n) {
        move_on({of, static_cast<std::uint16_t>(decay), gain}, similar, similar,
                best_vector_level());
        ASSERT_GE(similar[17], before);  // it never wraps
        before = similar[17];
      }
      EXPECT_LE(before, alike + 65536 / decay + 1);
      EXPECT_EQ(std::ranges::count(similar, before), 256);
    }
}

TEST(history_kernels, the_greatest_are_among_the_candidates_of_every_level) {
  support::random_source random(3);
  for (int n = 0; n < 300; ++n) {
    const std::size_t rows = 256 * (1 + random.below(4));
    std::vector<std::uint16_t> similar(rows);
    std::vector<std::uint16_t> usable(rows);
    const auto most = n % 3 == 0 ? 4U : 40000U;  // many ties, or few
    for (auto& s : similar) s = static_cast<std::uint16_t>(random.below(most));
    for (auto& u : usable) u = random.below(n % 5 == 0 ? 40 : 3) == 0 ? 0xffff : 0;
    std::vector<std::uint16_t> all(rows + places_beyond);
    all.resize(candidates(similar, usable, 8, all, vector_level::scalar));
    EXPECT_TRUE(std::ranges::is_sorted(all));
    for (const auto place : all) EXPECT_TRUE(similar[place] > 0 && usable[place] != 0);
    for (const std::size_t wanted : {1U, 8U, 16U, 32U, 60U}) {
      std::vector<std::uint16_t> found(rows + places_beyond);
      found.resize(candidates(similar, usable, wanted, found, best_vector_level()));
      const auto greatest = [&](std::vector<std::uint16_t> places) {
        std::vector<std::uint16_t> values;
        for (const auto place : places) values.push_back(similar[place]);
        std::ranges::sort(values, std::greater<>());
        values.resize(std::min(values.size(), wanted));
        return values;
      };
      ASSERT_EQ(greatest(found), greatest(all));
      ASSERT_TRUE(std::ranges::includes(all, found));
      // All rows with the last value are found: ties are resolved later.
      if (!found.empty() && greatest(all).size() == wanted) {
        const auto last = greatest(all).back();
        EXPECT_EQ(std::ranges::count_if(found, [&](auto p) { return similar[p] == last; }),
                  std::ranges::count_if(all, [&](auto p) { return similar[p] == last; }));
      }
    }
  }
}

}  // namespace
}  // namespace hotset::history_kernels_test
