// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/model/quantised.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/trace/half_array.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "tiny_moe/model/kernels.hpp"

namespace quantised_test {
namespace {

using namespace tiny_moe;
using testing::Each;
using testing::ElementsAre;

constexpr std::array packed_widths{8, 4, 2};

std::vector<std::uint16_t> halves_of(const std::vector<float>& values) {
  std::vector<std::uint16_t> out;
  for (const float value : values) out.push_back(hotset::float_to_half(value));
  return out;
}

std::vector<std::byte> packed(const std::vector<std::uint16_t>& halves, std::size_t rows,
                              std::size_t columns, int bits) {
  std::vector<std::byte> out(quantised_bytes(rows, columns, bits), std::byte{0xEE});
  quantise(halves, rows, columns, bits, out);
  return out;
}

std::vector<float> unpacked(const std::vector<std::byte>& bytes, std::size_t rows,
                            std::size_t columns, int bits) {
  std::vector<float> out(rows * columns);
  dequantise(bytes, rows, columns, bits, out.data());
  return out;
}

std::vector<int> numbers(const std::vector<std::byte>& bytes) {
  std::vector<int> out;
  for (const std::byte b : bytes) out.push_back(std::to_integer<int>(b));
  return out;
}

// The scale of one group. Shape: [rows][groups of a row].
float scale_at(const std::vector<std::byte>& bytes, std::size_t group) {
  std::uint16_t half = 0;
  std::memcpy(&half, bytes.data() + 2 * group, sizeof half);
  return hotset::half_to_float(half);
}

// Weights like those of a trained matrix: many small, few large.
std::vector<std::uint16_t> trained(std::size_t count, std::uint64_t seed) {
  hotset::splitmix64 random(seed);
  std::vector<float> out(count);
  for (float& value : out) {
    const double u = 2.0 * random.uniform() - 1.0;
    value = static_cast<float>(0.3 * u * u * u);
  }
  return halves_of(out);
}

// Few distinct values, so that rounding and the search meet ties.
std::vector<std::uint16_t> coarse(std::size_t count, std::uint64_t seed) {
  hotset::splitmix64 random(seed);
  std::vector<float> out(count);
  for (float& value : out) value = std::floor(static_cast<float>(random.uniform() * 9.0) - 4.0F);
  return halves_of(out);
}

struct chosen {
  float scale = 0.0F;
  std::vector<double> levels;
};

// volatile prevents fusing with the next operation: this file may be compiled so, the library is not.
double rounded(double x) {
  const volatile double kept = x;
  return kept;
}

// The rule of the header, written out without optimisation.
chosen brute_force(const std::vector<float>& group, int bits) {
  const double low = -std::pow(2.0, bits - 1);
  const double high = -low - 1.0;
  const double last = bits == 8 ? 0.9 : bits == 4 ? 0.7 : 0.5;
  double largest = 0.0;
  for (const float w : group) largest = std::max(largest, std::abs(static_cast<double>(w)));
  chosen best{.scale = 0.0F, .levels = std::vector<double>(group.size(), 0.0)};
  if (largest == 0.0) return best;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 21; ++i) {
    const double wanted = largest / high * (1.0 - rounded((1.0 - last) / 20.0 * i));
    for (const float sign : {1.0F, -1.0F}) {
      float scale = hotset::half_to_float(hotset::float_to_half(static_cast<float>(wanted)));
      if (scale == 0.0F) scale = 0x1p-24F;
      scale *= sign;
      chosen now{.scale = scale, .levels = {}};
      double error = 0.0;
      for (const float w : group) {
        const double level = std::nearbyint(static_cast<double>(w) / static_cast<double>(scale));
        now.levels.push_back(std::min(std::max(level, low), high));
        const double moved =
            static_cast<double>(w) - now.levels.back() * static_cast<double>(scale);
        error += rounded(moved * moved);
      }
      if (error < least) {
        least = error;
        best = now;
      }
    }
  }
  return best;
}

TEST(quantised_bytes, are_scales_and_codes_in_multiples_of_eight) {
  EXPECT_EQ(quantised_bytes(40, 96, 16), 7680U);
  EXPECT_EQ(quantised_bytes(40, 96, 8), 240U + 3840U);
  EXPECT_EQ(quantised_bytes(40, 96, 4), 240U + 1920U);
  EXPECT_EQ(quantised_bytes(40, 96, 2), 240U + 960U);
  EXPECT_EQ(quantised_bytes(96, 40, 8), 384U + 3840U);  // 32 + 8: two groups in a row
  EXPECT_EQ(quantised_bytes(96, 40, 2), 384U + 960U);
  EXPECT_EQ(quantised_bytes(1, 8, 8), 8U + 8U);
  EXPECT_EQ(quantised_bytes(1, 8, 2), 8U + 8U);
  EXPECT_EQ(quantised_bytes(1, 40, 4), 8U + 24U);
}

TEST(quantise, eight_bits_by_hand) {
  const auto bytes =
      packed(halves_of({127 * 0.25F, -127 * 0.25F, 0, 0.25F, -0.25F, 16, -16, 25}), 1, 8, 8);
  // 0.25 is 0x3400; codes are levels + 128
  EXPECT_THAT(numbers(bytes),
              ElementsAre(0x00, 0x34, 0, 0, 0, 0, 0, 0, 255, 1, 128, 129, 127, 192, 64, 228));
}

TEST(quantise, four_bits_by_hand) {
  std::vector<float> weights(32, 0.5F);  // level 1 of the first group, whose scale is 0.5 (0x3800)
  weights[0] = 3.5F;
  weights[15] = -3.5F;
  weights[16] = -1.0F;
  weights[31] = 3.0F;
  for (const int level : {7, -7, 0, 1, -1, 2, -2, 3})
    weights.push_back(0.25F * static_cast<float>(level));
  const auto bytes = numbers(packed(halves_of(weights), 1, 40, 4));
  ASSERT_EQ(bytes.size(), 32U);
  const auto part = [&](std::ptrdiff_t from, std::ptrdiff_t to) {
    return std::vector<int>(bytes.begin() + from, bytes.begin() + to);
  };
  EXPECT_THAT(part(0, 8), ElementsAre(0x00, 0x38, 0x00, 0x34, 0, 0, 0, 0)) << "scales, zeros";
  EXPECT_EQ(bytes[8], 15 | 6 << 4) << "weights 0 and 16";
  EXPECT_THAT(part(9, 23), Each(9 | 9 << 4));
  EXPECT_EQ(bytes[23], 1 | 14 << 4) << "weights 15 and 31";
  EXPECT_THAT(part(24, 28), ElementsAre(15 | 7 << 4, 1 | 10 << 4, 8 | 6 << 4, 9 | 11 << 4))
      << "a group of 8 is 4 bytes";
  EXPECT_THAT(part(28, 32), Each(0));
}

TEST(quantise, two_bits_by_hand) {
  // scale 0.125 (0x3000), levels 1 0 -1 0 1 1 -1 0, codes 3 2 1 2 3 3 1 2
  EXPECT_THAT(
      numbers(packed(halves_of({0.125F, 0, -0.125F, 0, 0.125F, 0.125F, -0.125F, 0}), 1, 8, 2)),
      ElementsAre(0x00, 0x30, 0, 0, 0, 0, 0, 0, 3 | 1 << 2 | 3 << 4 | 1 << 6,
                  2 | 2 << 2 | 3 << 4 | 2 << 6, 0, 0, 0, 0, 0, 0));
}

TEST(quantise, nothing_stays_nothing) {
  for (const int bits : packed_widths) {
    const auto bytes = packed(std::vector<std::uint16_t>(40, 0x8000), 1, 40, bits);
    EXPECT_EQ(scale_at(bytes, 0), 0.0F);
    for (const float weight : unpacked(bytes, 1, 40, bits))
      EXPECT_EQ(std::bit_cast<std::uint32_t>(weight), 0U) << bits << " bits";
  }
}

TEST(quantise, the_least_and_the_largest_halves_have_a_scale) {
  for (const int bits : packed_widths) {
    std::vector<std::uint16_t> least(8, 0);
    least[3] = 0x0001;
    EXPECT_EQ(unpacked(packed(least, 1, 8, bits), 1, 8, bits)[3], 0x1p-24F) << bits << " bits";
    const std::vector<std::uint16_t> largest{0x7BFF, 0xFBFF, 0, 0, 0, 0, 0, 0};  // 65504, -65504
    const auto weights = unpacked(packed(largest, 1, 8, bits), 1, 8, bits);
    EXPECT_NEAR(weights[0], 65504.0F, 65504.0F / 256) << bits << " bits";
    EXPECT_NEAR(weights[1], -65504.0F, 65504.0F / 256) << bits << " bits";
  }
}

TEST(quantise, agrees_with_a_search_word_for_word) {
  constexpr std::size_t rows = 96;
  constexpr std::size_t columns = 72;  // groups of 32, 32 and 8
  for (const int bits : packed_widths) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const auto halves =
          seed % 2 == 0 ? trained(rows * columns, seed) : coarse(rows * columns, seed);
      const auto bytes = packed(halves, rows, columns, bits);
      const auto weights = unpacked(bytes, rows, columns, bits);
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t g = 0; g < 3; ++g) {
          std::vector<float> group;
          for (std::size_t c = g * 32; c < std::min<std::size_t>(columns, g * 32 + 32); ++c)
            group.push_back(hotset::half_to_float(halves[r * columns + c]));
          const auto wanted = brute_force(group, bits);
          ASSERT_EQ(scale_at(bytes, r * 3 + g), wanted.scale)
              << bits << " bits, row " << r << ", group " << g;
          for (std::size_t i = 0; i < group.size(); ++i) {
            ASSERT_EQ(weights[r * columns + g * 32 + i],
                      static_cast<float>(wanted.levels[i]) * wanted.scale)
                << bits << " bits, row " << r << ", group " << g << ", weight " << i;
          }
        }
      }
    }
  }
}

