// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/expert_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::expert_layout_test {
namespace {

using testing::HasSubstr;

TEST(expert_layout, bytes_are_those_of_all_tensors) {
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
}  // namespace hotset::expert_layout_test
