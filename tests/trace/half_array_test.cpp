// SPDX-License-Identifier: Apache-2.0
#include "hotset/trace/half_array.hpp"

#include <array>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace half_array_test {
namespace {
using namespace hotset;

TEST(half_array, every_half_survives_the_way_through_float) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = half_to_float(half);
    if (std::isnan(value)) {
      EXPECT_GT(bits & 0x7fffU, 0x7c00U);
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
    } else {
      ASSERT_EQ(float_to_half(value), half) << bits;
    }
  }
}

TEST(half_array, known_values) {
  EXPECT_EQ(half_to_float(0x3c00), 1.0F);
  EXPECT_EQ(half_to_float(0xc000), -2.0F);
  EXPECT_EQ(half_to_float(0x7bff), 65504.0F);
  EXPECT_EQ(half_to_float(0x0001), 0x1p-24F);
  EXPECT_EQ(half_to_float(0xfc00), -std::numeric_limits<float>::infinity());
}

TEST(half_array, rounds_to_nearest_with_ties_to_even) {
  EXPECT_EQ(float_to_half(1.0F + 0x1p-11F), 0x3c00);             // tie, even below
  EXPECT_EQ(float_to_half(1.0F + 0x3p-11F), 0x3c02);             // tie, even above
  EXPECT_EQ(float_to_half(1.0F + 0x1p-11F + 0x1p-20F), 0x3c01);  // above the tie
  EXPECT_EQ(float_to_half(65519.996F), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0F), 0x7c00);
  EXPECT_EQ(float_to_half(0x1p-25F), 0x0000);  // tie between 0 and the smallest number
  EXPECT_EQ(float_to_half(0x1.8p-25F), 0x0001);
  EXPECT_EQ(float_to_half(-0x1.ff8p-15F), 0x83ff);  // largest subnormal
  EXPECT_EQ(float_to_half(-0x1.ffcp-15F), 0x8400);  // tie between it and the smallest normal
}

TEST(half_array, reads_at_any_alignment_and_keeps_its_owner) {
  std::weak_ptr<std::array<std::byte, 5>> watch;
  {
    auto bytes = std::make_shared<std::array<std::byte, 5>>();
    watch = bytes;
    (*bytes)[1] = std::byte{0x00};
    (*bytes)[2] = std::byte{0x3c};
    (*bytes)[4] = std::byte{0x40};
    const half_array view(bytes, std::span<const std::byte>(*bytes).subspan(1, 4));
    bytes.reset();
    EXPECT_FALSE(watch.expired());
    ASSERT_EQ(view.size(), 2U);
    std::array<float, 2> out{};
    view.convert(0, out);
    EXPECT_EQ(out[0], 1.0F);
    EXPECT_EQ(out[1], 2.0F);
  }
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace half_array_test
