// SPDX-License-Identifier: Apache-2.0
#include "hotset/placement/step_loads.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace step_loads_test {
namespace {

using namespace hotset;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(step_loads, count_tokens_by_step) {
  step_loads loads(3);
  EXPECT_EQ(loads.steps(), 0U);
  loads.add_step();
  loads.add(2_expert);
  loads.add(2_expert);
  loads.add_step();
  loads.add(0_expert);
  EXPECT_EQ(loads.steps(), 2U);
  EXPECT_THAT(loads.step(0), ElementsAre(0, 0, 2));
  EXPECT_THAT(loads.step(1), ElementsAre(1, 0, 0));
  EXPECT_THAT(loads.sums(), ElementsAre(1, 0, 2));
}

TEST(step_loads, take_whole_steps_of_counts) {
  EXPECT_EQ(step_loads::of(2, {1, 2, 3, 4}).value().steps(), 2U);
  EXPECT_THAT(step_loads::of(2, {1, 2, 3}).error().message, HasSubstr("a multiple of the 2"));
  EXPECT_THAT(step_loads::of(0, {}).error().message, HasSubstr("experts = 0"));
}

}  // namespace
}  // namespace step_loads_test
