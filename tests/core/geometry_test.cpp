// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/geometry.hpp"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::geometry_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const geometry sound{.layers = 3, .experts = 8, .top_k = 2};

std::string reason(const geometry& shape) {
  const auto refusal = shape.validate();
  return refusal ? refusal->message : "accepted";
}

TEST(geometry, accepts_the_range_of_its_counters) {
  EXPECT_EQ(reason(sound), "accepted");
  EXPECT_EQ(reason({.layers = 3, .experts = 8, .top_k = 8, .max_tokens_per_visit = 1 << 24}),
            "accepted");
  EXPECT_EQ(reason({.layers = 1, .experts = 1 << 20, .top_k = 65535}), "accepted");
  EXPECT_EQ(reason({.layers = 1, .experts = 128, .top_k = 128, .max_tokens_per_visit = 1 << 24}),
            "accepted");
}

struct bad_geometry {
  std::function<void(geometry&)> spoil;
  const char* words;
};
class bad_geometries : public testing::TestWithParam<bad_geometry> {};

TEST_P(bad_geometries, are_refused_with_the_value_and_the_accepted_range) {
  auto shape = sound;
  GetParam().spoil(shape);
  EXPECT_EQ(reason(shape), GetParam().words);
}
INSTANTIATE_TEST_SUITE_P(
    geometry, bad_geometries,
    testing::ValuesIn(std::vector<bad_geometry>{
        {[](auto& g) { g.layers = 0; }, "layers = 0, accepted: 1 or more"},
        {[](auto& g) { g.experts = -4; }, "experts = -4, accepted: 1 or more"},
        {[](auto& g) { g.top_k = 9; }, "top_k = 9, accepted: 1..8"},
        {[](auto& g) { g.top_k = 0; }, "top_k = 0, accepted: 1..8"},
        {[](auto& g) { g.max_tokens_per_visit = 0; },
         "max_tokens_per_visit = 0, accepted: 1..16777216"},
        {[](auto& g) { g.max_tokens_per_visit = (1 << 24) + 1; },
         "max_tokens_per_visit = 16777217, accepted: 1..16777216"},
        {[](auto& g) { g.layers = g.experts = 1 << 20; },
         "layers x experts = 1099511627776, accepted: at most 268435456"},
        // Ranks and counts of a token's experts have 16 bits; positions in a visit's ids have 32.
        {[](auto& g) { g = {.layers = 1, .experts = 1 << 20, .top_k = 65536}; },
         "top_k = 65536, accepted: 1..65535"},
        {[](auto& g) {
           g = {.layers = 1, .experts = 256, .top_k = 129, .max_tokens_per_visit = 1 << 24};
         },
         "max_tokens_per_visit x top_k = 2164260864, accepted: at most 2147483648"},
        {[](auto& g) {
           g.expert_bytes = {10, 20};
         },
         "expert_bytes has 2 entries, accepted: none, 1 or one per layer (3)"},
        {[](auto& g) {
           g.expert_bytes = {10, 0, 20};
         },
         "expert_bytes[1] = 0, accepted: 1 or more"},
        {[](auto& g) {
           g.layer_size_class = {1_size_class, 0_size_class};
         },
         "layer_size_class has 2 entries, accepted: none or one per layer (3)"},
        {[](auto& g) {
           g.layer_size_class = {0_size_class, 3_size_class, 0_size_class};
         },
         "layer_size_class[1] = 3, accepted: 0..2"},
        {[](auto& g) {
           g.layer_size_class = {0_size_class, size_class_id{-1}, 0_size_class};
         },
         "layer_size_class[1] = -1, accepted: 0..2"},
        {[](auto& g) { g.lower_precisions = {{8}}; },
         "several precisions and no expert_bytes, accepted: the bytes of each precision"},
        {[](auto& g) {
           g.expert_bytes = {16};
           g.lower_precisions = {{8}, {}};
         },
         "lower_precisions[1] is empty, accepted: 1 or one per layer"},
        {[](auto& g) {
           g.expert_bytes = {16};
           g.lower_precisions = {{8, 0, 8}};
         },
         "lower_precisions[0][1] = 0, accepted: 1 or more"},
        {[](auto& g) {
           g.expert_bytes = {16, 8, 16};
           g.lower_precisions = {{8}};
         },
         "lower_precisions[0] of layer 1 is not smaller than the precision above it, accepted: "
         "falling bytes"},
        {[](auto& g) {
           g.expert_bytes = {512};
           g.lower_precisions.assign(8, std::vector<std::uint64_t>{4});
         },
         "9 precisions, accepted: 1..8"},
    }));

