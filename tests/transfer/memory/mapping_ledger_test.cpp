// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/memory/mapping_ledger.hpp"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace hotset::mapping_ledger_test {
namespace {

using enum memory_status;

/// A platform that does what it is asked, and notes which handles are gone.
struct mapping_ledger_rules : testing::Test {
  static constexpr std::size_t unit = 8;
  std::vector<std::byte> addresses{10 * unit};
  std::span<std::byte> range{};
  std::vector<std::uint64_t> gone{};
  mapping_ledger ledger{unit};

  void SetUp() override { ASSERT_EQ(reserve(10 * unit), ok); }
  memory_status reserve(std::size_t bytes) {
    return ledger.reserve(bytes, range, [&](std::span<std::byte>& taken) {
      taken = std::span(addresses).first(bytes);
      return ok;
    });
  }
  memory_status release(std::span<std::byte> what) {
    return ledger.release(what, [] { return ok; });
  }
  memory_block create(std::size_t bytes, std::uint64_t handle) {
    memory_block out;
    EXPECT_EQ(ledger.create_block(bytes, out,
                                  [&](std::uint64_t& made) {
                                    made = handle;
                                    return ok;
                                  }),
              ok);
    return out;
  }
  auto note_gone() {
    return [this](std::uint64_t handle, bool is_gone) {
      if (is_gone) gone.push_back(handle);
      return ok;
    };
  }
  memory_status destroy(const memory_block& block) {
    return ledger.destroy_block(block, note_gone());
  }
  memory_status map(std::size_t offset, const memory_block& block) {
    return ledger.map(range, offset, block, [](std::uint64_t) { return ok; });
  }
  memory_status unmap(std::size_t offset, std::size_t bytes) {
    return ledger.unmap(range, offset, bytes, note_gone());
  }
};

TEST_F(mapping_ledger_rules, sizes_are_positive_multiples) {
  const auto untouched = range;
  for (const std::size_t bad : {std::size_t{0}, std::size_t{1}, unit - 1, unit + 1}) {
    EXPECT_EQ(reserve(bad), invalid_argument) << bad;
    memory_block none;
    EXPECT_EQ(ledger.create_block(bad, none, [](std::uint64_t&) { return ok; }), invalid_argument);
    EXPECT_EQ(none, memory_block{});
  }
  EXPECT_EQ(range.size(), untouched.size());
}

TEST_F(mapping_ledger_rules, what_the_platform_refuses_changes_nothing) {
  const auto block = create(unit, 7);
  const auto refuse = [](auto&&...) { return failed; };
  memory_block none;
  std::span<std::byte> nowhere;
  EXPECT_EQ(ledger.reserve(unit, nowhere, refuse), failed);
  EXPECT_EQ(ledger.create_block(unit, none, refuse), failed);
  EXPECT_EQ(none, memory_block{});
  EXPECT_EQ(ledger.map(range, 0, block, refuse), failed);
  EXPECT_EQ(map(0, block), ok) << "the place is free";
  EXPECT_EQ(ledger.unmap(range, 0, unit, refuse), failed);
  EXPECT_EQ(ledger.destroy_block(block, refuse), failed);
  EXPECT_EQ(map(unit, block), ok) << "it is a block still";
  EXPECT_EQ(unmap(0, unit), ok);
  EXPECT_EQ(unmap(unit, unit), ok);
  EXPECT_EQ(ledger.release(range, refuse), failed);
  EXPECT_EQ(ledger.reserved_bytes(), 10 * unit);
  EXPECT_EQ(ledger.physical_bytes(), unit);
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
  EXPECT_EQ(unmap(2 * unit, unit), invalid_argument);
  EXPECT_EQ(unmap(3 * unit, unit), invalid_argument);
  EXPECT_EQ(unmap(2 * unit, 3 * unit), invalid_argument);
  EXPECT_EQ(ledger.unmap(range.first(unit), 2 * unit, 2 * unit, note_gone()), invalid_argument);
  EXPECT_EQ(release(range), in_use);
  EXPECT_EQ(unmap(2 * unit, 2 * unit), ok);
  EXPECT_EQ(unmap(2 * unit, 2 * unit), invalid_argument);
  EXPECT_EQ(release(range), ok);
}

TEST_F(mapping_ledger_rules, a_range_is_released_as_it_was_reserved_and_once) {
  EXPECT_EQ(release(range.first(unit)), invalid_argument);
  EXPECT_EQ(release(range.subspan(unit)), invalid_argument);
  EXPECT_EQ(release({}), invalid_argument);
  EXPECT_EQ(ledger.reserved_bytes(), 10 * unit);
  EXPECT_EQ(release(range), ok);
  EXPECT_EQ(ledger.reserved_bytes(), 0U);
  EXPECT_EQ(release(range), invalid_argument);
  EXPECT_EQ(map(0, create(unit, 7)), invalid_argument);
}

TEST_F(mapping_ledger_rules, a_block_is_gone_with_its_handle_and_its_last_place) {
  const auto block = create(unit, 7);
  ASSERT_EQ(map(0, block), ok);
  ASSERT_EQ(map(unit, block), ok);
  EXPECT_EQ(ledger.physical_bytes(), unit);
  EXPECT_EQ(unmap(0, unit), ok);
  EXPECT_EQ(destroy(block), ok);
  EXPECT_TRUE(gone.empty());
  EXPECT_EQ(ledger.physical_bytes(), unit);
  EXPECT_EQ(destroy(block), invalid_argument);
  EXPECT_EQ(map(2 * unit, block), invalid_argument) << "it was destroyed";
  EXPECT_EQ(unmap(unit, unit), ok);
  EXPECT_EQ(gone, std::vector<std::uint64_t>{7});
  EXPECT_EQ(ledger.physical_bytes(), 0U);
}

TEST_F(mapping_ledger_rules, a_destroyed_block_is_not_taken_for_a_later_one_of_its_handle) {
  const auto first = create(unit, 7);
  ASSERT_EQ(map(0, first), ok);
  EXPECT_EQ(destroy(first), ok);
  const auto second = create(unit, 7);
  EXPECT_NE(first, second);
  EXPECT_EQ(destroy(first), invalid_argument);
  EXPECT_TRUE(gone.empty());
  EXPECT_EQ(unmap(0, unit), ok);
  EXPECT_EQ(destroy(second), ok);
  EXPECT_EQ(gone, (std::vector<std::uint64_t>{7, 7}));
}

TEST_F(mapping_ledger_rules, what_is_no_block_is_refused) {
  const auto block = create(2 * unit, 7);
  EXPECT_EQ(map(0, {}), invalid_argument);
  EXPECT_EQ(map(0, {block.id, unit}), invalid_argument);
  EXPECT_EQ(map(0, {block.id + 1, 2 * unit}), invalid_argument);
  EXPECT_EQ(destroy({}), invalid_argument);
  EXPECT_EQ(destroy({block.id, unit}), invalid_argument);
}

}  // namespace
}  // namespace hotset::mapping_ledger_test
