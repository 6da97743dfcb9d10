// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/model/kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "lab/traces/synthetic/synthetic.hpp"

namespace kernels_test {
namespace {

using namespace tiny_moe;

constexpr std::size_t most_rows = 64;

// Values in -1..1 with all 24 bits in use, so that almost every sum rounds.
std::vector<float> noise(std::size_t count, std::uint64_t seed) {
  hotset::splitmix64 random(seed);
  std::vector<float> out(count);
  for (float& value : out) value = static_cast<float>(2.0 * random.uniform() - 1.0);
  return out;
}

bool same_bytes(const float* left, const float* right, std::size_t count) {
  return std::memcmp(left, right, count * sizeof(float)) == 0;
}

TEST(half_to_float, both_paths_give_the_same_bits_for_every_half) {
  if (!half_to_float_is_native()) GTEST_SKIP() << "this machine has no F16C: one path only";
  std::vector<std::uint16_t> halves(65536 + 3);  // the odd rest takes the scalar tail
  std::iota(halves.begin(), halves.end(), std::uint16_t{0});
  std::vector<float> native(halves.size());
  std::vector<float> portable(halves.size());
  half_to_float(halves, native.data());
  half_to_float_portable(halves, portable.data());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(native[i]), std::bit_cast<std::uint32_t>(portable[i]))
        << "half " << halves[i];
  }
}

TEST(half_to_float, is_the_value_that_the_format_defines) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const int exponent = static_cast<int>((bits >> 10U) & 31U);
    const double mantissa = bits & 1023U;
    const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
    float value = 0.0F;
    half_to_float_portable({&half, 1}, &value);
    ASSERT_EQ(std::signbit(value), sign < 0) << bits;
    if (exponent == 31) {
      ASSERT_TRUE(mantissa == 0 ? std::isinf(value) : std::isnan(value)) << bits;
    } else {
      const double wanted =
          exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024.0 + mantissa, exponent - 25);
      ASSERT_EQ(static_cast<double>(value), sign * wanted) << bits;
    }
  }
}

TEST(dot, sums_in_eight_lanes) {
  const auto left = noise(96, 1);
  const auto right = noise(96, 2);
  std::array<float, 8> lane{};
  for (std::size_t i = 0; i < 96; ++i) lane[i % 8] += left[i] * right[i];
  const float wanted =
      ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  EXPECT_NEAR(dot(left.data(), right.data(), 96), wanted, 1e-5);
#if !defined(__FP_FAST_FMAF)  // this file may fuse, the library not
  EXPECT_EQ(dot(left.data(), right.data(), 96), wanted);
#endif
}

// The byte comparisons below prove something only if another summation order gives other bytes.
TEST(batch_invariance, another_order_of_summation_is_seen) {
  std::size_t differing = 0;
  for (std::uint64_t seed = 100; seed < 200; ++seed) {
    const auto left = noise(96, seed);
    const auto right = noise(96, seed + 1000);
    const std::vector<float> left_turned(left.rbegin(), left.rend());
    const std::vector<float> right_turned(right.rbegin(), right.rend());
    const float straight = dot(left.data(), right.data(), 96);
    const float turned = dot(left_turned.data(), right_turned.data(), 96);
    EXPECT_NEAR(straight, turned, 1e-5);
    differing += same_bytes(&straight, &turned, 1) ? 0U : 1U;
  }
  EXPECT_GT(differing, 50U);
}

TEST(batch_invariance, projection_gives_a_row_the_same_bytes_in_every_batch) {
  constexpr std::size_t inputs = 96;
  constexpr std::size_t outputs = 32;
  const auto weights = noise(inputs * outputs, 4);
  const auto rows = noise(most_rows * inputs, 5);
  std::vector<float> alone(most_rows * outputs);
  for (std::size_t t = 0; t < most_rows; ++t)
    project(weights.data(), inputs, outputs, &rows[t * inputs], 1, &alone[t * outputs]);
  for (std::size_t count = 1; count <= most_rows; ++count) {
    std::vector<float> together(count * outputs);
    project(weights.data(), inputs, outputs, rows.data(), count, together.data());
    ASSERT_TRUE(same_bytes(together.data(), alone.data(), together.size())) << count << " rows";
  }
}

