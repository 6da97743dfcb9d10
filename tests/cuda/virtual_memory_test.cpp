// SPDX-License-Identifier: Apache-2.0
#include "hotset/cuda/virtual_memory.hpp"

#include <array>
#include <span>
#include <utility>

#include <gtest/gtest.h>

#include "fake_cuda_driver.hpp"
#include "hotset/transfer/memory/host_virtual_memory.hpp"
#include "hotset/transfer/memory/virtual_memory.hpp"

namespace hotset::virtual_memory_test {
namespace {

using enum memory_status;
using support::fake_cuda_driver;
using call = fake_cuda_driver::call;
using cuda::error_code;

static_assert(maps_ranges<cuda::virtual_memory>);
static_assert(!maps_ranges<host_virtual_memory>);

constexpr auto unit = std::size_t{2} << 20;

struct cuda_virtual_memory : testing::Test {
  fake_cuda_driver driver;
  cuda::virtual_memory memory = cuda::virtual_memory::create(driver, 1).value();
  std::span<std::byte> range{};
  memory_block block{};

  void SetUp() override {
    ASSERT_EQ(memory.reserve(4 * unit, range), ok);
    ASSERT_EQ(memory.create_block(unit, block), ok);
  }
  void TearDown() override {
    EXPECT_EQ(memory.destroy_block(block), ok);
    EXPECT_EQ(memory.release(range), ok);
    EXPECT_TRUE(driver.leaks().empty()) << driver.leaks().front();
    EXPECT_EQ(driver.physical_bytes(), 0U);
    EXPECT_TRUE(driver.violations().empty()) << driver.violations().front();
  }
};

TEST_F(cuda_virtual_memory, takes_granularity_and_device_from_its_driver) {
  EXPECT_EQ(memory.granularity(), unit);
  EXPECT_EQ(memory.device(), 1);
  fake_cuda_driver fine(65536);
  EXPECT_EQ(cuda::virtual_memory::create(fine, 0).value().granularity(), 65536U);
}

TEST_F(cuda_virtual_memory, a_device_that_is_none_has_a_reason) {
  const auto refused = cuda::virtual_memory::create(driver, 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "cuMemGetAllocationGranularity: cudaErrorOther (101): other");
}

TEST_F(cuda_virtual_memory, mapped_memory_can_be_accessed) {
  ASSERT_EQ(memory.map(range, unit, block), ok);
  auto* const byte = driver.touch(range.data() + unit);
  ASSERT_NE(byte, nullptr);
  *byte = std::byte{1};
  ASSERT_EQ(memory.unmap(range, unit, unit), ok);
  ASSERT_EQ(memory.map(range, 3 * unit, block), ok);
  EXPECT_EQ(*driver.touch(range.data() + 3 * unit), std::byte{1});
  EXPECT_EQ(memory.unmap(range, 3 * unit, unit), ok);
}

// Hazard 27: a failed mapping step leaks.
TEST_F(cuda_virtual_memory, a_place_without_access_is_no_mapping) {
  driver.fail(call::set_access, 1, error_code::not_supported);
  EXPECT_EQ(memory.map(range, 0, block), failed);
  EXPECT_EQ(memory.unmap(range, 0, unit), invalid_argument) << "nothing is there";
  ASSERT_EQ(memory.map(range, 0, block), ok) << "the granule is as good as before";
  EXPECT_NE(driver.touch(range.data()), nullptr);
  EXPECT_EQ(memory.unmap(range, 0, unit), ok);
}

TEST_F(cuda_virtual_memory, a_mapping_that_cannot_be_undone_can_be_unmapped_later) {
  driver.fail(call::set_access, 1, error_code::not_supported);
  driver.fail(call::unmap, 1, error_code::unknown);
  EXPECT_EQ(memory.map(range, 0, block), failed);
  EXPECT_EQ(memory.map(range, 0, block), in_use);
  EXPECT_EQ(memory.release(range), in_use);
  EXPECT_EQ(memory.unmap(range, 0, unit), ok);
}

TEST_F(cuda_virtual_memory, out_of_memory_differs_from_other_refusals) {
  memory_block made;
  driver.fail(call::create, 1, error_code::memory_allocation);
  EXPECT_EQ(memory.create_block(unit, made), out_of_memory);
  driver.fail(call::create, 1, error_code::unknown);
  EXPECT_EQ(memory.create_block(unit, made), failed);
}

TEST_F(cuda_virtual_memory, a_reused_handle_names_another_block) {
  ASSERT_EQ(memory.map(range, 0, block), ok);
  ASSERT_EQ(memory.destroy_block(block), ok);
  const auto stale = block;
  ASSERT_EQ(memory.create_block(unit, block), ok);
  EXPECT_EQ(memory.destroy_block(stale), invalid_argument);
  EXPECT_EQ(memory.physical_bytes(), 2 * unit);
  EXPECT_EQ(memory.unmap(range, 0, unit), ok);
  EXPECT_EQ(memory.physical_bytes(), unit);
}

/// Blocks of 1, 2 and 1 units, and a range with additional room.
struct cuda_map_range : testing::Test {
  fake_cuda_driver driver;
  cuda::virtual_memory memory = cuda::virtual_memory::create(driver, 1).value();
  std::span<std::byte> range{};
  std::array<memory_block, 3> blocks{};

