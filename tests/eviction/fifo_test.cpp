// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/fifo.hpp"

#include <gtest/gtest.h>

#include "reference_policies.hpp"

namespace hotset::fifo_test {
namespace {

using reference::hand_walk;
using reference::shared;
using support::slot_ids;

TEST(fifo, ignores_uses) {
  hand_walk<fifo> w(shared(1, 3));
  w.begin(0, 0);
  w.fill(2, {0_layer, 4_expert});
  w.fill(0, {0_layer, 5_expert});
  w.prefetch(1, {0_layer, 6_expert}, 1);
  w.hit(2);
  EXPECT_EQ(w.order(1, 0), slot_ids({2, 0, 1}));
  w.evict(2);
  w.fill(2, {0_layer, 4_expert});
  EXPECT_EQ(w.order(1, 0), slot_ids({0, 1, 2}));
}

}  // namespace
}  // namespace hotset::fifo_test
