// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/pool_layout.hpp"

#include <array>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::pool_layout_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const geometry shape{.layers = 3, .experts = 8, .top_k = 2};

std::string reason(const result<pool_layout>& made) {
  return made.has_value() ? "accepted" : made.error().message;
}

TEST(pool_layout, bytes_hold_the_same_share_of_every_layer) {
  auto of_two = shape;
  of_two.expert_bytes = {100, 160, 100};
  const auto alone = pool_layout::within(of_two, cache_scope::per_layer, 1439).value();
  for (const auto l : each<layer_id>(3)) EXPECT_EQ(alone.at(alone.pool_of_layer(l)).slots, 3);
  const auto together = pool_layout::within(of_two, cache_scope::shared, 1439).value();
  ASSERT_EQ(together.pools(), 2U);
  EXPECT_EQ(together.at(0_pool).slots, 7) << "2/3 of what 1,439 / 360 comes to";
  EXPECT_EQ(together.at(1_pool).slots, 3);
  of_two.expert_bytes = {100};
  EXPECT_EQ(pool_layout::within(of_two, cache_scope::shared, 1399).value().slots(), 13U);
  EXPECT_EQ(pool_layout::within(of_two, cache_scope::shared, ~std::uint64_t{0}).value().slots(),
            of_two.keys());
}

TEST(pool_layout, bytes_too_few_or_of_experts_of_unknown_size_are_refused) {
  EXPECT_EQ(reason(pool_layout::within(shape, cache_scope::shared, 1000)),
            "cannot divide bytes into slots: experts have unknown bytes, accepted: expert_bytes of "
            "one precision");
  auto sized = shape;
  sized.expert_bytes = {100};
  EXPECT_EQ(reason(pool_layout::within(sized, cache_scope::per_layer, 599)),
            "599 bytes, accepted: 600 or more, for top_k experts in every layer");
  EXPECT_THAT(reason(pool_layout::within(sized, cache_scope::shared, 199)),
              testing::HasSubstr("fewer than top_k"));
  sized.lower_precisions = {{50}};
  EXPECT_THAT(reason(pool_layout::within(sized, cache_scope::shared, 1000)),
              testing::HasSubstr("experts have 2 precisions"));
}

// Hazard 7: a pool has fewer slots than a token needs.
TEST(pool_layout, fewer_slots_than_top_k_are_refused_with_the_smallest_workable_number) {
  EXPECT_EQ(reason(pool_layout::shared(shape, 1)),
            "pool 0 has 1 slots, fewer than top_k: a token could never be served; accepted: 2..24");
  EXPECT_THAT(
      reason(pool_layout::per_layer(shape, std::array<std::int64_t, 3>{4, 1, 4})),
      HasSubstr(
          "pool 1 has 1 slots, fewer than top_k: a token could never be served; accepted: 2..8"));
  EXPECT_THAT(reason(pool_layout::shared(shape, -5)), HasSubstr("has -5 slots"));
  EXPECT_EQ(reason(pool_layout::shared(shape, 2)), "accepted");
}

TEST(pool_layout, a_bad_geometry_is_refused_first) {
  auto bad = shape;
  bad.top_k = 99;
  EXPECT_THAT(reason(pool_layout::shared(bad, 10)), HasSubstr("top_k = 99"));
  EXPECT_THAT(reason(pool_layout::per_layer(bad, 10)), HasSubstr("top_k = 99"));
  EXPECT_THAT(reason(pool_layout::shared_by_size_class(bad, {})), HasSubstr("top_k = 99"));
}

TEST(pool_layout, a_pool_holds_at_most_its_layers_experts) {
  EXPECT_EQ(pool_layout::shared(shape, 1000).value().slots(), 24U);
  EXPECT_EQ(pool_layout::shared(shape, std::numeric_limits<std::int64_t>::max()).value().slots(),
            24U);
  const auto layout = pool_layout::per_layer(shape, 99).value();
  EXPECT_EQ(layout.slots(), 24U);
  EXPECT_EQ(layout.at(1_pool).slots, 8);
}

TEST(pool_layout, shared_serves_all_layers_from_one_pool) {
  const auto layout = pool_layout::shared(shape, 7).value();
  EXPECT_EQ(layout.pools(), 1U);
  EXPECT_THAT(layout.at(0_pool).layers, ElementsAre(0, 1, 2));
  EXPECT_EQ(layout.at(0_pool).slots, 7);
  for (const auto l : each<layer_id>(3)) EXPECT_EQ(layout.pool_of_layer(l), 0);
}

TEST(pool_layout, per_layer_quotas_may_differ) {
  const auto layout = pool_layout::per_layer(shape, std::array<std::int64_t, 3>{4, 2, 3}).value();
  EXPECT_EQ(layout.pools(), 3U);
  EXPECT_EQ(layout.slots(), 9U);
  EXPECT_EQ(layout.at(1_pool).first_slot, 4);
  EXPECT_EQ(layout.at(2_pool).first_slot, 6);
  EXPECT_EQ(layout.pool_of_slot(3_slot), 0);
  EXPECT_EQ(layout.pool_of_slot(4_slot), 1);
  EXPECT_EQ(layout.pool_of_slot(8_slot), 2);
  EXPECT_THAT(reason(pool_layout::per_layer(shape, std::array<std::int64_t, 2>{4, 2})),
              HasSubstr("2 slot counts for 3 pools"));
}

