// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/kernels/map_kernels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/predict/maps/map_rows.hpp"
#include "map_samples.hpp"

namespace hotset::map_kernels_test {
namespace {

using map_kernels::lanes;

constexpr auto infinity = std::numeric_limits<float>::infinity();
constexpr auto nan = std::numeric_limits<float>::quiet_NaN();

std::vector<vector_level> levels() {
  std::vector<vector_level> out;
  for (const auto level : {vector_level::scalar, vector_level::avx2, vector_level::avx512})
    if (level <= best_vector_level()) out.push_back(level);
  return out;
}

TEST(map_kernels, every_half_up_to_one_is_read_and_written_exactly) {
  EXPECT_EQ(map_kernels::from_half(0x3c00), 1.0F);
  EXPECT_EQ(map_kernels::from_half(0x3555), 0.333251953125F);
  EXPECT_EQ(map_kernels::from_half(0x0001), 0x1p-24F);
  EXPECT_EQ(map_kernels::to_half(1.0F / 3.0F), 0x3555);
  for (std::uint16_t half = 0; half <= 0x3c00; ++half) {
    const auto value = map_kernels::from_half(half);
    ASSERT_EQ(map_kernels::to_half(value), half);
    if (half == 0x3c00) break;
    // Halfway to the next goes to the even one, and a little less or more to the nearer one.
    const auto next = map_kernels::from_half(static_cast<std::uint16_t>(half + 1));
    const float halfway = (value + next) / 2;
    ASSERT_EQ(map_kernels::to_half(halfway), half % 2 == 0 ? half : half + 1);
    ASSERT_EQ(map_kernels::to_half(std::nextafter(halfway, 0.0F)), half);
    ASSERT_EQ(map_kernels::to_half(std::nextafter(halfway, 1.0F)), half + 1);
  }
}

TEST(map_kernels, codes_are_never_below_what_they_stand_for) {
  support::random_source random(4);
  for (int n = 0; n < 2000; ++n) {
    std::vector<float> values(5);
    for (auto& v : values)
      v = std::ldexp(static_cast<float>(random.below(1U << 24U)),
                     -24 - static_cast<int>(random.below(30)));
    std::vector<int> codes(5);
    const auto step = map_kernels::code_up(values.data(), 5, 255,
                                           [&](std::size_t i, int code) { codes[i] = code; });
    for (std::size_t i = 0; i < 5; ++i) {
      ASSERT_LE(codes[i], 255);
      ASSERT_GE(static_cast<float>(codes[i]) * step, values[i]);
      if (values[i] == 0.0F) {
        ASSERT_EQ(codes[i], 0);
      }
    }
  }
}

/// A block of maps in each storage, and the maps as they were. Map m of block b is map 16 b + m.
struct sample {
  sample(std::uint64_t seed, std::size_t of_blocks, std::size_t of_experts)
      : blocks(of_blocks), experts(of_experts), words((of_experts + 3) / 4) {
    support::random_source random(seed);
    maps = support::repeating_maps(random, blocks * lanes, 1, experts, blocks * lanes, 0.0);
    single.resize(maps.size());
    half.resize(maps.size());
    codes.resize(blocks * words * lanes * 4);
    steps.resize(blocks * lanes);
    for (std::size_t m = 0; m < blocks * lanes; ++m) {
      const auto b = m / lanes;
      for (std::size_t e = 0; e < experts; ++e) {
        const auto at = (b * experts + e) * lanes + m % lanes;
        single[at] = maps[m * experts + e];
        half[at] = map_kernels::to_half(maps[m * experts + e]);
      }
      steps[m] =
          map_kernels::code_up(&maps[m * experts], experts, 255, [&](std::size_t e, int code) {
            codes[((b * words + e / 4) * lanes + m % lanes) * 4 + e % 4] =
                static_cast<std::uint8_t>(code);
          });
    }
  }
  [[nodiscard]] map_kernels::slice slice(map_storage storage) const {
    const void* at = single.data();
    if (storage == map_storage::fp16) at = half.data();
    if (storage == map_storage::int8) at = codes.data();
    return {static_cast<const std::byte*>(at), steps.data(), blocks, experts};
  }
  /// As a map is stored.
  [[nodiscard]] double value(map_storage storage, std::size_t m, std::size_t e) const {
    const auto p = maps[m * experts + e];
    return storage == map_storage::fp16 ? map_kernels::from_half(map_kernels::to_half(p)) : p;
  }
  std::size_t blocks;
  std::size_t experts;
  std::size_t words;
  std::vector<float> maps;
  aligned_vector<float> single;
  aligned_vector<std::uint16_t> half;
  aligned_vector<std::uint8_t> codes;
  aligned_vector<float> steps;
};

map_rows some_rows(std::uint64_t seed, std::size_t tokens, std::size_t experts,
                   map_storage storage) {
  const bool coded = storage == map_storage::int8;
  support::random_source random(seed);
  const auto values = support::repeating_maps(random, tokens, 1, experts, tokens, 0.0);
  map_rows rows(tokens, experts, coded);
  for (std::size_t t = 0; t < tokens; ++t) {
    std::copy_n(&values[t * experts], experts, rows.row(t).begin());
    rows.code(t);
  }
  return rows;
}

TEST(map_kernels, a_sum_of_products_by_hand) {
  const sample maps(1, 1, 2);
  aligned_vector<float> values(2 * lanes);
  values[0] = 0.25F;  // map 0
  values[lanes] = 0.75F;
  values[3] = 1.0F;  // map 3
  map_rows rows(1, 2, false);
  rows.row(0)[0] = 0.5F;
  rows.row(0)[1] = 0.5F;
  rows.code(0);
  for (const auto level : levels()) {
    aligned_vector<float> sums(lanes, 1.0F);
    map_kernels::add_dots(level, map_storage::fp32,
                          {reinterpret_cast<const std::byte*>(values.data()), nullptr, 1, 2},
                          rows.first(1), sums.data(), lanes);
    EXPECT_EQ(sums[0], 1.5F);
    EXPECT_EQ(sums[3], 1.5F);
    EXPECT_EQ(sums[1], 1.0F);
  }
}

TEST(map_kernels, all_levels_give_the_same_bits_and_the_sum_written_out) {
  for (const std::size_t experts : {1U, 2U, 3U, 7U, 8U, 60U, 64U, 128U})
    for (const std::size_t tokens : {1U, 2U, 3U, 7U, 8U, 21U})
      for (const auto storage : {map_storage::fp32, map_storage::fp16, map_storage::int8}) {
        const sample maps(experts, 3, experts);
        const auto rows = some_rows(tokens, tokens, experts, storage);
        const std::size_t stride = 4 * lanes;
        aligned_vector<float> reference(tokens * stride, 0.125F);
        map_kernels::add_dots(vector_level::scalar, storage, maps.slice(storage),
                              rows.first(tokens), reference.data(), stride);
        for (std::size_t t = 0; t < tokens; ++t) {
          for (std::size_t m = 0; m < 3 * lanes; ++m) {
            double sum = 0.125;
            for (std::size_t e = 0; e < experts; ++e)
              sum += static_cast<double>(rows.row(t)[e]) * maps.value(storage, m, e);
            const double found = reference[t * stride + m];
            if (storage == map_storage::int8) {
              ASSERT_GE(found, sum * (1 - 1e-6));
              ASSERT_LE(found, sum + static_cast<double>(maps.steps[m]) * 1.01 + 1e-3);
            } else {
              ASSERT_NEAR(found, sum, 1e-6);
            }
          }
          ASSERT_EQ(reference[t * stride + 3 * lanes], 0.125F) << "behind the last block";
        }
        for (const auto level : levels()) {
          aligned_vector<float> sums(tokens * stride, 0.125F);
          map_kernels::add_dots(level, storage, maps.slice(storage), rows.first(tokens),
                                sums.data(), stride);
          ASSERT_EQ(sums, reference) << static_cast<int>(level) << " experts " << experts;
        }
      }
}

TEST(map_kernels, the_largest_codes_do_not_overflow) {
  // All codes 255 and all digits 63, as many as there may be of them.
  constexpr std::size_t experts = 65536;
  aligned_vector<std::uint8_t> codes(experts * lanes, 255);
  aligned_vector<float> steps(lanes, 1.0F);
  std::vector<std::int32_t> words(8 * experts / 4, 0x3f3f3f3f);
  const float row_step = 1.0F;
  const map_kernels::slice maps{reinterpret_cast<const std::byte*>(codes.data()), steps.data(), 1,
                                experts};
  const map_kernels::rows rows{nullptr, words.data(), words.data(), &row_step, 1};
  for (const auto level : levels()) {
    aligned_vector<float> sums(lanes, 0.0F);
    map_kernels::add_dots(level, map_storage::int8, maps, rows, sums.data(), lanes);
    for (const auto sum : sums) EXPECT_FLOAT_EQ(sum, 255.0F * 4095.0F * 65536.0F);
  }
}

TEST(map_kernels, minus_infinity_stays_whatever_is_added) {
  const sample maps(2, 1, 8);
  for (const auto level : levels())
    for (const auto storage : {map_storage::fp32, map_storage::fp16, map_storage::int8}) {
      const auto rows = some_rows(1, 1, 8, storage);
      aligned_vector<float> sums(lanes, -infinity);
      map_kernels::add_dots(level, storage, maps.slice(storage), rows.first(1), sums.data(), lanes);
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

TEST(map_kernels, all_levels_find_the_same_best_and_the_same_blocks) {
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
      for (const float least : {12.0F, 20.0F, 22.0F, 23.0F, -infinity})
        for (std::size_t from = 0; from <= blocks; ++from) {
          std::size_t wanted = from;
          const auto reaches = [&](std::size_t b) {
            for (std::size_t i = b * lanes; i < (b + 1) * lanes; ++i)
              if (sums[i] * weights[i] >= least) return true;
            return false;
          };
          while (wanted < blocks && !reaches(wanted)) ++wanted;
          ASSERT_EQ(
              map_kernels::find_block(level, sums.data(), weights.data(), from, blocks, least),
              wanted);
        }
    }
  }
}

}  // namespace
}  // namespace hotset::map_kernels_test
