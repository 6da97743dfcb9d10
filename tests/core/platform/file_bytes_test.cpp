// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/platform/file_bytes.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trace_samples.hpp"

namespace hotset::file_bytes_test {
namespace {

std::string text_of(const std::vector<std::byte>& bytes) {
  std::string out;
  for (const auto b : bytes) out += static_cast<char>(b);
  return out;
}

TEST(file_bytes, are_the_whole_file) {
  const trace_samples::temporary_folder folder;
  std::string large;  // more than two pieces, the last one partial
  for (int i = 0; i < 1'000'000; ++i) large += std::to_string(i % 97) + '\n';
  for (const std::string& content : {std::string(), std::string("a\0b\r\n", 5), large}) {
    const auto found = file_bytes(folder.write("content", content).string(), 1U << 24U);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(text_of(*found), content);
  }
}

TEST(file_bytes, of_more_than_are_accepted_are_refused) {
  const trace_samples::temporary_folder folder;
  const auto path = folder.write("content", "four").string();
  EXPECT_TRUE(file_bytes(path, 4));
  EXPECT_EQ(file_bytes(path, 3).error().message,
            path + ": more than 3 bytes, accepted: at most that");
  EXPECT_THAT(file_bytes("/dev/zero", 100).error().message, testing::HasSubstr("more than 100"));
}

TEST(file_bytes, of_a_path_that_is_no_file_are_refused_by_name) {
  const trace_samples::temporary_folder folder;
  for (const auto& path : {folder.path(), folder.path() / "absent"})
    EXPECT_EQ(file_bytes(path.string(), 100).error().message,
              path.string() + ": cannot be read, accepted: a file");
  EXPECT_EQ(file_bytes("new\nline", 100).error().message,
            "new?line: cannot be read, accepted: a file");
}

TEST(saved_numbers, are_little_endian_and_need_no_alignment) {
  const std::vector<std::uint32_t> numbers{
      0x04030201U, 0, 1, 255, 256, 0x80000000U, std::numeric_limits<std::uint32_t>::max()};
  std::vector<std::byte> bytes{std::byte{7}};  // no number is aligned
  for (const auto n : numbers) save_number(n, bytes);
  EXPECT_EQ(bytes[1], std::byte{1});
  EXPECT_EQ(bytes[4], std::byte{4});
  for (std::size_t i = 0; i < numbers.size(); ++i)
    EXPECT_EQ(saved_number(bytes, 1 + 4 * i), numbers[i]);
}

}  // namespace
}  // namespace hotset::file_bytes_test
