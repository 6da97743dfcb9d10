// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/belady.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "reference_policies.hpp"

namespace hotset::belady_test {
namespace {

using reference::hand_walk;
using support::slot_ids;

const geometry shape{.layers = 1, .experts = 8, .top_k = 2};
std::shared_ptr<const future_uses> future(const std::vector<future_uses::event>& events) {
  auto made = future_uses::create(shape, events);
  return made ? std::make_shared<const future_uses>(*std::move(made)) : nullptr;
}

TEST(belady, evicts_the_key_used_furthest_in_the_future) {
  // Visit 0 uses 4 and 5, visit 1: 6 and 4, visit 2: 5, visit 3: 6.
  const auto known = future({{0, {0_layer, 4_expert}},
                             {0, {0_layer, 5_expert}},
                             {1, {0_layer, 6_expert}},
                             {1, {0_layer, 4_expert}},
                             {2, {0_layer, 5_expert}},
                             {3, {0_layer, 6_expert}}});
  hand_walk<belady> w(pool_layout::shared(shape, 3).value(), {.future = known});
  w.begin(0, 0);
  w.fill(0, {0_layer, 4_expert});  // next 1
  w.fill(1, {0_layer, 5_expert});  // next 2
  EXPECT_EQ(w.order(1, 0), slot_ids({1, 0}));
  w.begin(1, 0);
  w.fill(2, {0_layer, 6_expert});  // next 3
  w.hit(0);                        // never
  EXPECT_EQ(w.order(2, 0), slot_ids({0, 2, 1}));
  w.begin(2, 0);
  w.hit(1);  // never: like 0, which is less recent
  EXPECT_EQ(w.order(3, 0), slot_ids({0, 1, 2}));
}

TEST(belady, checks_its_future) {
  EXPECT_TRUE(belady::config{}.validate());
  const belady::config known{.future = future({{0, {0_layer, 4_expert}}})};
  EXPECT_FALSE(known.validate());
  EXPECT_FALSE(known.validate(shape));
  EXPECT_TRUE(known.validate({.layers = 2, .experts = 8, .top_k = 2}));
}

}  // namespace
}  // namespace hotset::belady_test