TEST(select_top_k, ties_go_to_the_lower_id_and_weights_sum_to_one) {
  const std::array probabilities{0.1F, 0.2F, 0.2F, 0.05F, 0.2F, 0.1F, 0.15F, 0.0F};
  std::array<std::int32_t, 5> ids{};
  std::array<float, 5> shares{};
  select_top_k(probabilities, ids, shares);
  EXPECT_EQ(ids, (std::array<std::int32_t, 5>{1, 2, 4, 6, 0}));
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0F), 1.0F, 1e-6);
  EXPECT_NEAR(shares[3], 0.15F / 0.85F, 1e-6);
}

TEST(select_top_k, nan_scores_still_give_distinct_ids) {
  std::array<float, 8> probabilities{};
  probabilities.fill(std::numeric_limits<float>::quiet_NaN());
  std::array<std::int32_t, 4> ids{};
  std::array<float, 4> shares{};
  select_top_k(probabilities, ids, shares);
  EXPECT_EQ(ids, (std::array<std::int32_t, 4>{0, 1, 2, 3}));
}

/// A query over rows of keys and values.
struct attention {
  static constexpr std::size_t heads = 4;
  static constexpr std::size_t size = 24;
  static constexpr std::size_t width = heads * size;

  explicit attention(std::size_t rows) : positions(rows) {}

  /// Each block has all keys, then a gap, then all values.
  [[nodiscard]] std::vector<float> in_blocks_of(std::size_t tokens) const {
    constexpr float nothing = std::numeric_limits<float>::quiet_NaN();
    const std::size_t first_value = tokens * width + 5;
    std::vector<std::vector<float>> memory;
    std::vector<const float*> blocks;
    for (std::size_t p = 0; p < positions; p += tokens) {
      auto& block = memory.emplace_back(first_value + tokens * width, nothing);
      const std::size_t count = std::min(tokens, positions - p) * width;
      std::copy_n(keys.data() + p * width, count, block.data());
      std::copy_n(values.data() + p * width, count, block.data() + first_value);
      blocks.push_back(block.data());
    }
    std::vector<float> scores(positions);
    std::vector<float> out(width, nothing);
    attend(query.data(), {.blocks = blocks, .block_tokens = tokens, .values = first_value},
           positions, heads, size, scores.data(), out.data());
    return out;
  }

  std::size_t positions;
  std::vector<float> query = noise(width, 8);
  std::vector<float> keys = noise(positions * width, 9);
  std::vector<float> values = noise(positions * width, 10);
};

TEST(attend, blocks_of_any_size_give_the_same_bytes) {
  for (const std::size_t positions : {1U, 3U, 4U, 17U, 64U}) {
    const attention over(positions);
    const auto whole = over.in_blocks_of(positions);
    for (const std::size_t tokens : {1U, 2U, 3U, 5U, 16U, 100U})
      ASSERT_TRUE(same_bytes(whole.data(), over.in_blocks_of(tokens).data(), whole.size()))
          << positions << " positions in blocks of " << tokens;
  }
}

TEST(attend, agrees_with_the_formula_in_double) {
  constexpr std::size_t size = attention::size;
  constexpr std::size_t width = attention::width;
  for (const std::size_t positions : {1U, 2U, 3U, 4U, 5U, 31U, 64U}) {
    const attention over(positions);
    const auto out = over.in_blocks_of(positions);
    for (std::size_t h = 0; h < attention::heads; ++h) {
      std::vector<double> share(positions);
      double sum = 0.0;
      for (std::size_t p = 0; p < positions; ++p) {
        double score = 0.0;
        for (std::size_t i = h * size; i < (h + 1) * size; ++i)
          score += double{over.query[i]} * double{over.keys[p * width + i]};
        share[p] = std::exp(score / std::sqrt(static_cast<double>(size)));
        sum += share[p];
      }
      for (std::size_t i = h * size; i < (h + 1) * size; ++i) {
        double wanted = 0.0;
        for (std::size_t p = 0; p < positions; ++p)
          wanted += share[p] / sum * double{over.values[p * width + i]};
        ASSERT_NEAR(out[i], wanted, 1e-5) << positions << " positions, head " << h;
      }
    }
  }
}

}  // namespace
}  // namespace kernels_test
