// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/belady.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "reference_policies.hpp"

namespace hotset {
namespace {

using reference::hand_walk;
using slots = std::vector<slot_id>;

const geometry shape{.layers = 1, .experts = 8, .top_k = 2};
std::shared_ptr<const future_uses> future(const std::vector<future_uses::event>& events) {
  auto made = future_uses::create(shape, events);
  return made ? std::make_shared<const future_uses>(*std::move(made)) : nullptr;
}

TEST(belady, gives_up_what_is_used_furthest_away) {
  // Visit 0 uses 4 and 5, visit 1: 6 and 4, visit 2: 5, visit 3: 6.
  const auto known =
      future({{0, {0, 4}}, {0, {0, 5}}, {1, {0, 6}}, {1, {0, 4}}, {2, {0, 5}}, {3, {0, 6}}});
  hand_walk<belady> w(pool_layout::shared(shape, 3).value(), {.future = known});
  w.begin(0, 0);
  w.fill(0, {0, 4});  // next 1
  w.fill(1, {0, 5});  // next 2
  EXPECT_EQ(w.order(1, 0), (slots{1, 0}));
  w.begin(1, 0);
  w.fill(2, {0, 6});  // next 3
  w.hit(0);           // never
  EXPECT_EQ(w.order(2, 0), (slots{0, 2, 1}));
  w.begin(2, 0);
  w.hit(1);  // never: as 0, which is less recent
  EXPECT_EQ(w.order(3, 0), (slots{0, 1, 2}));
}

TEST(belady, orders_equal_next_visits_by_recency) {
  // Visit 3 uses 1, 2 and 3, whatever the order of their last use.
  const auto known =
      future({{0, {0, 3}}, {1, {0, 1}}, {2, {0, 2}}, {3, {0, 1}}, {3, {0, 2}}, {3, {0, 3}}});
  hand_walk<belady> w(pool_layout::shared(shape, 3).value(), {.future = known});
  w.begin(0, 0);
  w.fill(0, {0, 3});
  w.begin(1, 0);
  w.fill(1, {0, 1});
  w.begin(2, 0);
  w.fill(2, {0, 2});
  EXPECT_EQ(w.order(3, 0), (slots{0, 1, 2}));
}

TEST(belady, checks_its_future) {
  EXPECT_TRUE(belady::config{}.validate());
  const belady::config known{.future = future({{0, {0, 4}}})};
  EXPECT_FALSE(known.validate());
  EXPECT_FALSE(known.validate(shape));
  EXPECT_TRUE(known.validate({.layers = 2, .experts = 8, .top_k = 2}));
}

}  // namespace
}  // namespace hotset
