// SPDX-License-Identifier: Apache-2.0
#include "hotset/uring/uring_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "fills.hpp"
#include "host_experts.hpp"
#include "hotset/transfer/host_backend.hpp"
#include "random_source.hpp"
#include "temporary_folder.hpp"

namespace hotset::uring_file_test {
namespace {

using support::pattern;
using testing::HasSubstr;

constexpr std::size_t piece = uring_file::piece_bytes;
constexpr std::size_t file_bytes = 5 * piece * uring_file::depth / 2 + 777;

/// A file whose bytes encode their offset.
class uring_files : public testing::Test {
 protected:
  void SetUp() override {
    std::string bytes(file_bytes, '\0');
    for (std::size_t at = 0; at < bytes.size(); ++at) bytes[at] = static_cast<char>(byte_at(at));
    std::ofstream(path, std::ios::binary) << bytes;
    if (const auto opened = uring_file::open(path, false); !opened)
      GTEST_SKIP() << opened.error().message;
  }

  static std::byte byte_at(std::size_t at) { return pattern({0_layer, 0_expert}, at / piece, at); }
  static bool is_from(std::size_t at, std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] != byte_at(at + i)) return false;
    return true;
  }

  const support::temporary_folder folder;
  const std::string path = folder.file("experts");
};

TEST_F(uring_files, any_part_of_the_file_is_that_part) {
  const auto file = uring_file::open(path, false).value();
  EXPECT_EQ(file.size(), file_bytes);
  support::random_source random(5);
  constexpr auto most = piece * uring_file::depth;
  std::vector<std::size_t> sizes{1, piece - 1, piece, piece + 1, most, most + 1, file_bytes};
  for (int n = 0; n < 20; ++n) sizes.push_back(1 + random.below(file_bytes));
  for (const auto size : sizes) {
    const auto at = size == file_bytes ? 0 : random.below(file_bytes - size + 1);
    std::vector<std::byte> to(size);
    const auto done = std::min(size, most);
    ASSERT_EQ(file.read(at, to), static_cast<std::ptrdiff_t>(done));
    ASSERT_TRUE(is_from(at, std::span(to).first(done))) << size << " bytes at " << at;
  }
}

TEST_F(uring_files, a_read_past_the_end_stops_there) {
  const auto file = uring_file::open(path, false).value();
  for (const auto left : {std::size_t{1}, piece, 3 * piece + 5}) {
    std::vector<std::byte> to(left + 2 * piece);
    ASSERT_EQ(file.read(file_bytes - left, to), static_cast<std::ptrdiff_t>(left));
    ASSERT_TRUE(is_from(file_bytes - left, std::span(to).first(left)));
  }
  std::array<std::byte, 4> none{};
  EXPECT_EQ(file.read(file_bytes, none), 0);
  EXPECT_EQ(file.read(file_bytes + 10 * piece, none), 0);
}

TEST_F(uring_files, a_file_truncated_while_open_ends_at_its_new_size) {
  const auto file = uring_file::open(path, false).value();
  std::filesystem::resize_file(path, 2 * piece + 3);
  std::vector<std::byte> to(file_bytes);
  EXPECT_EQ(file.read(0, to), static_cast<std::ptrdiff_t>(2 * piece + 3));
  EXPECT_TRUE(is_from(0, std::span(to).first(2 * piece + 3)));
}

TEST_F(uring_files, an_error_equals_preads) {
  const auto file = uring_file::open(path, false).value();
  // Unmapped memory: the kernel cannot write to it.
  const std::span<std::byte> nowhere(reinterpret_cast<std::byte*>(4096), 64);
  errno = 0;
  EXPECT_EQ(file.read(0, nowhere), -1);
  EXPECT_EQ(errno, EFAULT);
}

/// Replaces every ring of the program by a file descriptor that accepts no submissions.
void break_rings() {
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::vector<int> broken;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the descriptor of the folder itself
    if (std::filesystem::read_symlink(entry.path(), gone) == "anon_inode:[io_uring]")
      broken.push_back(std::stoi(entry.path().filename()));
  }
  for (const int ring : broken) ASSERT_EQ(::dup2(nothing, ring), ring);
  ::close(nothing);
}

// The pieces must not be submitted with the next read either, because their buffer is gone by then.
TEST_F(uring_files, a_ring_that_accepts_no_submissions_fails_and_is_replaced) {
  const auto file = uring_file::open(path, false).value();
  break_rings();
  std::vector<std::byte> to(3 * piece);
  errno = 0;
  EXPECT_EQ(file.read(0, to), -1);
  EXPECT_NE(errno, 0);
  EXPECT_EQ(file.read(piece, to), static_cast<std::ptrdiff_t>(to.size()));
  EXPECT_TRUE(is_from(piece, to));
}

TEST_F(uring_files, reads_are_safe_beside_each_other) {
  const auto file = uring_file::open(path, false).value();
  const auto run = [&](std::uint64_t seed) {
    support::random_source random(seed);
    std::vector<std::byte> to(3 * piece);
    for (int n = 0; n < 40; ++n) {
      const auto at = random.below(file_bytes - to.size());
      ASSERT_EQ(file.read(at, to), static_cast<std::ptrdiff_t>(to.size()));
      ASSERT_TRUE(is_from(at, to));
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 2 * uring_file::rings; ++t) threads.emplace_back(run, t);
  for (auto& t : threads) t.join();
}

TEST_F(uring_files, a_backend_copies_from_them) {
  const geometry shape{.layers = 1, .experts = 8, .top_k = 2};
  const std::vector<std::uint64_t> sizes{3 * piece + 11, 33};
  for (const auto how : {file_reads::cached, file_reads::direct}) {
    auto source = uring_expert_source::open(shape, {path}, how, 2);
    if (!source && how == file_reads::direct) {
      EXPECT_THAT(source.error().message, HasSubstr("accepted: cached ones"));
      continue;
    }
    const auto start = [&](expert_id e, std::size_t t) {
      return index_of(e) * 1000 + t * (sizes[0] + 5);
    };
    for (const auto e : each<expert_id>(8))
      ASSERT_FALSE(source->add({0_layer, e}, {},
                               std::array{file_extent{0, start(e, 0), sizes[0]},
                                          file_extent{0, start(e, 1), sizes[1]}}));
    const auto layout = pool_layout::shared(shape, 4).value();
    const auto bank =
        host_slot_bank::create(layout, {{{{"up", sizes[0]}, {"down", sizes[1]}}}}).value();
    host_backend<uring_expert_source> backend(*source, bank, {.threads = 3});
    host_stream stream;
    std::vector<fill> fills;
    for (const auto s : each<slot_id>(4))
      fills.push_back(support::fill_of({0_layer, expert_id{2 * number(s)}}, s));
    const auto sent = backend.submit(fills, stream, urgency::now);
    ASSERT_EQ(backend.wait(sent.id), transfer_state::arrived);
    for (const auto& f : fills)
      for (std::size_t t = 0; t < 2; ++t)
        EXPECT_TRUE(is_from(start(f.key.expert, t), bank.bytes(f.slot, t)));
  }
}

TEST(uring_file, a_file_that_is_not_there_is_refused) {
  EXPECT_EQ(uring_file::open("/absent.gguf", false).error().message,
            "cannot open /absent.gguf: No such file or directory");
}

}  // namespace
}  // namespace hotset::uring_file_test
