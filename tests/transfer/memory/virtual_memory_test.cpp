// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/memory/virtual_memory.hpp"

#include <array>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "failing_memory.hpp"
#include "host_mappings.hpp"
#include "hotset/transfer/memory/host_virtual_memory.hpp"

namespace hotset::virtual_memory_test {
namespace {

/// A minimal type that satisfies the concept; each test below removes one member.
struct archetype {
  [[nodiscard]] std::size_t granularity() const noexcept { return 1; }
  memory_status reserve(std::size_t, std::span<std::byte>&) noexcept { return memory_status::ok; }
  memory_status release(std::span<std::byte>) noexcept { return memory_status::ok; }
  memory_status create_block(std::size_t, memory_block&) noexcept { return memory_status::ok; }
  memory_status destroy_block(memory_block) noexcept { return memory_status::ok; }
  memory_status map(std::span<std::byte>, std::size_t, memory_block) noexcept {
    return memory_status::ok;
  }
  memory_status unmap(std::span<std::byte>, std::size_t, std::size_t) noexcept {
    return memory_status::ok;
  }
};
struct throwing_map : archetype {
  memory_status map(std::span<std::byte>, std::size_t, memory_block) { return memory_status::ok; }
};
struct says_nothing_of_map : archetype {
  void map(std::span<std::byte>, std::size_t, memory_block) noexcept {}
};
struct changes_its_granularity : archetype {
  std::size_t granularity() noexcept { return 1; }
};
struct returns_its_range : archetype {
  std::span<std::byte> reserve(std::size_t) noexcept { return {}; }
};
static_assert(virtual_memory<archetype>);
static_assert(!virtual_memory<throwing_map>);
static_assert(!virtual_memory<says_nothing_of_map>);
static_assert(!virtual_memory<changes_its_granularity>);
static_assert(!virtual_memory<returns_its_range>);

TEST(virtual_memory, every_status_has_a_text_of_its_own) {
  std::set<std::string_view> texts;
  for (const auto s : {memory_status::ok, memory_status::invalid_argument, memory_status::in_use,
                       memory_status::out_of_memory, memory_status::failed})
    EXPECT_TRUE(texts.insert(describe(s)).second) << describe(s);
}

using enum memory_status;
using memory_type = support::failing_memory<host_virtual_memory>;
using range_type = virtual_range<memory_type>;

static_assert(virtual_memory<memory_type>);
static_assert(!std::is_copy_constructible_v<range_type>);
static_assert(std::is_nothrow_move_constructible_v<range_type>);

struct virtual_range_steps : testing::Test {
  memory_type memory{host_virtual_memory::create().value()};
  const std::size_t unit = memory.granularity();

