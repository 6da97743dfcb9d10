// SPDX-License-Identifier: Apache-2.0
#include "lab/files/input_files.hpp"

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trace_samples.hpp"

namespace hotset::input_files_test {
namespace {

using lab::read_input;
using testing::ElementsAre;
using testing::FieldsAre;
using trace_samples::expect_refused;

/// A file of a tar archive: its header, and its text in blocks of 512 bytes.
std::string tar_member(const std::string& name, std::string_view text) {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, std::string_view field) {
    header.replace(at, field.size(), field);
  };
  put(0, name);
  put(124, fmt::format("{:011o}", text.size()));
  put(148, "        ");
  put(257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  std::string data(text);
  data.append((512 - data.size() % 512) % 512, '\0');
  return header + data;
}
std::string tar(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string out;
  for (const auto& [name, text] : files) out += tar_member(name, text);
  return out.append(1024, '\0');
}

class archives : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path archive(
      const std::vector<std::pair<std::string, std::string>>& files) const {
    return folder_.write("a.tar", tar(files));
  }
  trace_samples::temporary_folder folder_;
};

TEST_F(archives, of_an_archive_are_sorted_by_name) {
  EXPECT_THAT(read_input(archive({{"d/b.txt", "two"}, {"a.txt", "one"}})),
              ElementsAre(FieldsAre("a.txt", "one"), FieldsAre("b.txt", "two")));
}

TEST_F(archives, one_file_twice_in_an_archive_is_refused) {
  for (const auto* again : {"d/b.txt", "./d/b.txt", "d/./b.txt"})
    expect_refused(
        [&] {
          (void)read_input(archive({{"d/b.txt", "old"}, {again, "new"}}));
        },
        {"a.tar: d/b.txt: is in the archive twice; accepted: each file once"});
  EXPECT_EQ(read_input(archive({{"d/b.txt", "one"}, {"e/b.txt", "two"}})).size(), 2U)
      << "two folders";
}

TEST_F(archives, more_than_the_limit_is_refused) {
  const auto path = archive({{"a", "one"}, {"b", "two"}});
  expect_refused([&] { (void)read_input(path, 5); }, {"holds more than 5 bytes"});
  expect_refused([&] { (void)read_input(folder_.write("b", "plain text"), 9); },
                 {"holds more than 9 bytes"});
}

TEST_F(archives, the_beginning_of_an_archive_is_that_of_its_first_file) {
  const auto beginning = lab::read_beginning(archive({{"a", "one"}, {"b", "two"}}), 2);
  EXPECT_EQ(beginning.text, "on");
  EXPECT_TRUE(beginning.collection);
}

TEST_F(archives, a_damaged_archive_is_refused) {
  const auto whole = tar({{"a", std::string(2000, 'x')}});
  const auto path = folder_.write("a.tar", std::string_view(whole).substr(0, 1024));
  expect_refused([&] { (void)read_input(path); }, {"a.tar", "cannot be unpacked"});
}

}  // namespace
}  // namespace hotset::input_files_test
