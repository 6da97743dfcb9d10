// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/platform/log.hpp"

#include <string>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::log_test {
namespace {

struct notebook {
  std::vector<std::string> lines{};
  static void write(void* context, log_level level, std::string_view text) noexcept {
    static_cast<notebook*>(context)->lines.push_back(
        (level == log_level::error ? "error: " : "warning: ") + std::string(text));
  }
};

TEST(log, an_empty_sink_tells_nobody) {
  const log_sink sink;
  sink(log_level::error, "lost");
  EXPECT_EQ(sink.write, nullptr);
  EXPECT_EQ(sink.context, nullptr);
}

TEST(log, a_sink_hands_over_context_level_and_text) {
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

// It stands in configurations that are copied, and is told from calls that may not throw.
static_assert(std::is_trivially_copyable_v<log_sink>);
static_assert(std::is_nothrow_invocable_v<const log_sink&, log_level, std::string_view>);

}  // namespace
}  // namespace hotset::log_test
