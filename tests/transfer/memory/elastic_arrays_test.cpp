// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/memory/elastic_arrays.hpp"

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "failing_memory.hpp"
#include "hotset/transfer/host_stream.hpp"
#include "hotset/transfer/memory/host_slot_bank.hpp"
#include "hotset/transfer/memory/host_virtual_memory.hpp"
#include "hotset/transfer/memory/slot_bank_layout.hpp"
#include "random_source.hpp"

namespace hotset::elastic_arrays_test {
namespace {

static_assert(slot_bank<host_slot_bank, host_stream>);

// Sizes below, at and above a page; the second class has one tensor smaller than a cache line.
const geometry shape{.layers = 3, .experts = 40, .top_k = 1, .expert_bytes = {11'000, 8, 11'000}};
const std::vector<expert_layout> layouts{{{{"up", 6'000}, {"down", 4'096}, {"norm", 904}}},
                                         {{{"all", 8}}}};
constexpr std::size_t page = 4096;

class elastic_arrays_test : public testing::Test {
 protected:
  using memory_type = support::failing_memory<host_virtual_memory>;
  using arrays_type = elastic_arrays<memory_type>;

  pool_layout layout =
      pool_layout::per_layer(shape, std::array<std::int64_t, 3>{30, 40, 20}).value();
  slot_bank_layout places = slot_bank_layout::create(layout, layouts, 64).value();
  memory_budget budget{std::uint64_t{1} << 20};
  memory_type memory{host_virtual_memory::create().value()};

