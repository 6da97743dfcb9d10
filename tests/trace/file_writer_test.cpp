// SPDX-License-Identifier: Apache-2.0
#include "hotset/trace/file_writer.hpp"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "trace_samples.hpp"

namespace file_writer_test {
namespace {
using namespace hotset;
using trace_samples::read_all;
using trace_samples::temporary_folder;

/// Records its notifications.
struct seen_files final : unfinished_files {
  std::vector<std::string> begun;
  int open = 0;
  void* begins(const char* path) noexcept override {
    begun.emplace_back(path);
    ++open;
    return this;
  }
  void ends(void* entry) noexcept override {
    EXPECT_EQ(entry, this);
    --open;
  }
};

TEST(file_writer, a_file_appears_whole_or_not_at_all) {
  const temporary_folder folder;
  const auto path = folder.write("f", "earlier").string();
  {
    file_writer file(path);
    file.write("half");
    file.flush();
    EXPECT_EQ(folder.files(), 2U);
    EXPECT_FALSE(file.problem());
  }
  EXPECT_EQ(read_all(path), "earlier");
  EXPECT_EQ(folder.files(), 1U);
  file_writer file(path);
  const std::string large(200000, 'x');
  file.write("whole ");
  file.write(large);
  file.write(" end");
  EXPECT_EQ(read_all(path), "earlier");
  EXPECT_FALSE(file.finish());
  EXPECT_EQ(read_all(path), "whole " + large + " end");
  EXPECT_EQ(folder.files(), 1U);
}

TEST(file_writer, watchers_learn_of_the_unfinished_file_and_its_end) {
  const temporary_folder folder;
  seen_files seen;
  const auto path = (folder.path() / "f").string();
  {
    file_writer file(path, &seen);
    ASSERT_EQ(seen.begun.size(), 1U);
    EXPECT_EQ(seen.open, 1);
    EXPECT_TRUE(std::filesystem::exists(seen.begun.front()));
  }
  EXPECT_EQ(seen.open, 0);
  EXPECT_EQ(folder.files(), 0U);
  file_writer file(path, &seen);
  EXPECT_FALSE(file.finish());
  EXPECT_EQ(seen.open, 0);
  file_writer none((folder.path() / "no" / "f").string(), &seen);
  EXPECT_EQ(seen.open, 0);
  EXPECT_TRUE(none.problem());
}

TEST(file_writer, links_are_followed_and_modes_are_kept) {
  const temporary_folder folder;
  const auto target = folder.write("target", "earlier");
  std::filesystem::permissions(target, std::filesystem::perms(0640));
  const auto link = folder.path() / "link";
  std::filesystem::create_symlink("target", link);
  file_writer file(link.string());
  file.write("new");
  EXPECT_FALSE(file.finish());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_all(target), "new");
  EXPECT_EQ(std::filesystem::status(target).permissions(), std::filesystem::perms(0640));
  EXPECT_EQ(folder.files(), 2U);
}

TEST(file_writer, a_pipe_by_name_gets_the_bytes_and_stays) {
  const temporary_folder folder;
  const auto path = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = read_all(path); });
  file_writer file(path.string());
  file.write("through");
  EXPECT_FALSE(file.finish());
  reader.join();
  EXPECT_EQ(got, "through");
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

TEST(file_writer, a_descriptor_is_shared_and_not_closed) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  for (const auto& text : {"by number", "by path"}) {
    const auto path = "/proc/self/fd/" + std::to_string(ends[1]);
    file_writer numbered(ends[1], "the pipe");
    file_writer named(path);
    EXPECT_TRUE(named.leads_to(ends[1]));
    EXPECT_FALSE(named.leads_to(2));
    auto& file = text[3] == 'n' ? numbered : named;
    file.write(text);
    EXPECT_FALSE(file.finish());
    char got[16]{};
    ASSERT_GT(::read(ends[0], got, sizeof got), 0);
    EXPECT_STREQ(got, text);
  }
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(file_writer, a_slow_reader_of_a_descriptor_that_does_not_block_gets_everything) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const std::string large(3'000'000, 'y');
  std::size_t got = 0;
  std::thread reader([&] {
    std::vector<char> part(100000);
    while (got < large.size()) {
      const auto n = ::read(ends[0], part.data(), part.size());
      if (n > 0) got += static_cast<std::size_t>(n);
    }
  });
  file_writer file(ends[1], "the socket");
  file.write(large);
  EXPECT_FALSE(file.finish());
  reader.join();
  EXPECT_EQ(got, large.size());
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(file_writer, a_full_devices_error_has_the_size_of_the_output) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  file_writer file(::open("/dev/full", O_WRONLY | O_CLOEXEC), "full");
  file.write(std::string(100000, 'x'));
  file.write("more");
  const auto bad = file.finish();
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->message,
            "full: cannot be written: No space left on device: 0 of 100004 bytes fitted");
}

TEST(file_writer, a_closed_descriptor_is_an_error) {
  file_writer file(999, "nothing");
  const auto bad = file.finish();
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->message, "nothing: cannot be written: Bad file descriptor");
}

}  // namespace
}  // namespace file_writer_test
