// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/posix_file.hpp"

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::posix_file_test {
namespace {

TEST(posix_file, reads_where_it_is_told_and_nothing_beyond_the_end) {
  const auto path = testing::TempDir() + "hotset_posix_file";
  std::ofstream(path) << "0123456789";
  auto opened = posix_file::open(path, false).value();
  const posix_file file = std::move(opened);
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(file.size(), 10U);
  std::array<std::byte, 4> to{};
  EXPECT_EQ(file.read(3, to), 4);
  EXPECT_EQ(std::memcmp(to.data(), "3456", 4), 0);
  EXPECT_EQ(file.read(8, to), 2);
  EXPECT_EQ(file.read(10, to), 0);
  std::filesystem::remove(path);
}

TEST(posix_file, what_is_no_file_is_refused) {
  EXPECT_EQ(posix_file::open("/nowhere/at/all", false).error().message,
            "cannot open /nowhere/at/all: No such file or directory");
  EXPECT_THAT(posix_file::open("/tmp", false).error().message, testing::HasSubstr("it is no file"));
}

}  // namespace
}  // namespace hotset::posix_file_test
