// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/error.hpp"

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/core/ids.hpp"

namespace hotset::error_test {
namespace {

TEST(error, a_result_holds_a_value_or_a_reason) {
  result<std::string> good(std::string("seven"));
  EXPECT_TRUE(good);
  good.value() += " of nine";
  EXPECT_EQ(&good.value(), &*good) << "nothing is copied";
  EXPECT_EQ(std::as_const(good).value(), "seven of nine");
  EXPECT_EQ(std::move(good).value(), "seven of nine");
  const result<int> bad(error{"slots = 0, accepted: 1 or more"});
  EXPECT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().message, "slots = 0, accepted: 1 or more");
}

TEST(error, a_refusal_is_its_parts_in_order) {
  const std::string text = "rows";
  EXPECT_EQ(refusal(text, " = ", 3, ", accepted: 1..", std::size_t{2}, " of ", 7_layer).message,
            "rows = 3, accepted: 1..2 of 7");
  EXPECT_EQ(refusal(std::string_view("share = "), 0.5).message, "share = 0.500000");
}

TEST(error, a_result_releases_a_move_only_value) {
  result<std::unique_ptr<int>> made(std::make_unique<int>(3));
  EXPECT_EQ(**made, 3);
  const std::unique_ptr<int> taken = *std::move(made);
  EXPECT_EQ(*taken, 3);
}

TEST(error, value_throws_the_reason) {
  const result<int> none(error{"the reason"});
  result<int> empty = none;
  const auto expect_thrown = [](auto value) {
    EXPECT_THAT(value, testing::ThrowsMessage<invalid_config>("the reason"));
  };
  expect_thrown([&] { (void)none.value(); });
  expect_thrown([&] { (void)empty.value(); });
  expect_thrown([&] { (void)std::move(empty).value(); });
}

TEST(error, require_valid_throws_only_for_a_reason) {
  EXPECT_NO_THROW(require_valid(std::nullopt));
  EXPECT_THROW(require_valid(error{"no"}), invalid_config);
}

struct notebook {
  std::vector<std::string> lines{};
  static void write(void* context, log_level level, std::string_view text) noexcept {
    static_cast<notebook*>(context)->lines.push_back(
        (level == log_level::error ? "error: " : "warning: ") + std::string(text));
  }
};

TEST(log, a_sink_hands_over_context_level_and_text_and_an_empty_one_drops_them) {
  log_sink{}(log_level::error, "lost");
  notebook first;
  notebook second;
  log_sink sink{&notebook::write, &first};
  sink(log_level::warning, "small");
  const log_sink copy = sink;
  sink.context = &second;
  copy(log_level::error, "lost");
  sink(log_level::error, "");
  EXPECT_THAT(first.lines, testing::ElementsAre("warning: small", "error: lost"));
  EXPECT_THAT(second.lines, testing::ElementsAre("error: "));
}

// A log_sink is copied with configurations and is called from functions that must not throw.
static_assert(std::is_trivially_copyable_v<log_sink>);
static_assert(std::is_nothrow_invocable_v<const log_sink&, log_level, std::string_view>);

}  // namespace
}  // namespace hotset::error_test