  arrays_type make(std::size_t tail = 0) {
    return arrays_type::create(memory, budget, places, tail).value();
  }
  static std::byte content(std::size_t array, std::size_t slot) {
    return static_cast<std::byte>(array * 61 + slot * 7 + 1);
  }
  void write(const arrays_type& arrays, std::size_t size_class, std::size_t slot) {
    for (std::size_t a = 0; a < places.arrays().size(); ++a)
      if (places.arrays()[a].size_class == size_class)
        std::memset(arrays.base(a) + slot * places.arrays()[a].stride,
                    std::to_integer<int>(content(a, slot)), places.arrays()[a].bytes);
  }
  void expect_written(const arrays_type& arrays) {
    for (std::size_t a = 0; a < places.arrays().size(); ++a) {
      const auto& array = places.arrays()[a];
      for (std::size_t s = 0; s < arrays.held(array.size_class); ++s)
        for (std::size_t i = 0; i < array.bytes; i += 97)
          ASSERT_EQ(arrays.base(a)[s * array.stride + i], content(a, s)) << a << ' ' << s;
    }
  }
  /// At most one block per array more than the slots need.
  void expect_memory_of_held(const arrays_type& arrays, std::size_t tail = 0) {
    std::uint64_t least = 0;
    std::uint64_t most = 0;
    std::uint64_t counted = 0;
    for (const auto& array : places.arrays()) {
      const auto held = arrays.held(array.size_class);
      counted += held * array.stride;
      if (held == 0) continue;
      least += held * array.stride + tail;
      most += held * array.stride + tail + (array.stride + page - 1) / page * page;
    }
    EXPECT_EQ(budget.in_use(), counted);
    EXPECT_EQ(arrays.bytes(), memory.behind().physical_bytes());
    EXPECT_GE(arrays.bytes(), least);
    EXPECT_LE(arrays.bytes(), most);
  }
};

TEST_F(elastic_arrays_test, hold_nothing_at_first_and_have_addresses) {
  const auto arrays = make();
  EXPECT_EQ(memory.behind().physical_bytes(), 0U);
  EXPECT_EQ(budget.in_use(), 0U);
  for (std::size_t a = 0; a < places.arrays().size(); ++a) EXPECT_NE(arrays.base(a), nullptr);
}

TEST_F(elastic_arrays_test, keep_remaining_content_through_random_sizes) {
  constexpr std::size_t tail = 300;
  auto arrays = make(tail);
  std::vector<std::byte*> bases;
  for (std::size_t a = 0; a < places.arrays().size(); ++a) bases.push_back(arrays.base(a));
  support::random_source random(5);
  for (int n = 0; n < 400; ++n) {
    SCOPED_TRACE(n);
    const auto size_class = random.below(2);
    const auto before = arrays.held(size_class);
    const auto slots = random.below(size_class == 0 ? 51 : 41);
    ASSERT_EQ(arrays.hold(size_class, slots), status::ok);
    for (auto s = before; s < slots; ++s) write(arrays, size_class, s);
    expect_written(arrays);
    expect_memory_of_held(arrays, tail);
    for (std::size_t a = 0; a < bases.size(); ++a) {
      ASSERT_EQ(arrays.base(a), bases[a]);
      const auto& array = places.arrays()[a];
      const auto held = arrays.held(array.size_class);  // a wide read may go past the last slot
      if (held != 0) arrays.base(a)[held * array.stride + tail - 1] = std::byte{1};
    }
  }
}

TEST_F(elastic_arrays_test, refused_memory_changes_nothing) {
  auto arrays = make();
  ASSERT_EQ(arrays.hold(0, 5), status::ok);
  for (std::size_t s = 0; s < 5; ++s) write(arrays, 0, s);
  std::size_t steps = 0;
  for (;; ++steps) {
    SCOPED_TRACE(steps);
    memory.fail(steps + 1);
    const auto code = arrays.hold(0, 20);
    memory.fail(0);
    if (code == status::ok) break;
    ASSERT_EQ(code, status::exceeds_memory);
    ASSERT_EQ(arrays.held(0), 5U);
    expect_written(arrays);
    ASSERT_EQ(arrays.bytes(), memory.behind().physical_bytes());
    ASSERT_EQ(budget.in_use(), 5 * places.slot_bytes(0));
  }
  EXPECT_GT(steps, 60U) << "each block is created, mapped and left to its place";
}

TEST_F(elastic_arrays_test, refuse_sizes_beyond_the_budget_and_the_layout) {
  budget = memory_budget(3 * places.slot_bytes(0) - 1);
  auto arrays = make();
  EXPECT_EQ(arrays.hold(0, 3), status::exceeds_memory);
  EXPECT_EQ(memory.behind().physical_bytes(), 0U);
  EXPECT_EQ(arrays.hold(0, 2), status::ok);
  EXPECT_EQ(arrays.hold(0, 51), status::invalid_argument);
  EXPECT_EQ(arrays.hold(2, 0), status::invalid_argument);
  EXPECT_EQ(arrays.held(2), 0U);
  expect_memory_of_held(arrays);
}

TEST_F(elastic_arrays_test, give_all_back_at_their_end_wherever_they_were_moved) {
  {
    auto arrays = make();
    ASSERT_EQ(arrays.hold(0, 7), status::ok);
    ASSERT_EQ(arrays.hold(1, 40), status::ok);
    const auto moved = std::move(arrays);
    EXPECT_EQ(moved.held(0), 7U);
    expect_memory_of_held(moved);
  }
  EXPECT_EQ(budget.in_use(), 0U);
  EXPECT_EQ(memory.behind().physical_bytes(), 0U);
  EXPECT_EQ(memory.behind().reserved_bytes(), 0U);
}

TEST_F(elastic_arrays_test, are_refused_without_addresses) {
  const geometry huge{.layers = 1, .experts = 60'000, .top_k = 1};
  const auto wide = pool_layout::per_layer(huge, 60'000).value();
  const auto far =
      slot_bank_layout::create(wide, {{{{"all", std::uint64_t{1} << 40}}}}, 64).value();
  const auto made = arrays_type::create(memory, budget, far);
  ASSERT_FALSE(made.has_value());
  EXPECT_NE(made.error().message.find("cannot reserve"), std::string::npos);
  EXPECT_EQ(memory.behind().reserved_bytes(), 0U);
}

}  // namespace
}  // namespace hotset::elastic_arrays_test
