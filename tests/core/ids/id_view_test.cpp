// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/ids/id_view.hpp"

#include <array>
#include <cstdint>
#include <iterator>
#include <ranges>
#include <span>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::id_view_test {
namespace {

using testing::ElementsAre;
using view = id_view<expert_id>;

// Accepts 32-bit numbers and ids of the same kind, and no other type.
static_assert(std::is_convertible_v<const std::vector<std::int32_t>&, view>);
static_assert(std::is_convertible_v<std::span<const std::int32_t>, view>);
static_assert(std::is_convertible_v<const std::vector<expert_id>&, view>);
static_assert(std::is_convertible_v<std::span<expert_id>, view>);
static_assert(!std::is_convertible_v<const std::vector<slot_id>&, view>);
static_assert(!std::is_convertible_v<const std::vector<std::int64_t>&, view>);
static_assert(!std::is_convertible_v<const std::vector<std::uint32_t>&, view>);
static_assert(!std::is_convertible_v<id_view<slot_id>, view>);
static_assert(std::forward_iterator<view::iterator>);
static_assert(std::ranges::borrowed_range<view>, "what is found in a view that ends is good");

TEST(id_view, is_an_engines_numbers) {
  const std::vector<std::int32_t> numbers{3, -1, 7};
  const view ids(numbers);
  EXPECT_EQ(ids.size(), 3U);
  EXPECT_THAT(ids, ElementsAre(3_expert, no_expert, 7_expert));
  EXPECT_EQ(ids.front(), 3_expert);
  EXPECT_EQ(ids[2], 7_expert);
  EXPECT_EQ(ids.data(), numbers.data());
}

TEST(id_view, is_ids) {
  const std::array ids{5_expert, 2_expert};
  EXPECT_THAT(view(ids), ElementsAre(5, 2));
}

TEST(id_view, refers_to_numbers_as_ids) {
  std::vector<std::int32_t> numbers{1, 2};
  const view ids(numbers);
  numbers[1] = 9;
  EXPECT_EQ(ids[1], 9);
}

TEST(id_view, has_parts) {
  const std::vector<std::int32_t> numbers{0, 1, 2, 3};
  const view ids(numbers);
  EXPECT_THAT(ids.first(2), ElementsAre(0, 1));
  EXPECT_THAT(ids.subspan(1, 2), ElementsAre(1, 2));
  EXPECT_THAT(ids.subspan(3), ElementsAre(3));
  EXPECT_TRUE(ids.subspan(4).empty());
}

TEST(id_view, is_empty_by_itself) {
  EXPECT_TRUE(view().empty());
  EXPECT_TRUE(view().begin() == view().end());
  view().copy_to(nullptr);
}

TEST(id_view, is_copied_as_ids) {
  const std::vector<std::int32_t> numbers{4, 6};
  std::array<expert_id, 2> out{};
  view(numbers).copy_to(out.data());
  EXPECT_THAT(out, ElementsAre(4, 6));
}

}  // namespace
}  // namespace hotset::id_view_test
