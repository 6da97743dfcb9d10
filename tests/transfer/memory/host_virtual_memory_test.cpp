// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/memory/host_virtual_memory.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "host_mappings.hpp"

namespace hotset::host_virtual_memory_test {
namespace {

using enum memory_status;
using support::is_readable;
using support::memory_file_bytes;

struct host_virtual_memory_pages : testing::Test {
  host_virtual_memory memory = host_virtual_memory::create().value();
  const std::size_t unit = memory.granularity();

  std::span<std::byte> reserve(std::size_t units) {
    std::span<std::byte> range;
    EXPECT_EQ(memory.reserve(units * unit, range), ok);
    return range;
  }
  memory_block block(std::size_t units = 1) {
    memory_block made;
    EXPECT_EQ(memory.create_block(units * unit, made), ok);
    return made;
  }
};

TEST_F(host_virtual_memory_pages, addresses_cost_no_memory_and_cannot_be_read) {
  const auto range = reserve(1 << 20);
  EXPECT_EQ(memory_file_bytes(), 0U);
  EXPECT_FALSE(is_readable(range.data()));
  ASSERT_EQ(memory.map(range, unit, block()), ok);
  EXPECT_FALSE(is_readable(range.data()));
  EXPECT_TRUE(is_readable(range.data() + unit));
  EXPECT_FALSE(is_readable(range.data() + 2 * unit));
  ASSERT_EQ(memory.unmap(range, unit, unit), ok);
  EXPECT_FALSE(is_readable(range.data() + unit));
  ASSERT_EQ(memory.release(range), ok);
}

TEST_F(host_virtual_memory_pages, a_blocks_memory_lives_from_creation_to_destruction) {
  const auto first = block(3);
  EXPECT_EQ(memory_file_bytes(), 3 * unit);
  const auto second = block();
  EXPECT_EQ(memory_file_bytes(), 4 * unit);
  EXPECT_EQ(memory.destroy_block(first), ok);
  EXPECT_EQ(memory_file_bytes(), unit);
  EXPECT_EQ(memory.destroy_block(second), ok);
  EXPECT_EQ(memory_file_bytes(), 0U);
}

// A forked process would otherwise write the pages of its parent.
TEST_F(host_virtual_memory_pages, a_forked_process_has_none_of_the_pages) {
  const auto range = reserve(2);
  ASSERT_EQ(memory.map(range, 0, block()), ok);
  range[0] = std::byte{1};
  const auto child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(is_readable(range.data()) ? 1 : 0);
  int ended = 0;
  ASSERT_EQ(::waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0);
  EXPECT_EQ(range[0], std::byte{1});
}

TEST_F(host_virtual_memory_pages, a_new_block_holds_zeros_whatever_was_there_before) {
  const auto range = reserve(1);
  for (int turn = 0; turn < 3; ++turn) {
    const auto b = block();
    ASSERT_EQ(memory.map(range, 0, b), ok);
    EXPECT_EQ(range[0], std::byte{0});
    range[0] = std::byte{7};
    ASSERT_EQ(memory.unmap(range, 0, unit), ok);
    ASSERT_EQ(memory.destroy_block(b), ok);
  }
  ASSERT_EQ(memory.release(range), ok);
}

std::int64_t faults_of_this_thread() {
  rusage used{};
  EXPECT_EQ(::getrusage(RUSAGE_THREAD, &used), 0);
  return used.ru_minflt;
}

TEST_F(host_virtual_memory_pages, a_mapped_block_is_written_without_a_fault_for_each_page) {
  constexpr std::size_t units = 1024;
  const auto range = reserve(units);
  // AddressSanitizer's shadow of the range is an eighth of it: its page faults come before the counted ones.
  const auto other = block(units);
  ASSERT_EQ(memory.map(range, 0, other), ok);
  for (std::size_t at = 0; at < range.size(); at += unit) range[at] = std::byte{6};
  ASSERT_EQ(memory.unmap(range, 0, range.size()), ok);
  ASSERT_EQ(memory.destroy_block(other), ok);
  const auto pages = block(units);
  for (int times = 0; times < 2; ++times) {  // once with a new block, once with a used one
    ASSERT_EQ(memory.map(range, 0, pages), ok);
    const auto before = faults_of_this_thread();
    for (std::size_t at = 0; at < range.size(); at += unit) range[at] = std::byte{7};
    EXPECT_LT(faults_of_this_thread() - before, static_cast<std::int64_t>(units / 8)) << times;
    ASSERT_EQ(memory.unmap(range, 0, range.size()), ok);
  }
  EXPECT_EQ(memory.destroy_block(pages), ok);
  EXPECT_EQ(memory.release(range), ok);
}

TEST_F(host_virtual_memory_pages, more_than_the_machine_has_is_refused) {
  memory_block made;
  EXPECT_EQ(memory.create_block(std::size_t{1} << 50, made), out_of_memory);
  std::span<std::byte> range;
  EXPECT_EQ(memory.reserve(std::size_t{1} << 50, range), out_of_memory);
  EXPECT_TRUE(range.empty());
  EXPECT_EQ(memory.reserved_bytes(), 0U);
}

TEST_F(host_virtual_memory_pages, the_granularity_can_be_that_of_a_device) {
  constexpr auto two_mib = std::size_t{2} << 20;
  auto coarse = host_virtual_memory::create(two_mib).value();
  EXPECT_EQ(coarse.granularity(), two_mib);
  std::span<std::byte> range;
  EXPECT_EQ(coarse.reserve(unit, range), invalid_argument);
  EXPECT_EQ(coarse.reserve(two_mib, range), ok);
  EXPECT_EQ(coarse.release(range), ok);
  const auto refused = host_virtual_memory::create(unit + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "granularity = " + std::to_string(unit + 1) +
                                         " bytes, accepted: multiples of " + std::to_string(unit));
}

/// Takes the process's remaining mappings, as other code could, and releases them at the end.
class greedy_neighbour {
 public:
  greedy_neighbour() {
    // Alternating access rights, because neighbouring pages with equal rights are one mapping.
    for (std::size_t n = 0; n < taken_.size(); ++n) {
      taken_[n] = ::mmap(nullptr, 1, n % 2 == 0 ? PROT_READ : PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (taken_[n] != MAP_FAILED) continue;
      taken_[n] = nullptr;
      nothing_left_ = true;
      return;
    }
  }
  greedy_neighbour(const greedy_neighbour&) = delete;
  greedy_neighbour& operator=(const greedy_neighbour&) = delete;
  ~greedy_neighbour() {
    for (auto* const page : taken_)
      if (page != nullptr) ::munmap(page, 1);
  }
  [[nodiscard]] bool nothing_left() const { return nothing_left_; }

 private:
  std::array<void*, 64> taken_{};
  bool nothing_left_ = false;
};

TEST_F(host_virtual_memory_pages, the_limit_on_mappings_does_not_stop_an_unmap) {
  std::size_t limit = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  if (limit == 0 || limit > 100'000) GTEST_SKIP() << "vm.max_map_count is " << limit;
  const auto range = reserve(limit + 2);
  const auto b = block();
  for (int turn = 0; turn < 2; ++turn) {
    // Every second page, so that no two are one mapping.
    std::size_t end = 0;
    auto code = ok;
    for (; code == ok && end < limit; end += 2) code = memory.map(range, end * unit, b);
    ASSERT_EQ(code, out_of_memory);
    const greedy_neighbour neighbour;
    ASSERT_TRUE(neighbour.nothing_left());
    std::size_t refused = 0;
    for (std::size_t at = 0; at < end - 2; at += 2)
      refused += memory.unmap(range, at * unit, unit) == ok ? 0U : 1U;
    EXPECT_EQ(refused, 0U) << "in turn " << turn;
  }
  EXPECT_EQ(memory.release(range), ok);
}

TEST(host_virtual_memory, leaves_no_file_and_moves_with_its_state) {
  {
    auto first = host_virtual_memory::create().value();
    const auto unit = first.granularity();
    memory_block made;
    ASSERT_EQ(first.create_block(unit, made), ok);
    auto second = std::move(first);
    EXPECT_EQ(second.physical_bytes(), unit);
    EXPECT_EQ(memory_file_bytes(), unit);
  }
  EXPECT_EQ(memory_file_bytes(), 0U);
}

}  // namespace
}  // namespace hotset::host_virtual_memory_test
