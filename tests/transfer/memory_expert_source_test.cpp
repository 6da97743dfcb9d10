// SPDX-License-Identifier: Apache-2.0
#include "hotset/transfer/memory_expert_source.hpp"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::memory_expert_source_test {
namespace {

using testing::HasSubstr;

const geometry shape{.layers = 2, .experts = 4, .top_k = 1};
const expert_layout layout{{{"up", 20}, {"down", 10}}};

// Hazard 17: sizes are checked when an expert is registered.
TEST(memory_expert_source, a_tensor_of_another_size_is_refused_with_its_name) {
  auto source = memory_expert_source::create(shape, {layout}).value();
  const std::array<std::byte, 20> up{};
  const std::array<std::byte, 9> down{};
  const auto refused = source.add({1_layer, 2_expert}, std::array<tensor_bytes, 2>{up, down});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->message, "layer 1, expert 2, tensor 'down' has 9 bytes, accepted: 10");
  EXPECT_THAT(source.add({1_layer, 2_expert}, std::array<tensor_bytes, 1>{up})->message,
              HasSubstr("has 1 tensors, accepted: 2"));
  EXPECT_THAT(source.add({2_layer, 0_expert}, {})->message,
              HasSubstr("layer 2, expert 0 is outside the model"));
  EXPECT_TRUE(source.tensors({1_layer, 2_expert}, 0_precision).empty());
}

TEST(memory_expert_source, tensors_are_views_of_the_callers_bytes) {
  auto source = memory_expert_source::create(shape, {layout}).value();
  const std::array<std::byte, 20> up{};
  const std::array<std::byte, 10> down{};
  ASSERT_FALSE(source.add({1_layer, 2_expert}, std::array<tensor_bytes, 2>{up, down}));
  const auto tensors = source.tensors({1_layer, 2_expert}, 0_precision);
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].data(), up.data());
  EXPECT_EQ(tensors[1].data(), down.data());
  EXPECT_TRUE(source.tensors({1_layer, 1_expert}, 0_precision).empty());
  EXPECT_TRUE(source.tensors({before_layers, 0_expert}, 0_precision).empty());
  source.remove({1_layer, 2_expert});
  source.remove({7_layer, 7_expert});
  EXPECT_TRUE(source.tensors({1_layer, 2_expert}, 0_precision).empty());
}

TEST(memory_expert_source, every_size_class_needs_a_layout) {
  auto mixed = shape;
  mixed.expert_bytes = {30, 8};
  EXPECT_THAT(memory_expert_source::create(mixed, {layout}).error().message,
              HasSubstr("layer 1 is of size class 1"));
  EXPECT_THAT(memory_expert_source::create(shape, {expert_layout{}}).error().message,
              HasSubstr("0 tensors"));
}

}  // namespace
}  // namespace hotset::memory_expert_source_test