TEST(pool_layout, size_classes_get_a_pool_each) {
  auto mixed = shape;
  mixed.expert_bytes = {30, 10, 30};
  const auto layout =
      pool_layout::shared_by_size_class(mixed, std::array<std::int64_t, 2>{5, 3}).value();
  EXPECT_EQ(layout.pools(), 2U);
  EXPECT_THAT(layout.at(0_pool).layers, ElementsAre(0, 2));
  EXPECT_THAT(layout.at(1_pool).layers, ElementsAre(1));
  EXPECT_EQ(layout.at(1_pool).size_class, 1);
  EXPECT_EQ(layout.pool_of_layer(1_layer), 1);
  EXPECT_EQ(layout.pool_of_layer(2_layer), 0);
  EXPECT_THAT(reason(pool_layout::shared_by_size_class(mixed, std::array<std::int64_t, 1>{5})),
              HasSubstr("1 slot counts for 2 pools"));
}

TEST(pool_layout, a_size_class_without_layers_is_refused) {
  auto sparse = shape;
  sparse.layer_size_class = {0_size_class, 2_size_class, 0_size_class};
  EXPECT_THAT(
      reason(pool_layout::shared_by_size_class(sparse, std::array<std::int64_t, 3>{5, 3, 3})),
      HasSubstr("size class 1 has no layer"));
}

TEST(pool_layout, a_pool_can_grow_to_the_slots_of_its_class) {
  auto mixed = shape;
  mixed.expert_bytes = {30, 10, 30};
  const auto layout = pool_layout::per_layer(mixed, std::array<std::int64_t, 3>{4, 2, 3}).value();
  EXPECT_EQ(layout.most_slots(0_pool), 7U) << "its own and those of layer 2";
  EXPECT_EQ(layout.most_slots(1_pool), 2U);
  EXPECT_EQ(pool_layout::per_layer(shape, 6).value().most_slots(0_pool), 8U)
      << "never more than it has experts";
}

const geometry ladder{.layers = 3,
                      .experts = 8,
                      .top_k = 4,
                      .max_tokens_per_visit = 1,
                      .expert_bytes = {8},
                      .lower_precisions = {{4}, {2}}};

TEST(pool_layout, a_pool_per_precision_serves_all_layers) {
  const auto layout =
      pool_layout::shared_by_precision(ladder, std::array<std::int64_t, 3>{3, 5, 9}).value();
  EXPECT_EQ(layout.precisions(), 3U);
  EXPECT_EQ(layout.pools(), 3U);
  EXPECT_EQ(layout.slots(), 17U);
  for (const auto p : each<precision_id>(3)) {
    const pool_id pool{number(p)};
    EXPECT_EQ(layout.pool_of(2_layer, p), pool);
    EXPECT_EQ(layout.at(pool).precision, p);
    EXPECT_EQ(layout.at(pool).size_class, number(p));
  }
  EXPECT_EQ(layout.pool_of_layer(1_layer), 0);
}

TEST(pool_layout, a_pool_per_layer_and_precision) {
  const auto layout =
      pool_layout::per_layer_by_precision(ladder, std::array<std::int64_t, 3>{2, 1, 1}).value();
  EXPECT_EQ(layout.pools(), 9U);
  EXPECT_EQ(layout.pool_of(1_layer, 2_precision), 5);
  EXPECT_THAT(layout.at(5_pool).layers, ElementsAre(1));
  EXPECT_EQ(layout.at(5_pool).precision, 2);
  EXPECT_EQ(layout.at(5_pool).size_class, layout.at(8_pool).size_class);
  EXPECT_NE(layout.at(5_pool).size_class, layout.at(4_pool).size_class);
}

// Hazard 7: all precisions together must hold a token's experts.
TEST(pool_layout, a_token_must_fit_into_all_precisions_together) {
  EXPECT_EQ(reason(pool_layout::shared_by_precision(ladder, std::array<std::int64_t, 3>{1, 1, 2})),
            "accepted");
  EXPECT_EQ(
      reason(pool_layout::shared_by_precision(ladder, std::array<std::int64_t, 3>{1, 1, 1})),
      "pool 0 has 3 slots of all precisions, fewer than top_k: a token could never be served; "
      "accepted: 4..24");
  EXPECT_EQ(reason(pool_layout::shared_by_precision(ladder, std::array<std::int64_t, 3>{4, 0, 2})),
            "the pool of precision 1 has 0 slots, accepted: 1..24");
  EXPECT_EQ(reason(pool_layout::per_layer_by_precision(ladder, std::array<std::int64_t, 2>{4, 2})),
            "2 quotas for 3 precisions, accepted: one for each");
}

}  // namespace
}  // namespace hotset::pool_layout_test
