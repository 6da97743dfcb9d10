// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/error.hpp"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace hotset::error_test {
namespace {

TEST(error, a_result_holds_a_value_or_a_reason) {
  result<int> good(7);
  EXPECT_TRUE(good);
  EXPECT_EQ(*good, 7);
  EXPECT_EQ(std::move(good).value(), 7);
  const result<int> bad(error{"slots = 0, accepted: 1 or more"});
  EXPECT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().message, "slots = 0, accepted: 1 or more");
}

TEST(error, value_reads_a_result_that_stays) {
  result<std::string> made(std::string("seven"));
  made.value() += " of nine";
  const auto& same = made;
  EXPECT_EQ(same.value(), "seven of nine");
  EXPECT_EQ(&made.value(), &*made) << "nothing is copied";
  const result<int> none(error{"the reason"});
  EXPECT_THROW((void)none.value(), invalid_config);
  result<int> empty(error{"the reason"});
  EXPECT_THROW((void)empty.value(), invalid_config);
}

TEST(error, a_result_gives_up_a_value_that_only_moves) {
  result<std::unique_ptr<int>> made(std::make_unique<int>(3));
  EXPECT_EQ(**made, 3);
  const std::unique_ptr<int> taken = *std::move(made);
  EXPECT_EQ(*taken, 3);
}

TEST(error, value_throws_the_reason) {
  try {
    (void)result<int>(error{"the reason"}).value();
    FAIL();
  } catch (const invalid_config& thrown) {
    EXPECT_STREQ(thrown.what(), "the reason");
  }
}

TEST(error, require_valid_throws_only_for_a_reason) {
  EXPECT_NO_THROW(require_valid(std::nullopt));
  EXPECT_THROW(require_valid(error{"no"}), invalid_config);
}

}  // namespace
}  // namespace hotset::error_test
