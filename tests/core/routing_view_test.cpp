// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/routing_view.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::routing_view_test {
namespace {

using testing::ElementsAre;

TEST(routing_view, chosen_ids_are_the_routed_ids_unless_a_policy_changed_them) {
  const std::vector<std::int32_t> routed{4, -1};
  const std::vector<std::int32_t> choice{4, 7};
  routing_view view;
  view.experts = routed;
  EXPECT_THAT(view.chosen(), ElementsAre(4, -1));
  view.router_choice = choice;
  EXPECT_THAT(view.chosen(), ElementsAre(4, 7));
}

}  // namespace
}  // namespace hotset::routing_view_test
