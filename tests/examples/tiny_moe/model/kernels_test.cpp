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
#include "tiny_moe/model/model.hpp"

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

const model& weights() {
  static const model loaded(HOTSET_TINY_MOE_DIR);
  return loaded;
}

TEST(half_to_float, both_paths_give_the_same_bits_for_every_half) {
  if (!half_to_float_is_native()) GTEST_SKIP() << "this machine has no F16C: one path only";
  std::vector<std::uint16_t> halves(65536 + 3);  // the odd rest takes the tail of the native path
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
#if !defined(__FP_FAST_FMAF)  // this file may fuse where the library does not
  EXPECT_EQ(dot(left.data(), right.data(), 96), wanted);
#endif
}

// The byte comparisons below mean something only if another order of summation gives other bytes.
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

TEST(batch_invariance, projection_and_router_give_a_row_the_same_bytes_in_every_batch) {
  const auto& config = weights().config();
  const std::size_t hidden = config.hidden_size;
  const auto rows = noise(most_rows * hidden, 5);
  const std::size_t k = config.top_k;

  struct routed {
    std::vector<float> logits, probabilities, weights;
    std::vector<std::int32_t> ids;
  };
  const auto route = [&](const layer_weights& layer, const float* first, std::size_t count) {
    routed out{std::vector<float>(count * config.experts),
               std::vector<float>(count * config.experts), std::vector<float>(count * k),
               std::vector<std::int32_t>(count * k)};
    project(layer.router.data(), hidden, config.experts, first, count, out.logits.data());
    for (std::size_t t = 0; t < count; ++t) {
      softmax({out.logits.data() + t * config.experts, config.experts},
              out.probabilities.data() + t * config.experts);
      select_top_k({out.probabilities.data() + t * config.experts, config.experts},
                   {out.ids.data() + t * k, k}, {out.weights.data() + t * k, k});
    }
    return out;
  };

  for (std::size_t l = 0; l < config.layers; ++l) {
    std::vector<routed> alone;
    for (std::size_t t = 0; t < most_rows; ++t) {
      alone.push_back(route(weights().layer(l), rows.data() + t * hidden, 1));
    }
    for (std::size_t count = 1; count <= most_rows; ++count) {
      const routed together = route(weights().layer(l), rows.data(), count);
      for (std::size_t t = 0; t < count; ++t) {
        ASSERT_TRUE(same_bytes(together.logits.data() + t * config.experts, alone[t].logits.data(),
                               config.experts))
            << "layer " << l << ", row " << t << " of " << count;
        ASSERT_TRUE(same_bytes(together.probabilities.data() + t * config.experts,
                               alone[t].probabilities.data(), config.experts));
        ASSERT_TRUE(same_bytes(together.weights.data() + t * k, alone[t].weights.data(), k));
        ASSERT_TRUE(std::equal(alone[t].ids.begin(), alone[t].ids.end(),
                               together.ids.begin() + static_cast<std::ptrdiff_t>(t * k)));
      }
    }
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

TEST(select_top_k, what_is_not_a_number_still_gives_distinct_ids) {
  std::array<float, 8> probabilities{};
  probabilities.fill(std::numeric_limits<float>::quiet_NaN());
  std::array<std::int32_t, 4> ids{};
  std::array<float, 4> shares{};
  select_top_k(probabilities, ids, shares);
  EXPECT_EQ(ids, (std::array<std::int32_t, 4>{0, 1, 2, 3}));
}

// Keys and values in blocks of their own: first all keys of a block, then a gap, then all its values.
struct blocks_of_rows {
  std::size_t block_tokens = 0;
  std::size_t width = 0;
  std::vector<std::vector<float>> memory;
  std::vector<const float*> blocks;

  blocks_of_rows(std::size_t tokens, std::size_t row, const std::vector<float>& keys,
                 const std::vector<float>& values)
      : block_tokens(tokens), width(row) {
    const std::size_t positions = keys.size() / width;
    for (std::size_t p = 0; p < positions; p += tokens) {
      auto& block =
          memory.emplace_back(2 * tokens * width + gap, std::numeric_limits<float>::quiet_NaN());
      const std::size_t count = std::min(tokens, positions - p) * width;
      std::copy_n(keys.data() + p * width, count, block.data());
      std::copy_n(values.data() + p * width, count, block.data() + tokens * width + gap);
    }
    for (const auto& block : memory) blocks.push_back(block.data());
  }
  [[nodiscard]] kv_rows rows() const {
    return {.blocks = blocks,
            .block_tokens = block_tokens,
            .keys = 0,
            .values = block_tokens * width + gap};
  }

 private:
  static constexpr std::size_t gap = 5;
};

TEST(attend, blocks_of_any_size_give_the_same_bytes) {
  constexpr std::size_t heads = 4;
  constexpr std::size_t size = 24;
  constexpr std::size_t width = heads * size;
  for (const std::size_t positions : {1U, 3U, 4U, 17U, 64U}) {
    const auto query = noise(width, 11);
    const auto keys = noise(positions * width, 12);
    const auto values = noise(positions * width, 13);
    std::vector<float> scores(positions);
    std::vector<float> whole(width);
    const blocks_of_rows one(positions, width, keys, values);
    attend(query.data(), one.rows(), positions, heads, size, scores.data(), whole.data());
    for (const std::size_t tokens : {1U, 2U, 3U, 5U, 16U, 100U}) {
      const blocks_of_rows many(tokens, width, keys, values);
      std::vector<float> out(width, std::numeric_limits<float>::quiet_NaN());
      attend(query.data(), many.rows(), positions, heads, size, scores.data(), out.data());
      ASSERT_TRUE(same_bytes(whole.data(), out.data(), width))
          << positions << " positions in blocks of " << tokens;
    }
  }
}

TEST(attend, agrees_with_the_formula_in_double) {
  constexpr std::size_t heads = 4;
  constexpr std::size_t size = 24;
  constexpr std::size_t width = heads * size;
  for (const std::size_t positions : {1U, 2U, 3U, 4U, 5U, 31U, 64U}) {
    const auto query = noise(width, 8);
    const auto keys = noise(positions * width, 9);
    const auto values = noise(positions * width, 10);
    std::vector<float> scores(positions);
    std::vector<float> out(width);
    const blocks_of_rows cache(positions, width, keys, values);
    attend(query.data(), cache.rows(), positions, heads, size, scores.data(), out.data());
    for (std::size_t h = 0; h < heads; ++h) {
      std::vector<double> share(positions);
      double sum = 0.0;
      for (std::size_t p = 0; p < positions; ++p) {
        double score = 0.0;
        for (std::size_t i = h * size; i < (h + 1) * size; ++i) {
          score += static_cast<double>(query[i]) * static_cast<double>(keys[p * width + i]);
        }
        share[p] = std::exp(score / std::sqrt(static_cast<double>(size)));
        sum += share[p];
      }
      for (std::size_t i = h * size; i < (h + 1) * size; ++i) {
        double wanted = 0.0;
        for (std::size_t p = 0; p < positions; ++p) {
          wanted += share[p] / sum * static_cast<double>(values[p * width + i]);
        }
        ASSERT_NEAR(out[i], wanted, 1e-5) << positions << " positions, head " << h;
      }
    }
  }
}

}  // namespace
}  // namespace kernels_test