TEST(quantise, sixteen_bits_are_the_halves_as_they_are) {
  const auto halves = trained(3 * 40, 12);
  const auto bytes = packed(halves, 3, 40, 16);
  ASSERT_EQ(bytes.size(), 240U);
  EXPECT_EQ(std::memcmp(bytes.data(), halves.data(), bytes.size()), 0);
  const auto weights = unpacked(bytes, 3, 40, 16);
  for (std::size_t i = 0; i < halves.size(); ++i)
    ASSERT_EQ(weights[i], hotset::half_to_float(halves[i]));
}

TEST(dequantise, rows_are_the_rows_of_the_whole) {
  for (const int bits : {16, 8, 4, 2}) {
    const auto bytes = packed(trained(12 * 40, 13), 12, 40, bits);
    const auto whole = unpacked(bytes, 12, 40, bits);
    for (std::size_t first = 0; first < 12; ++first) {
      for (std::size_t count = 0; first + count <= 12; ++count) {
        std::vector<float> part(count * 40 + 1, 7.0F);
        dequantise_rows(bytes.data(), 12, 40, bits, first, count, part.data());
        EXPECT_TRUE(std::equal(part.begin(), part.end() - 1,
                               whole.begin() + static_cast<std::ptrdiff_t>(first * 40)));
        EXPECT_EQ(part.back(), 7.0F) << "no float behind the last is written";
      }
    }
  }
}

