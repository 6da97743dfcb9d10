// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/numbers/units.hpp"

#include <cstdint>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace hotset::units_test {
namespace {

TEST(units, decimal_and_binary_units_differ_and_fractions_are_cut) {
  const std::pair<const char*, std::uint64_t> all[] = {
      {"24GB", 24'000'000'000U}, {"24GiB", 24_GiB},  {"1500MiB", 1500_MiB},
      {"3MB", 3'000'000U},       {"7kB", 7'000U},    {"7KB", 7'000U},
      {"7KiB", 7_KiB},           {"2TiB", 2048_GiB}, {"2TB", 2'000'000'000'000U},
      {"4096", 4096U},           {"4096B", 4096U},   {"0", 0U},
      {"1.5GiB", 1536_MiB},      {"1.9B", 1U},       {"8388607TiB", 8388607ULL << 40U}};
  for (const auto& [text, bytes] : all) EXPECT_EQ(parse_bytes(text), bytes) << text;
}

TEST(units, anything_else_is_refused) {
  for (const auto* text :
       {"",    " ",    "24XB",  "24 GB", " 24GB", "24GB ", "24gb",   "24G", "GB", "+1GB",  ".5GB",
        "1e3", "0x10", "1,5GB", "nan",   "inf",   "24GBs", "24GiBB", "--1", "-1", "-24GB", "-0"})
    EXPECT_FALSE(parse_bytes(text)) << "'" << text << "'";
}

TEST(units, more_than_the_signed_range_is_refused) {
  EXPECT_FALSE(parse_bytes("8388608TiB"));  // 2^63
  EXPECT_FALSE(parse_bytes("18446744073709551616"));
  EXPECT_FALSE(parse_bytes(std::string(400, '9')));
  EXPECT_FALSE(parse_bytes(std::string(300, '9') + "TiB"));
}

}  // namespace
}  // namespace hotset::units_test