  void SetUp() override {
    ASSERT_EQ(memory.reserve(8 * unit, range), ok);
    ASSERT_EQ(memory.create_block(unit, blocks[0]), ok);
    ASSERT_EQ(memory.create_block(2 * unit, blocks[1]), ok);
    ASSERT_EQ(memory.create_block(unit, blocks[2]), ok);
  }
  void TearDown() override {
    for (const auto& block : blocks) EXPECT_EQ(memory.destroy_block(block), ok);
    EXPECT_EQ(memory.release(range), ok);
    EXPECT_TRUE(driver.leaks().empty()) << driver.leaks().front();
    EXPECT_TRUE(driver.violations().empty()) << driver.violations().front();
  }
  /// Resources held beyond the range and the three blocks.
  [[nodiscard]] std::size_t held() const { return driver.leaks().size() - 4; }
};

TEST_F(cuda_map_range, maps_each_block_and_gives_access_once) {
  ASSERT_EQ(memory.map_range(range, unit, blocks), ok);
  EXPECT_EQ(driver.calls(call::map), 3U);
  EXPECT_EQ(driver.calls(call::set_access), 1U);
  for (std::size_t u = 0; u < 8; ++u)
    EXPECT_EQ(driver.has_access(range.data() + u * unit), u >= 1 && u < 5) << u;
  EXPECT_EQ(memory.unmap(range, 4 * unit, unit), ok);
  EXPECT_EQ(memory.unmap(range, 2 * unit, 2 * unit), ok) << "each is a mapping of its own";
  EXPECT_EQ(memory.unmap(range, unit, unit), ok);
  EXPECT_EQ(memory.map_range(range, unit, {}), ok);
  EXPECT_EQ(driver.calls(call::set_access), 1U) << "of nothing";
}

TEST_F(cuda_map_range, maps_all_or_none_whichever_call_fails) {
  for (std::size_t nth = 1; nth <= 4; ++nth) {
    driver.fail(call::any, nth, error_code::unknown);
    EXPECT_EQ(memory.map_range(range, 0, blocks), failed) << nth;
    EXPECT_FALSE(driver.armed());
    EXPECT_EQ(held(), 0U) << nth;
    for (std::size_t u = 0; u < 4; ++u)
      EXPECT_EQ(memory.unmap(range, u * unit, unit), invalid_argument) << "nothing is there";
  }
  EXPECT_EQ(memory.map_range(range, 0, blocks), ok) << "no granule was poisoned";
  for (const auto& [offset, bytes] :
       {std::pair{0 * unit, unit}, {unit, 2 * unit}, {3 * unit, unit}})
    EXPECT_EQ(memory.unmap(range, offset, bytes), ok);
}

TEST_F(cuda_map_range, is_refused_before_the_driver_is_asked) {
  ASSERT_EQ(memory.map(range, 3 * unit, blocks[0]), ok);
  const auto before = driver.calls();
  EXPECT_EQ(memory.map_range(range, 0, blocks), in_use) << "by the third";
  EXPECT_EQ(memory.map_range(range, 5 * unit, blocks), invalid_argument) << "beyond the end";
  EXPECT_EQ(memory.map_range(range, 1, blocks), invalid_argument);
  const std::array stale{blocks[0], memory_block{99, unit}};
  EXPECT_EQ(memory.map_range(range, 0, stale), invalid_argument);
  EXPECT_EQ(driver.calls(), before);
  EXPECT_EQ(memory.unmap(range, 3 * unit, unit), ok);
}

TEST_F(cuda_map_range, a_failed_undo_is_recorded_and_can_be_unmapped_later) {
  for (std::size_t nth = 1; nth <= 3; ++nth) {
    driver.fail(call::set_access, 1, error_code::not_supported);
    driver.fail(call::unmap, nth, error_code::unknown);
    EXPECT_EQ(memory.map_range(range, 0, blocks), failed);
    EXPECT_EQ(held(), 1U);
    EXPECT_EQ(memory.release(range), in_use);
    const auto bytes = nth == 2 ? 2 * unit : unit;
    EXPECT_EQ(memory.unmap(range, (nth == 1 ? 3 : nth == 2 ? 1 : 0) * unit, bytes), ok);
  }
}

TEST(cuda_virtual_range, is_mapped_by_one_call_and_owns_what_stays_mapped) {
  fake_cuda_driver driver;
  auto memory = cuda::virtual_memory::create(driver, 0).value();
  {
    auto range = virtual_range<cuda::virtual_memory>::reserve(memory, 8 * unit).value();
    ASSERT_EQ(range.populate(0, unit, 3), ok);
    EXPECT_EQ(driver.calls(call::map), 3U);
    EXPECT_EQ(driver.calls(call::set_access), 1U);
    EXPECT_EQ(range.populate(2 * unit, unit, 2), in_use);
    EXPECT_EQ(range.mapped_bytes(), 3 * unit);
    const auto is_refused = [&](std::initializer_list<std::size_t> unmaps) {
      driver.fail(call::set_access, 1, error_code::unknown);
      for (const auto nth : unmaps) driver.fail(call::unmap, nth, error_code::unknown);
      return range.populate(4 * unit, unit, 2) == failed;
    };
    EXPECT_TRUE(is_refused({1}));
    EXPECT_EQ(range.mapped_bytes(), 3 * unit) << "it asked once more";
    EXPECT_TRUE(is_refused({1, 3}));
    EXPECT_EQ(range.mapped_bytes(), 4 * unit) << "without access, but its own";
    EXPECT_EQ(range.unmap(4 * unit, 2 * unit), ok);
    EXPECT_EQ(range.mapped_bytes(), 3 * unit);
    EXPECT_TRUE(is_refused({1, 3}));
  }
  EXPECT_TRUE(driver.leaks().empty()) << driver.leaks().front();
  EXPECT_TRUE(driver.violations().empty()) << driver.violations().front();
}

}  // namespace
}  // namespace hotset::virtual_memory_test
