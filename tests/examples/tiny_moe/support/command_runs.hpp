// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Runs the example's program and expects a refusal in one line.

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program_run.hpp"

namespace command_runs {

using outcome = hotset::support::program_outcome;

inline outcome run(const std::string& arguments) {
  return hotset::support::run_program("env -u HOTSET_TINY_MOE_DIR '" + std::string(TINY_MOE_CLI) +
                                      "' " + arguments);
}
inline void expect_refused(const std::string& arguments, int code, const std::string& says = {}) {
  const auto result = run(arguments + " 2>&1 >/dev/null");
  EXPECT_EQ(result.code, code) << arguments;
  EXPECT_THAT(result.text,
              testing::AllOf(testing::StartsWith("tiny_moe: "), testing::HasSubstr(says)))
      << arguments;
  EXPECT_EQ(std::ranges::count(result.text, '\n'), 1) << result.text;
}

}  // namespace command_runs
