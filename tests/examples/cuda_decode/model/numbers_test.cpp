// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/model/numbers.hpp"

#include <bit>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace cuda_decode::numbers_test {
namespace {

// sign * mantissa * 2^exponent, from the definitions of the formats.
float value(bool negative, double mantissa, int exponent) {
  return static_cast<float>(std::ldexp(negative ? -mantissa : mantissa, exponent));
}

TEST(numbers, e4m3_is_its_definition_for_all_bytes) {
  for (std::uint32_t b = 0; b < 256; ++b) {
    const int e = static_cast<int>((b >> 3U) & 15U);
    const int m = static_cast<int>(b & 7U);
    if ((b & 127U) == 127U) {
      EXPECT_TRUE(std::isnan(from_e4m3(b)));
      continue;
    }
    const auto wanted = e == 0 ? value(b > 127, m / 8.0, -6) : value(b > 127, 1 + m / 8.0, e - 7);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(from_e4m3(b)), std::bit_cast<std::uint32_t>(wanted))
        << b;
  }
  EXPECT_EQ(from_e4m3(0x7e), 448.0F);
}

TEST(numbers, e2m1_is_its_eight_values_and_their_negatives) {
  const std::vector<float> values = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (std::uint32_t b = 0; b < 8; ++b) {
    EXPECT_EQ(from_e2m1(b), values[b]);
    EXPECT_EQ(from_e2m1(b | 8U), -values[b]);
    EXPECT_TRUE(std::signbit(from_e2m1(b | 8U)));
  }
}

TEST(numbers, f16_is_its_definition_for_all_values) {
  for (std::uint32_t b = 0; b < 65536; ++b) {
    const bool negative = b > 32767;
    const int e = static_cast<int>((b >> 10U) & 31U);
    const int m = static_cast<int>(b & 1023U);
    if (e == 31) {
      EXPECT_EQ(std::isnan(from_f16(b)), m != 0);
      EXPECT_EQ(std::isinf(from_f16(b)), m == 0);
      continue;
    }
    const auto wanted =
        e == 0 ? value(negative, m / 1024.0, -14) : value(negative, 1 + m / 1024.0, e - 15);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(from_f16(b)), std::bit_cast<std::uint32_t>(wanted)) << b;
  }
}

TEST(numbers, scales_and_bf16) {
  for (std::uint32_t b = 0; b < 255; ++b)
    EXPECT_EQ(from_e8m0(b), value(false, 1, static_cast<int>(b) - 127));
  EXPECT_TRUE(std::isnan(from_e8m0(255)));
  EXPECT_EQ(from_bf16(0x3f80), 1.0F);
  EXPECT_EQ(from_bf16(0xc040), -3.0F);
}

}  // namespace
}  // namespace cuda_decode::numbers_test