// An expert to compute, packed at one width.
struct expert_at {
  expert_at(const std::array<std::vector<std::uint16_t>, 3>& halves, std::size_t hidden,
            std::size_t inner, int width)
      : gate(packed(halves[0], inner, hidden, width)),
        up(packed(halves[1], inner, hidden, width)),
        down(packed(halves[2], hidden, inner, width)),
        bits(width) {}
  [[nodiscard]] expert_tensors tensors() const {
    const auto at = [](const std::vector<std::byte>& bytes) {
      return reinterpret_cast<const std::uint16_t*>(bytes.data());
    };
    return {at(gate), at(up), at(down), bits};
  }
  std::vector<std::byte> gate, up, down;
  int bits;
};

constexpr std::size_t hidden_size = 96;
constexpr std::size_t inner_size = 40;
constexpr std::size_t most_rows = 64;

std::vector<float> noise(std::size_t count, std::uint64_t seed) {
  hotset::splitmix64 random(seed);
  std::vector<float> out(count);
  for (float& value : out) value = static_cast<float>(2.0 * random.uniform() - 1.0);
  return out;
}

std::vector<float> computed(const expert_tensors& expert, const std::vector<float>& hidden,
                            std::span<const expert_row> rows) {
  std::vector<float> out(rows.size() * hidden_size, std::numeric_limits<float>::quiet_NaN());
  std::vector<float> scratch(expert_scratch(hidden_size, inner_size, rows.size()));
  run_expert(expert, hidden_size, inner_size, hidden.data(), rows, out.data(), scratch.data());
  return out;
}

