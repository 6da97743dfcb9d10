// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/numbers/units.hpp"

#include <string>

#include <gtest/gtest.h>

namespace hotset::units_test {
namespace {

TEST(units, decimal_and_binary_units_differ) {
  EXPECT_EQ(parse_bytes("24GB"), 24'000'000'000U);
  EXPECT_EQ(parse_bytes("24GiB"), 24_GiB);
  EXPECT_EQ(parse_bytes("1500MiB"), 1500_MiB);
  EXPECT_EQ(parse_bytes("3MB"), 3'000'000U);
  EXPECT_EQ(parse_bytes("7kB"), 7'000U);
  EXPECT_EQ(parse_bytes("7KB"), 7'000U);
  EXPECT_EQ(parse_bytes("7KiB"), 7_KiB);
  EXPECT_EQ(parse_bytes("2TB"), 2'000'000'000'000U);
  EXPECT_EQ(parse_bytes("2TiB"), 2048_GiB);
}

TEST(units, a_bare_number_is_bytes) {
  EXPECT_EQ(parse_bytes("4096"), 4096U);
  EXPECT_EQ(parse_bytes("4096B"), 4096U);
  EXPECT_EQ(parse_bytes("0"), 0U);
}

TEST(units, fractions_are_cut_to_whole_bytes) {
  EXPECT_EQ(parse_bytes("1.5GiB"), 1536_MiB);
  EXPECT_EQ(parse_bytes("1.9B"), 1U);
}

TEST(units, anything_else_is_refused) {
  for (const auto* text : {"", " ", "24XB", "24 GB", " 24GB", "24GB ", "24gb", "24G", "GB", "+1GB",
                           ".5GB", "1e3", "0x10", "1,5GB", "nan", "inf", "24GBs", "24GiBB", "--1"})
    EXPECT_FALSE(parse_bytes(text)) << "'" << text << "'";
}

TEST(units, negative_numbers_are_refused) {
  EXPECT_FALSE(parse_bytes("-1"));
  EXPECT_FALSE(parse_bytes("-24GB"));
  EXPECT_FALSE(parse_bytes("-0"));
}

TEST(units, more_than_the_signed_range_is_refused) {
  EXPECT_TRUE(parse_bytes("8388607TiB"));
  EXPECT_FALSE(parse_bytes("8388608TiB"));  // 2^63
  EXPECT_FALSE(parse_bytes("18446744073709551616"));
  EXPECT_FALSE(parse_bytes(std::string(400, '9')));
  EXPECT_FALSE(parse_bytes(std::string(300, '9') + "TiB"));
}

}  // namespace
}  // namespace hotset::units_test
