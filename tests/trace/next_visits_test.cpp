// SPDX-License-Identifier: Apache-2.0
#include "hotset/trace/next_visits.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "written_ids.hpp"

namespace hotset::next_visits_test {
namespace {

const geometry shape{.layers = 2, .experts = 4, .top_k = 2};

next_visits of(const std::vector<future_uses::event>& events) {
  return {shape, future_uses::create(shape, events).value()};
}
/// Experts of a layer that its next visit from an ordinal on uses.
std::vector<expert_id> next_of(next_visits& coming, layer_id layer, std::uint64_t from) {
  std::vector<expert_id> used;
  for (const auto e : each<expert_id>(shape.experts))
    if (coming.uses({layer, e}, from)) used.push_back(e);
  return used;
}
using ids = std::vector<expert_id>;
using support::expert_ids;
using support::key_of;

TEST(next_visits, are_those_of_the_own_layer) {
  auto coming = of({{0, key_of(0, 1)},
                    {0, key_of(0, 2)},
                    {1, key_of(1, 3)},
                    {2, key_of(0, 1)},
                    {5, key_of(1, 0)}});
  EXPECT_EQ(next_of(coming, 0_layer, 0), expert_ids({1, 2}));
  EXPECT_EQ(next_of(coming, 1_layer, 0), expert_ids({3}));
  EXPECT_EQ(next_of(coming, 0_layer, 1), expert_ids({1}));
  EXPECT_EQ(next_of(coming, 1_layer, 1), expert_ids({3}));
  EXPECT_EQ(next_of(coming, 1_layer, 2), expert_ids({0})) << "the other layer's visits lie between";
  EXPECT_EQ(next_of(coming, 0_layer, 3), ids{}) << "none is to come";
  EXPECT_EQ(next_of(coming, 0_layer, std::uint64_t{1} << 40U), ids{});
}

TEST(next_visits, may_be_asked_for_again_and_out_of_order) {
  auto coming = of({{0, key_of(0, 0)}, {1, key_of(0, 1)}, {2, key_of(0, 2)}, {3, key_of(0, 3)}});
  for (const std::uint64_t from : {3U, 0U, 2U, 4U, 1U, 1U, 4U, 0U})
    EXPECT_EQ(next_of(coming, 0_layer, from),
              from == 4 ? ids{} : ids{static_cast<expert_id>(from)});
}

TEST(next_visits, of_no_future_use_nothing) {
  auto none = of({});
  EXPECT_EQ(next_of(none, 0_layer, 0), ids{});
  next_visits of_no_layer;
  EXPECT_EQ(next_of(of_no_layer, 0_layer, 0), ids{});
}

}  // namespace
}  // namespace hotset::next_visits_test