TEST(quantised_expert, agrees_with_the_formula_in_double) {
  const auto hidden = noise(hidden_size, 22);
  const std::array halves{trained(3840, 23), trained(3840, 24), trained(3840, 25)};
  const expert_row only{};
  for (const int bits : {16, 8, 4, 2}) {
    const expert_at expert(halves, hidden_size, inner_size, bits);
    const auto gate = unpacked(expert.gate, inner_size, hidden_size, bits);
    const auto up = unpacked(expert.up, inner_size, hidden_size, bits);
    const auto down = unpacked(expert.down, hidden_size, inner_size, bits);
    const auto sum = [](const float* left, const auto* right, std::size_t count) {
      double out = 0.0;
      for (std::size_t i = 0; i < count; ++i)
        out += static_cast<double>(left[i]) * static_cast<double>(right[i]);
      return out;
    };
    std::vector<double> middle(inner_size);
    for (std::size_t j = 0; j < inner_size; ++j) {
      const double g = sum(gate.data() + j * hidden_size, hidden.data(), hidden_size);
      middle[j] =
          g / (1.0 + std::exp(-g)) * sum(up.data() + j * hidden_size, hidden.data(), hidden_size);
    }
    const auto out = computed(expert.tensors(), hidden, {&only, 1});
    for (std::size_t o = 0; o < hidden_size; ++o)
      EXPECT_NEAR(out[o], sum(down.data() + o * inner_size, middle.data(), inner_size), 1e-6)
          << bits;
  }
}

TEST(quantised_expert, gives_a_row_the_same_bytes_in_every_batch) {
  const auto hidden = noise(most_rows * hidden_size, 26);
  const std::array halves{trained(3840, 27), trained(3840, 28), trained(3840, 29)};
  for (const int bits : {16, 8, 4, 2}) {
    const expert_at expert(halves, hidden_size, inner_size, bits);
    std::vector<std::vector<float>> alone;
    for (std::size_t t = 0; t < most_rows; ++t) {
      const expert_row row{.token = static_cast<std::int32_t>(t), .place = 0};
      alone.push_back(computed(expert.tensors(), hidden, {&row, 1}));
    }
    EXPECT_NE(alone[0], alone[1]);
    for (std::size_t count = 1; count <= most_rows; ++count) {
      std::vector<expert_row> batch;
      for (std::size_t i = 0; i < count; ++i)
        batch.push_back({static_cast<std::int32_t>((i * 37 + count) % most_rows),
                         static_cast<std::int32_t>(i)});
      const auto together = computed(expert.tensors(), hidden, batch);
      for (const expert_row& row : batch) {
        ASSERT_EQ(std::memcmp(together.data() + static_cast<std::size_t>(row.place) * hidden_size,
                              alone[static_cast<std::size_t>(row.token)].data(),
                              hidden_size * sizeof(float)),
                  0)
            << bits << " bits, row " << row.token << " of " << count;
      }
    }
  }
}

}  // namespace
}  // namespace quantised_test
