// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "temporary_folder.hpp"
#include "tutorial_1_includes.inc"

#define main tutorial_main
#include "tutorial_1.inc"
#undef main

namespace {

/// Runs in a folder of its own.
struct tutorial_folder : testing::Test {
  tutorial_folder() { std::filesystem::current_path(folder.path()); }
  ~tutorial_folder() override { std::filesystem::current_path(before); }

  hotset::support::temporary_folder folder;
  std::filesystem::path before = std::filesystem::current_path();
};

TEST_F(tutorial_folder, without_an_array_its_program_fails) { EXPECT_EQ(tutorial_main(), 1); }

TEST_F(tutorial_folder, its_program_plans_each_visit_of_the_array) {
  constexpr std::array<std::int32_t, 4> ids{3, 1, 4, 15};
  std::string array(128, ' ');
  for (int visit = 0; visit < 32; ++visit)
    array.append(reinterpret_cast<const char*>(ids.data()), sizeof(ids));
  folder.write("ids.npy", array);
  testing::internal::CaptureStdout();
  EXPECT_EQ(tutorial_main(), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "64 copies, 50.0 % hits\n");
}

}  // namespace
