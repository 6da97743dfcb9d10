// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/kernels/map_kernels.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/platform/aligned_vector.hpp"
#include "map_samples.hpp"

namespace hotset::map_kernels_test {
namespace {

using map_kernels::lanes;

constexpr auto infinity = std::numeric_limits<float>::infinity();
constexpr auto nan = std::numeric_limits<float>::quiet_NaN();
constexpr std::array storages{map_storage::fp32, map_storage::fp16, map_storage::int8};

std::array<vector_level, 2> levels() { return {vector_level::scalar, best_vector_level()}; }

TEST(map_kernels, every_half_up_to_one_is_read_and_written_exactly) {
  EXPECT_EQ(map_kernels::from_half(0x3c00), 1.0F);
  EXPECT_EQ(map_kernels::from_half(0x3555), 0.333251953125F);
  EXPECT_EQ(map_kernels::from_half(0x0001), 0x1p-24F);
  EXPECT_EQ(map_kernels::to_half(1.0F / 3.0F), 0x3555);
  for (std::uint16_t half = 0; half <= 0x3c00; ++half) {
    const auto value = map_kernels::from_half(half);
    ASSERT_EQ(map_kernels::to_half(value), half);
    if (half == 0x3c00) break;
    // A value halfway between two numbers rounds to the even one; others round to the nearest.
    const auto next = map_kernels::from_half(static_cast<std::uint16_t>(half + 1));
    const float halfway = (value + next) / 2;
    ASSERT_EQ(map_kernels::to_half(halfway), half % 2 == 0 ? half : half + 1);
    ASSERT_EQ(map_kernels::to_half(std::nextafter(halfway, 0.0F)), half);
    ASSERT_EQ(map_kernels::to_half(std::nextafter(halfway, 1.0F)), half + 1);
  }
}

/// Blocks of maps in each storage. Map m of block b is map 16 b + m.
struct sample {
  sample(std::uint64_t seed, std::size_t of_blocks, std::size_t of_experts)
      : blocks(of_blocks), experts(of_experts) {
    support::random_source random(seed);
    const auto maps =
        support::repeating_maps(random, blocks * lanes, 1, experts, blocks * lanes, 0.0);
    single.resize(maps.size());
    half.resize(maps.size());
    codes.resize(maps.size());
    for (std::size_t m = 0; m < blocks * lanes; ++m) {
      steps.push_back(static_cast<float>(1 + random.below(100)) / 25600.0F);
      for (std::size_t e = 0; e < experts; ++e) {
        const auto p = maps[m * experts + e];
        single[at(m, e)] = p;
        half[at(m, e)] = map_kernels::to_half(p);
        codes[at(m, e)] = static_cast<std::uint8_t>(255 * p);
      }
    }
  }
  [[nodiscard]] std::size_t at(std::size_t m, std::size_t e) const {
    return (m / lanes * experts + e) * lanes + m % lanes;
  }
  [[nodiscard]] map_kernels::slice slice(map_storage storage) const {
    const void* values = single.data();
    if (storage == map_storage::fp16) values = half.data();
    if (storage == map_storage::int8) values = codes.data();
    return {static_cast<const std::byte*>(values), steps.data(), blocks, experts};
  }
  /// The value as it is stored.
  [[nodiscard]] double value(map_storage storage, std::size_t m, std::size_t e) const {
    if (storage == map_storage::fp32) return single[at(m, e)];
    if (storage == map_storage::fp16) return map_kernels::from_half(half[at(m, e)]);
    return codes[at(m, e)] * double{steps[m]};
  }
  std::size_t blocks;
  std::size_t experts;
  aligned_vector<float> single;
  aligned_vector<std::uint16_t> half;
  aligned_vector<std::uint8_t> codes;
  aligned_vector<float> steps;
};
std::vector<float> some_row(std::uint64_t seed, std::size_t experts) {
  support::random_source random(seed);
  return support::repeating_maps(random, 1, 1, experts, 1, 0.0);
}

TEST(map_kernels, all_levels_give_the_same_bits_and_the_sum_written_out) {
  for (const std::size_t experts : {1U, 2U, 3U, 7U, 8U, 60U, 64U, 128U})
    for (const auto storage : storages) {
      const sample maps(experts, 3, experts);
      const auto row = some_row(experts + 1, experts);
      const auto summed = [&](vector_level level) {
        aligned_vector<float> sums(4 * lanes, 0.125F);
        map_kernels::add_dots(level, storage, maps.slice(storage), row, sums.data());
        return sums;
      };
      const auto reference = summed(vector_level::scalar);
      for (std::size_t m = 0; m < 3 * lanes; ++m) {
        double sum = 0.125;
        for (std::size_t e = 0; e < experts; ++e) sum += row[e] * maps.value(storage, m, e);
        ASSERT_NEAR(reference[m], sum, 1e-6);
      }
      ASSERT_EQ(reference[3 * lanes], 0.125F) << "behind the last block";
      for (const auto level : levels()) ASSERT_EQ(summed(level), reference) << experts;
    }
}

TEST(map_kernels, minus_infinity_stays_whatever_is_added) {
  const sample maps(2, 1, 8);
  for (const auto level : levels())
    for (const auto storage : storages) {
      aligned_vector<float> sums(lanes, -infinity);
      map_kernels::add_dots(level, storage, maps.slice(storage), some_row(1, 8), sums.data());
      EXPECT_THAT(sums, testing::Each(-infinity));
    }
}

TEST(map_kernels, the_best_place_is_the_lowest_of_the_highest) {
  for (const auto level : levels()) {
    aligned_vector<float> sums(3 * lanes, 1.0F);
    aligned_vector<float> weights(3 * lanes, 1.0F);
    const auto best = [&](map_kernels::best_of from = {}) {
      map_kernels::take_best(level, sums.data(), weights.data(), 100, 3, from);
      return from;
    };
    EXPECT_EQ(best().place, 100U) << "all are equal";
    sums[40] = 3.0F;
    sums[17] = 3.0F;
    sums[5] = nan;
    EXPECT_EQ(best().place, 117U);
    EXPECT_EQ(best().score, 3.0F);
    weights[40] = 1.5F;
    EXPECT_EQ(best().place, 140U);
    EXPECT_EQ(best({4.5F, 7}).place, 7U) << "what was there before stays where nothing is better";
    EXPECT_EQ(best({4.25F, 7}).place, 140U);
    std::fill(sums.begin(), sums.end(), -infinity);
    EXPECT_EQ(best().place, map_kernels::best_of::none);
    std::fill(sums.begin(), sums.end(), nan);
    EXPECT_EQ(best().place, map_kernels::best_of::none);
    EXPECT_EQ(best({0.5F, 7}).place, 7U);
  }
}

TEST(map_kernels, all_levels_find_the_same_best) {
  support::random_source random(9);
  for (std::size_t blocks = 1; blocks < 20; ++blocks) {
    aligned_vector<float> sums(blocks * lanes);
    aligned_vector<float> weights(blocks * lanes);
    for (auto& s : sums) s = random.one_in(9) ? -infinity : static_cast<float>(random.below(12));
    for (auto& w : weights) w = static_cast<float>(1 + random.below(2));
    std::size_t place = 0;
    for (std::size_t i = 1; i < sums.size(); ++i)
      if (sums[i] * weights[i] > sums[place] * weights[place]) place = i;
    for (const auto level : levels()) {
      map_kernels::best_of best;
      map_kernels::take_best(level, sums.data(), weights.data(), 0, blocks, best);
      ASSERT_EQ(best.place, place);
      ASSERT_EQ(best.score, sums[place] * weights[place]);
    }
  }
}

}  // namespace
}  // namespace hotset::map_kernels_test