  void TearDown() override {
    EXPECT_EQ(memory.behind().reserved_bytes(), 0U);
    EXPECT_EQ(memory.behind().physical_bytes(), 0U);
  }
  range_type range(std::size_t units) { return range_type::reserve(memory, units * unit).value(); }
};

TEST_F(virtual_range_steps, releases_its_addresses_and_mappings) {
  {
    auto r = range(4);
    EXPECT_EQ(r.addresses().size(), 4 * unit);
    ASSERT_EQ(r.populate(0, unit, 2), ok);
    EXPECT_EQ(r.mapped_bytes(), 2 * unit);
    EXPECT_EQ(memory.behind().physical_bytes(), 2 * unit);
  }
  EXPECT_EQ(memory.behind().physical_bytes(), 0U);
}

TEST_F(virtual_range_steps, addresses_that_are_not_to_be_had_have_a_reason) {
  const auto uneven = range_type::reserve(memory, unit + 1);
  ASSERT_FALSE(uneven);
  EXPECT_EQ(uneven.error().message, "cannot reserve " + std::to_string(unit + 1) +
                                        " bytes of addresses in units of " + std::to_string(unit) +
                                        ": invalid size, offset, range or block");
  memory.fail(1);
  const auto none = range_type::reserve(memory, unit);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("out of memory"), std::string::npos);
}

TEST_F(virtual_range_steps, moves_with_all_it_owns) {
  auto first = range(2);
  ASSERT_EQ(first.populate(unit, unit, 1), ok);
  first.addresses()[unit] = std::byte{5};
  auto second = std::move(first);
  EXPECT_EQ(second.addresses()[unit], std::byte{5});
  EXPECT_EQ(second.mapped_bytes(), unit);
  EXPECT_EQ(second.unmap(unit, unit), ok);
}

TEST_F(virtual_range_steps, one_page_serves_neighbours_and_stays_its_makers) {
  auto r = range(3);
  std::array<memory_block, 1> page{};
  ASSERT_EQ(memory.create_block(unit, page[0]), ok);
  ASSERT_EQ(r.map(unit, page), ok);
  r.addresses()[unit] = std::byte{9};
  ASSERT_EQ(r.unmap(unit, unit), ok);
  EXPECT_EQ(memory.behind().physical_bytes(), unit) << "the pool keeps it";
  ASSERT_EQ(r.map(2 * unit, page), ok);
  EXPECT_EQ(r.addresses()[2 * unit], std::byte{9});
  EXPECT_EQ(memory.destroy_block(page[0]), ok);
}

TEST_F(virtual_range_steps, grows_and_shrinks) {
  auto r = range(6);
  ASSERT_EQ(r.populate(0, unit, 2), ok);
  r.addresses()[0] = std::byte{1};
  ASSERT_EQ(r.populate(2 * unit, 2 * unit, 2), ok);
  EXPECT_EQ(memory.behind().physical_bytes(), 6 * unit);
  ASSERT_EQ(r.unmap(2 * unit, 4 * unit), ok);
  EXPECT_EQ(memory.behind().physical_bytes(), 2 * unit);
  EXPECT_EQ(r.addresses()[0], std::byte{1});
  EXPECT_EQ(r.unmap(2 * unit, 4 * unit), ok) << "nothing is there";
}

TEST_F(virtual_range_steps, invalid_arguments_are_refused_without_effect) {
  auto r = range(4);
  ASSERT_EQ(r.populate(unit, 2 * unit, 1), ok);
  constexpr auto huge = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(r.populate(3 * unit, unit, 2), invalid_argument) << "beyond the end";
  EXPECT_EQ(r.populate(0, unit, 2), in_use);
  EXPECT_EQ(r.populate(0, unit, huge), invalid_argument);
  EXPECT_EQ(r.populate(0, 0, 1), invalid_argument);
  EXPECT_EQ(r.populate(3 * unit, unit + 1, 1), invalid_argument);
  EXPECT_EQ(r.populate(1, unit, 1), invalid_argument);
  EXPECT_EQ(r.unmap(0, 2 * unit), invalid_argument) << "cuts its end off";
  EXPECT_EQ(r.unmap(2 * unit, 2 * unit), invalid_argument) << "cuts its beginning off";
  EXPECT_EQ(r.unmap(2 * unit, 0), invalid_argument);
  EXPECT_EQ(r.unmap(5 * unit, 0), invalid_argument);
  EXPECT_EQ(r.unmap(unit, huge), invalid_argument);
  EXPECT_EQ(r.mapped_bytes(), 2 * unit);
  EXPECT_EQ(memory.behind().physical_bytes(), 2 * unit);
  EXPECT_EQ(r.unmap(0, 4 * unit), ok);
}

TEST_F(virtual_range_steps, a_refused_unmap_continues_where_it_stopped) {
  auto r = range(3);
  ASSERT_EQ(r.populate(0, unit, 3), ok);
  memory.fail(2);
  EXPECT_EQ(r.unmap(0, 3 * unit), failed);
  EXPECT_EQ(r.mapped_bytes(), 2 * unit);
  EXPECT_TRUE(support::is_readable(r.addresses().data())) << "the last goes first";
  EXPECT_FALSE(support::is_readable(r.addresses().data() + 2 * unit));
  EXPECT_EQ(r.unmap(0, 3 * unit), ok);
  EXPECT_EQ(r.mapped_bytes(), 0U);
  EXPECT_EQ(memory.behind().physical_bytes(), 0U);
}

TEST_F(virtual_range_steps, its_destructor_skips_refused_unmaps) {
  std::span<std::byte> left;
  {
    auto r = range(3);
    ASSERT_EQ(r.populate(0, unit, 3), ok);
    left = r.addresses();
    memory.fail(2);
  }
  EXPECT_EQ(memory.behind().physical_bytes(), unit) << "one place only was refused";
  EXPECT_EQ(memory.behind().unmap(left, unit, unit), ok);
  EXPECT_EQ(memory.behind().release(left), ok);
}

}  // namespace
}  // namespace hotset::virtual_memory_test
