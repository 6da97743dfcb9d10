// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/memory/mapping_ledger.hpp"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace hotset::mapping_ledger_test {
namespace {

using enum memory_status;

struct mapping_ledger_rules : testing::Test {
  static constexpr std::size_t unit = 8;
  std::vector<std::byte> addresses{10 * unit};
  std::span<std::byte> range{addresses};
  mapping_ledger ledger{unit};

  void SetUp() override {
    ASSERT_EQ(ledger.get_ready(), ok);
    ledger.on_reserve(range);
  }
  memory_block create(std::size_t bytes, std::uint64_t handle) {
    EXPECT_EQ(ledger.get_ready(), ok);
    return ledger.on_create(bytes, handle);
  }
  memory_status map(std::size_t offset, const memory_block& block) {
    const auto code = ledger.check_map(range, offset, block);
    if (code == ok && ledger.get_ready() == ok) ledger.on_map(range, offset, block);
    return code;
  }
};

TEST_F(mapping_ledger_rules, sizes_are_positive_multiples) {
  EXPECT_EQ(ledger.check_size(unit), ok);
  EXPECT_EQ(ledger.check_size(5 * unit), ok);
  for (const std::size_t bad : {std::size_t{0}, std::size_t{1}, unit - 1, unit + 1})
    EXPECT_EQ(ledger.check_size(bad), invalid_argument) << bad;
}

TEST_F(mapping_ledger_rules, a_place_is_inside_and_free) {
  const auto block = create(3 * unit, 7);
  EXPECT_EQ(map(1, block), invalid_argument);
  EXPECT_EQ(map(8 * unit, block), invalid_argument) << "the end is outside";
  EXPECT_EQ(map(10 * unit, block), invalid_argument);
  EXPECT_EQ(map(std::numeric_limits<std::size_t>::max() - unit + 1, block), invalid_argument);
  EXPECT_EQ(map(3 * unit, block), ok);
  for (std::size_t at = 1; at < 6; ++at) EXPECT_EQ(map(at * unit, block), in_use) << at;
  EXPECT_EQ(map(0, block), ok) << "right before";
  EXPECT_EQ(map(6 * unit, block), ok) << "right behind";
}

TEST_F(mapping_ledger_rules, only_what_was_mapped_is_unmapped) {
  const auto block = create(2 * unit, 7);
  ASSERT_EQ(map(2 * unit, block), ok);
  EXPECT_EQ(ledger.check_unmap(range, 2 * unit, unit), invalid_argument);
  EXPECT_EQ(ledger.check_unmap(range, 3 * unit, unit), invalid_argument);
  EXPECT_EQ(ledger.check_unmap(range, 2 * unit, 3 * unit), invalid_argument);
  EXPECT_EQ(ledger.check_unmap(range.first(unit), 2 * unit, 2 * unit), invalid_argument);
  EXPECT_EQ(ledger.check_unmap(range, 2 * unit, 2 * unit), ok);
  EXPECT_EQ(ledger.check_release(range), in_use);
  ledger.on_unmap(range, 2 * unit);
  EXPECT_EQ(ledger.check_unmap(range, 2 * unit, 2 * unit), invalid_argument);
  EXPECT_EQ(ledger.check_release(range), ok);
}

TEST_F(mapping_ledger_rules, a_range_is_released_as_it_was_reserved_and_once) {
  EXPECT_EQ(ledger.check_release(range.first(unit)), invalid_argument);
  EXPECT_EQ(ledger.check_release(range.subspan(unit)), invalid_argument);
  EXPECT_EQ(ledger.check_release({}), invalid_argument);
  EXPECT_EQ(ledger.reserved_bytes(), 10 * unit);
  ledger.on_release(range);
  EXPECT_EQ(ledger.reserved_bytes(), 0U);
  EXPECT_EQ(ledger.check_release(range), invalid_argument);
  EXPECT_EQ(map(0, create(unit, 7)), invalid_argument);
}

TEST_F(mapping_ledger_rules, a_block_is_gone_with_its_handle_and_its_last_place) {
  const auto block = create(unit, 7);
  ASSERT_EQ(map(0, block), ok);
  ASSERT_EQ(map(unit, block), ok);
  EXPECT_EQ(ledger.physical_bytes(), unit);
  EXPECT_FALSE(ledger.on_unmap(range, 0).has_value());
  EXPECT_FALSE(ledger.on_destroy(block).has_value());
  EXPECT_EQ(ledger.physical_bytes(), unit);
  EXPECT_EQ(ledger.check_destroy(block), invalid_argument);
  EXPECT_EQ(map(2 * unit, block), invalid_argument) << "it was destroyed";
  EXPECT_EQ(ledger.on_unmap(range, unit), 7U);
  EXPECT_EQ(ledger.physical_bytes(), 0U);
}

TEST_F(mapping_ledger_rules, a_destroyed_block_is_not_taken_for_a_later_one_of_its_handle) {
  const auto first = create(unit, 7);
  ASSERT_EQ(map(0, first), ok);
  EXPECT_FALSE(ledger.on_destroy(first).has_value());
  const auto second = create(unit, 7);
  EXPECT_NE(first, second);
  EXPECT_EQ(ledger.check_destroy(first), invalid_argument);
  EXPECT_EQ(ledger.on_unmap(range, 0), 7U);
  EXPECT_EQ(ledger.check_destroy(second), ok);
  EXPECT_EQ(ledger.handle(second), 7U);
  EXPECT_EQ(ledger.on_destroy(second), 7U);
}

TEST_F(mapping_ledger_rules, what_is_no_block_is_refused) {
  const auto block = create(2 * unit, 7);
  EXPECT_EQ(map(0, {}), invalid_argument);
  EXPECT_EQ(map(0, {block.id, unit}), invalid_argument);
  EXPECT_EQ(map(0, {block.id + 1, 2 * unit}), invalid_argument);
  EXPECT_EQ(ledger.check_destroy({}), invalid_argument);
  EXPECT_EQ(ledger.check_destroy({block.id, unit}), invalid_argument);
}

}  // namespace
}  // namespace hotset::mapping_ledger_test
