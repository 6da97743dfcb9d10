// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/refuse_value.hpp"

#include <cstdint>

#include <gtest/gtest.h>

namespace hotset::refuse_value_test {
namespace {

TEST(refuse_value, names_the_number_and_what_is_accepted) {
  const auto bad = refuse_value("pages", std::uint64_t{1} << 63U, "at most 16");
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->message, "pages = 9223372036854775808, accepted: at most 16");
  EXPECT_EQ(refuse_value("layers", -3, "1..4096")->message, "layers = -3, accepted: 1..4096");
}

}  // namespace
}  // namespace hotset::refuse_value_test
