// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/memory/slot_bank_layout.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::slot_bank_layout_test {
namespace {

using testing::HasSubstr;

const geometry shape{.layers = 2, .experts = 4, .top_k = 1, .expert_bytes = {30, 8}};
const std::vector<expert_layout> layouts{{{{"up", 20}, {"down", 10}}}, {{{"all", 8}}}};

TEST(slot_bank_layout, each_tensor_of_each_class_has_an_array_and_each_slot_a_place_in_it) {
  const auto layout = pool_layout::per_layer(shape, std::array<std::int64_t, 2>{3, 2}).value();
  const auto places = slot_bank_layout::create(layout, layouts, 16).value();
  ASSERT_EQ(places.arrays().size(), 3U);
  EXPECT_EQ(places.arrays()[0].stride, 32U);
  EXPECT_EQ(places.arrays()[0].total(), 96U);
  EXPECT_EQ(places.arrays()[1].stride, 16U);
  EXPECT_EQ(places.arrays()[1].tensor, 1U);
  EXPECT_EQ(places.arrays()[2].size_class, 1U);
  EXPECT_EQ(places.arrays()[2].slots, 2U);
  std::set<std::pair<std::size_t, std::size_t>> taken;
  for (const auto s : each<slot_id>(5)) {
    ASSERT_EQ(places.tensors(s), s < 3 ? 2U : 1U);
    for (std::size_t t = 0; t < places.tensors(s); ++t) {
      const auto at = places.at(s, t);
      const auto& array = places.arrays()[at.array];
      EXPECT_EQ(array.tensor, t);
      EXPECT_EQ(at.bytes, layouts[array.size_class].tensors[t].bytes);
      EXPECT_EQ(at.offset, places.local(s) * array.stride);
      EXPECT_LE(at.offset + at.bytes, array.total());
      EXPECT_TRUE(taken.insert({at.array, at.offset}).second);
    }
  }
}

TEST(slot_bank_layout, a_class_without_slots_has_an_address_all_the_same) {
  const auto layout = pool_layout::shared({.layers = 1, .experts = 4, .top_k = 1}, 2).value();
  const auto places = slot_bank_layout::create(layout, layouts, 64).value();
  EXPECT_EQ(places.arrays()[2].slots, 0U);
  EXPECT_EQ(places.arrays()[2].total(), 64U);
}

TEST(slot_bank_layout, pools_and_layouts_that_do_not_belong_together_are_refused) {
  EXPECT_THAT(
      slot_bank_layout::create(pool_layout::shared(shape, 4).value(), layouts, 64).error().message,
      HasSubstr("pool 0 serves layers of different size classes"));
  const auto layout = pool_layout::per_layer(shape, 2).value();
  EXPECT_THAT(slot_bank_layout::create(layout, {layouts[0]}, 64).error().message,
              HasSubstr("no layout for size class 1"));
  EXPECT_THAT(slot_bank_layout::create(layout, {layouts[0], {}}, 64).error().message,
              HasSubstr("0 tensors"));
}

TEST(slot_bank_layout, each_precision_has_a_layout_of_its_own) {
  const geometry even{.layers = 2,
                      .experts = 4,
                      .top_k = 2,
                      .max_tokens_per_visit = 1,
                      .expert_bytes = {8},
                      .layer_size_class = {},
                      .lower_precisions = {{4}}};
  const std::vector<expert_layout> ladder{{{{"high", 8}}}, {{{"low", 4}}}};
  const auto shared =
      pool_layout::shared_by_precision(even, std::array<std::int64_t, 2>{2, 3}).value();
  const auto places = slot_bank_layout::create(shared, ladder, 16).value();
  EXPECT_EQ(places.at(1_slot, 0).bytes, 8U);
  EXPECT_EQ(places.at(4_slot, 0).bytes, 4U);
  EXPECT_EQ(places.local(4_slot), 2U);
  const auto each =
      pool_layout::per_layer_by_precision(even, std::array<std::int64_t, 2>{2, 1}).value();
  const auto apart = slot_bank_layout::create(each, ladder, 16).value();
  EXPECT_EQ(apart.at(2_slot, 0).bytes, 4U) << "the third slot is of the first layer's lower pool";
  EXPECT_EQ(apart.at(3_slot, 0).bytes, 8U);
  // Layers with different sizes share no pool, whatever the precision.
  auto mixed = even;
  mixed.expert_bytes = {8, 6};
  mixed.lower_precisions = {{4, 3}};
  EXPECT_FALSE(slot_bank_layout::create(
      pool_layout::shared_by_precision(mixed, std::array<std::int64_t, 2>{2, 3}).value(), ladder,
      16));
}

TEST(slot_bank_layout, serves_a_cache_of_its_own_layout_only) {
  const auto of = [](std::array<std::int64_t, 2> slots, const geometry& model = shape) {
    return pool_layout::per_layer(model, slots).value();
  };
  const auto places = slot_bank_layout::create(of({3, 2}), layouts, 16).value();
  EXPECT_FALSE(places.check(of({3, 2})));
  EXPECT_EQ(places.check(of({3, 1}))->message,
            "the bank has 5 slots, accepted: 4, as in the cache");
  EXPECT_EQ(places.check(of({3, 3}))->message,
            "the bank has 5 slots, accepted: 6, as in the cache");
  EXPECT_EQ(places.check(of({2, 3}))->message,
            "slot 2 of the bank has size class 0, accepted: 1, as in the cache");
  auto wider = shape;
  wider.expert_bytes = {30, 9};
  EXPECT_EQ(places.check(of({3, 2}, wider))->message,
            "slots of size class 1 in the bank have 8 bytes, accepted: 9, the bytes of an expert "
            "of layer 1");
  auto unknown = shape;
  unknown.expert_bytes = {};
  unknown.layer_size_class = {0_size_class, 1_size_class};
  EXPECT_FALSE(places.check(of({3, 2}, unknown)));
}
TEST(slot_bank_layout, slots_beside_the_caches_come_after_them) {
  const geometry even{.layers = 2, .experts = 4, .top_k = 1, .expert_bytes = {30}};
  const auto layout = pool_layout::per_layer(even, std::array<std::int64_t, 2>{3, 2}).value();
  const auto places = slot_bank_layout::create(layout, {layouts[0]}, 16, 2).value();
  EXPECT_EQ(places.slots(), 7U);
  EXPECT_EQ(places.local(6_slot), 6U);
  EXPECT_FALSE(places.check(layout));
  EXPECT_EQ(places.check(pool_layout::per_layer(even, std::array<std::int64_t, 2>{3, 4}).value())
                ->message,
            "the bank has 5 slots, accepted: 7, as in the cache");
  EXPECT_EQ(slot_bank_layout::create(pool_layout::per_layer(shape, 2).value(), layouts, 16, 2)
                .error()
                .message,
            "beside = 2 slots with 2 size classes, accepted: one size class");
}
// Sizes whose sum overflows must not give a small array.
TEST(slot_bank_layout, sizes_that_no_memory_has_are_refused) {
  const auto layout = pool_layout::shared({.layers = 1, .experts = 4, .top_k = 1}, 4).value();
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t bytes : {most, most / 2, most / 4 + 1, most / 8})
    EXPECT_THAT(slot_bank_layout::create(layout, {{{{"up", bytes}}}}, 64).error().message,
                HasSubstr("4 slots of tensor 'up' of " + std::to_string(bytes) + " bytes"))
        << bytes;
  EXPECT_TRUE(slot_bank_layout::create(layout, {{{{"up", most / 16}}}}, 64));
}

}  // namespace
}  // namespace hotset::slot_bank_layout_test
