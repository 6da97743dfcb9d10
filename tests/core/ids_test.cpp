// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/ids.hpp"

#include <cstdint>
#include <iterator>
#include <sstream>
#include <string_view>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::ids_test {
namespace {

TEST(ids, keys_are_ordered_by_layer_then_expert) {
  EXPECT_LT((expert_key{0_layer, 7_expert}), (expert_key{1_layer, 0_expert}));
  EXPECT_LT((expert_key{1_layer, 0_expert}), (expert_key{1_layer, 1_expert}));
  EXPECT_EQ((expert_key{2_layer, 3_expert}), (expert_key{2_layer, 3_expert}));
}

TEST(ids, a_key_that_was_not_set_is_no_key) {
  EXPECT_EQ(expert_key{}, no_key);
  EXPECT_NE((expert_key{0_layer, 0_expert}), no_key);
  EXPECT_LT(no_slot, 0);
}

TEST(ids, no_step_has_the_value_of_never) {
  EXPECT_EQ(mark_of(0), 1U);
  EXPECT_EQ(mark_of(41), 42U);
  EXPECT_EQ(mark_of(~step_id{0}), ~step_id{0});
}

// --- each kind is a type with the bits of its number ---

static_assert(sizeof(slot_id) == sizeof(std::int32_t) && sizeof(precision_id) == 1);
static_assert(std::is_trivially_copyable_v<slot_id> && !std::is_convertible_v<slot_id, int>);
static_assert(!std::is_convertible_v<int, slot_id> && !std::is_convertible_v<slot_id, layer_id>);

TEST(ids, are_compared_with_counts_of_any_width) {
  EXPECT_TRUE(3_layer < 4 && 3_layer == 3 && 3_layer >= std::size_t{3});
  EXPECT_TRUE(no_slot < 0 && no_slot < std::size_t{0}) << "a negative one is below every count";
  EXPECT_TRUE(is_within(2_expert, 3));
  EXPECT_FALSE(is_within(3_expert, 3));
  EXPECT_FALSE(is_within(no_expert, 3U));
}

TEST(ids, lie_some_places_apart) {
  auto layer = 5_layer;
  EXPECT_EQ(layer + 2, 7_layer);
  EXPECT_EQ(layer - 6, before_layers);
  EXPECT_EQ(7_layer - layer, 2);
  EXPECT_EQ(layer++, 5_layer);
  EXPECT_EQ(++layer, 7_layer);
  EXPECT_EQ(number(layer), 7);
  EXPECT_EQ(index_of(layer), 7U);
}

TEST(ids, are_walked_from_the_first_to_the_last) {
  std::vector<expert_id> seen;
  for (const auto e : each<expert_id>(3)) seen.push_back(e);
  EXPECT_THAT(seen, testing::ElementsAre(0_expert, 1_expert, 2_expert));
  for (const auto e : each<expert_id>(-2)) ADD_FAILURE() << e << " of a negative count";
  const auto all = each<precision_id>(256);
  EXPECT_EQ(std::distance(all.begin(), all.end()), 256) << "more than the last id's bits count to";
}

TEST(ids, are_written_as_numbers) {
  EXPECT_EQ(to_string(no_slot), "-1");
  std::ostringstream out;
  out << 12_expert << ' ' << 3_precision;
  EXPECT_EQ(out.str(), "12 3") << "a precision is no character";
  EXPECT_EQ(format_as(4_pool), 4);
}

TEST(request_classes, are_ordered_by_number) {
  for (std::size_t i = 0; i < request_classes.size(); ++i)
    EXPECT_EQ(static_cast<std::size_t>(request_classes[i].first), i);
  EXPECT_EQ(std::string_view(name_of(request_class::decode)), "decode");
  EXPECT_EQ(std::string_view(name_of(request_class::prefill)), "prefill");
  EXPECT_EQ(std::string_view(name_of(request_class::verify)), "verify");
}

}  // namespace
}  // namespace hotset::ids_test