TEST(geometry, byte_counts_are_none_one_or_one_per_layer) {
  auto shape = sound;
  EXPECT_EQ(shape.bytes_of(2_layer), 1U) << "unknown bytes count as one";
  shape.expert_bytes = {7};
  EXPECT_EQ(shape.bytes_of(2_layer), 7U);
  shape.expert_bytes = {10, 20, 30};
  EXPECT_EQ(reason(shape), "accepted");
  EXPECT_EQ(shape.bytes_of(2_layer), 30U);
}

TEST(geometry, layers_of_equal_bytes_share_a_size_class_by_default) {
  auto shape = sound;
  shape.expert_bytes = {30, 10, 30};
  EXPECT_THAT(shape.size_classes(), ElementsAre(0, 1, 0));
  shape.layer_size_class = {1_size_class, 0_size_class, 1_size_class};
  EXPECT_THAT(shape.size_classes(), ElementsAre(1, 0, 1));
  EXPECT_EQ(reason(shape), "accepted");
}

TEST(geometry, every_key_has_its_own_index) {
  for (std::size_t i = 0; i < sound.keys(); ++i) {
    EXPECT_TRUE(sound.contains(sound.key(i)));
    EXPECT_EQ(sound.index(sound.key(i)), i);
  }
  for (const expert_key outside :
       {expert_key{before_layers, 0_expert}, expert_key{3_layer, 0_expert},
        expert_key{0_layer, no_expert}, expert_key{0_layer, 8_expert}, no_key})
    EXPECT_FALSE(sound.contains(outside));
}

TEST(geometry, bytes_fall_from_precision_to_precision) {
  geometry shape{.layers = 2, .experts = 4, .top_k = 2};
  shape.expert_bytes = {16, 12};
  shape.lower_precisions = {{8}, {4, 3}};
  EXPECT_FALSE(shape.validate());
  EXPECT_EQ(shape.precisions(), 3U);
  EXPECT_EQ(shape.bytes_of(1_layer), 12U);
  EXPECT_EQ(shape.bytes_of(1_layer, 1_precision), 8U);
  EXPECT_EQ(shape.bytes_of(0_layer, 2_precision), 4U);
  EXPECT_EQ(shape.bytes_of(1_layer, 2_precision), 3U);
}

TEST(expert_layout, bytes_are_the_sum_of_all_tensors) {
  const expert_layout layout{{{"gate", 100}, {"up", 100}, {"down", 60}}};
  EXPECT_EQ(layout.bytes(), 260U);
  EXPECT_FALSE(layout.validate());
}

TEST(expert_layout, one_to_eight_tensors_of_some_bytes) {
  EXPECT_THAT(expert_layout{}.validate()->message, HasSubstr("0 tensors, accepted: 1..8"));
  expert_layout nine;
  for (int t = 0; t < 9; ++t) nine.tensors.push_back({"t", 1});
  EXPECT_THAT(nine.validate()->message, HasSubstr("9 tensors, accepted: 1..8"));
  nine.tensors.pop_back();
  EXPECT_FALSE(nine.validate());
  nine.tensors[3] = {"scales", 0};
  EXPECT_EQ(nine.validate()->message, "tensor 'scales' has 0 bytes, accepted: 1 or more");
}

}  // namespace
}  // namespace hotset::geometry_test
