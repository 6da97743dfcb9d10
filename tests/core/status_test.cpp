// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/status.hpp"

#include <set>
#include <string_view>

#include <gtest/gtest.h>

namespace hotset::status_test {
namespace {

TEST(status, every_code_has_words_of_its_own) {
  std::set<std::string_view> words;
  for (int code = 0; code <= static_cast<int>(status::invalid_argument); ++code)
    words.insert(describe(static_cast<status>(code)));
  EXPECT_EQ(words.size(), static_cast<std::size_t>(status::invalid_argument) + 1);
  EXPECT_EQ(words.count("unknown status"), 0U);
  EXPECT_EQ(describe(static_cast<status>(200)), "unknown status");
}

TEST(status, zero_is_ok) { EXPECT_EQ(static_cast<int>(status::ok), 0); }

}  // namespace
}  // namespace hotset::status_test
