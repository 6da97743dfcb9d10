// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "readme_1_includes.inc"

#define main readme_main
#include "readme_1.inc"
#undef main

namespace {

std::string text_of(const std::string& file) {
  std::ifstream in(std::string(HOTSET_SOURCE_DIR) + '/' + file);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(readme, its_program_runs) { EXPECT_EQ(readme_main(), 0); }

TEST(readme, its_program_is_the_example) {
  auto program = text_of("examples/embed_cache/main.cpp");
  program.erase(0, program.find('\n') + 1);  // the licence line
  EXPECT_THAT(text_of("README.md"), testing::HasSubstr("```cpp\n" + program + "```"));
}

}  // namespace
