// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/visit_event.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "written_ids.hpp"

namespace hotset::visit_event_test {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(visit_event, reports_for_each_use_whether_it_was_filled) {
  const visit_context context;
  const auto used = support::slot_ids({4, 7, 2, 9});
  std::vector<fill> fills(2);
  fills[0].slot = 7_slot;
  fills[1].slot = 9_slot;
  const visit_event event{.context = context, .used = used, .fills = fills};
  std::vector<std::pair<std::size_t, bool>> told;
  event.each_use([&](std::size_t i, bool is_filled) { told.emplace_back(i, is_filled); });
  EXPECT_THAT(told, ElementsAre(Pair(0, false), Pair(1, true), Pair(2, false), Pair(3, true)));
}

TEST(visit_event, an_expert_repeats_that_an_earlier_group_counted) {
  const visit_context context{.layer = 3_layer};
  const std::vector<std::uint8_t> counted{0, 1};
  const visit_event later{.context = context, .counted = counted};
  EXPECT_FALSE(later.repeats(0_expert));
  EXPECT_TRUE(later.repeats(1_expert));
  const visit_event whole{.context = context};
  EXPECT_FALSE(whole.repeats(1_expert));
  EXPECT_EQ(whole.key(1_expert), (expert_key{3_layer, 1_expert}));
}

TEST(visit_event, weights_that_no_policy_needs_are_0) {
  const visit_context context;
  const std::vector<double> weights{.5, .25};
  EXPECT_EQ((visit_event{.context = context, .weights = weights}.weight(1)), .25);
  EXPECT_EQ((visit_event{.context = context}.weight(1)), 0.0);
}

}  // namespace
}  // namespace hotset::visit_event_test
