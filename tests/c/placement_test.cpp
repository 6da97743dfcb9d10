// SPDX-License-Identifier: Apache-2.0
// hotset_place against the library's own placement.
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset.h"
#include "hotset/placement/place_by_steps.hpp"
#include "made_loads.hpp"

namespace placement_test {
namespace {

using testing::HasSubstr;

class place : public testing::Test {
 protected:
  place() {
    how.struct_size = sizeof how;
    how.experts = 32;
    how.ranks = 8;
    how.redundant = 8;
    for (std::size_t s = 0; s < steps.steps(); ++s)
      loads.insert(loads.end(), steps.step(s).begin(), steps.step(s).end());
  }
  std::string refused() {
    EXPECT_EQ(hotset_place(&how, loads.data(), steps.steps(), placed.data(), placed.size()),
              HOTSET_INVALID_ARGUMENT);
    return hotset_last_error();
  }

  hotset::step_loads steps = hotset_test::made_loads(32, 30, 1);
  hotset_place_options how{};
  std::vector<std::uint32_t> loads;
  std::vector<std::int32_t> placed = std::vector<std::int32_t>(40);
};

TEST_F(place, decides_as_the_library) {
  const auto shape = hotset::placement_shape::of(32, 8, 8).value();
  hotset::expert_placement expected;
  for (const std::uint32_t cost : {0U, 2000U}) {
    how.move_cost = cost;
    how.starts = 3;
    const std::vector<std::int32_t> start = placed;
    if (cost > 0) how.start = start.data();
    const hotset::expert_placement from = expected;
    expected = hotset::place_by_steps(shape, steps, {.start = from, .move_cost = cost, .starts = 3})
                   .value();
    ASSERT_EQ(hotset_place(&how, loads.data(), steps.steps(), placed.data(), placed.size()),
              HOTSET_OK)
        << hotset_last_error();
    for (std::size_t slot = 0; slot < placed.size(); ++slot)
      EXPECT_EQ(placed[slot], number(expected[slot])) << slot;
  }
}

TEST_F(place, refuses_what_cannot_be) {
  how.ranks = 7;
  EXPECT_THAT(refused(), HasSubstr("such as redundant = "));
  how.ranks = 8;
  how.move_cost = 5;
  EXPECT_THAT(refused(), HasSubstr("without a start"));
  how.move_cost = 0;
  const std::vector<std::int32_t> start(40, 31);
  how.start = start.data();
  EXPECT_THAT(refused(), HasSubstr("no slot holds expert 0"));
  how.start = nullptr;
  for (const std::size_t wrapping : {std::size_t{1} << 59U, (std::size_t{1} << 59U) + 1}) {
    EXPECT_EQ(hotset_place(&how, loads.data(), wrapping, placed.data(), placed.size()),
              HOTSET_INVALID_ARGUMENT);
    EXPECT_THAT(hotset_last_error(), HasSubstr("accepted: at most 1048576"));
  }
  placed.resize(39);
  EXPECT_THAT(refused(), HasSubstr("slots = 39, accepted: 40"));
  EXPECT_EQ(hotset_place(nullptr, loads.data(), 1, placed.data(), 40), HOTSET_INVALID_ARGUMENT);
  EXPECT_EQ(hotset_place(&how, nullptr, 1, placed.data(), 40), HOTSET_INVALID_ARGUMENT);
  EXPECT_EQ(hotset_place(&how, loads.data(), 1, nullptr, 40), HOTSET_INVALID_ARGUMENT);
  placed.resize(40);
  for (auto* count : {&how.nodes, &how.groups, &how.starts}) {
    *count = -1;
    EXPECT_THAT(refused(), HasSubstr(" = -1"));
    *count = 0;
  }
  how.experts = -1;
  EXPECT_EQ(hotset_place(&how, loads.data(), 1, placed.data(), 39), HOTSET_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace placement_test
