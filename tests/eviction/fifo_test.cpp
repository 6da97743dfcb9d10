// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/fifo.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "reference_policies.hpp"

namespace hotset {
namespace {

using reference::hand_walk;
using reference::shared;
using slots = std::vector<slot_id>;

TEST(fifo, ignores_uses) {
  hand_walk<fifo> w(shared(1, 3));
  w.begin(0, 0);
  w.fill(2, {0, 4});
  w.fill(0, {0, 5});
  w.prefetch(1, {0, 6}, 1);
  w.hit(2);
  EXPECT_EQ(w.order(1, 0), (slots{2, 0, 1}));
  w.evict(2);
  w.fill(2, {0, 4});
  EXPECT_EQ(w.order(1, 0), (slots{0, 1, 2}));
}

}  // namespace
}  // namespace hotset
