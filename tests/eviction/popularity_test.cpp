// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/popularity.hpp"

#include <gtest/gtest.h>

#include "reference_policies.hpp"

namespace hotset::popularity_test {
namespace {

using reference::hand_walk;
using reference::shared;
using support::slot_ids;

TEST(popularity, never_changes_its_mind) {
  hand_walk<popularity> w(shared(1, 4), {.profile = {{0, 0, 0, 0, 9, 3, 3, 0}, "a file"}});
  w.begin(0, 0);
  w.fill_from(4, 3);
  w.fill(3, {0_layer, 7_expert});
  for (step_id s = 1; s < 20; ++s) {
    w.begin(s, 0);
    w.hit(3);
    w.hit(1);
  }
  EXPECT_EQ(w.order(20, 0), slot_ids({3, 2, 1, 0}));  // 0, then 3 and 3 by recency, then 9
}

}  // namespace
}  // namespace hotset::popularity_test
