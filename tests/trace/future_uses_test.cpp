// SPDX-License-Identifier: Apache-2.0
#include "hotset/trace/future_uses.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/trace/visit_sequence.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "uses_of.hpp"
#include "written_ids.hpp"

namespace future_uses_test {
namespace {
using namespace hotset;
using support::key_of;
using ::testing::ElementsAre;

result<future_uses> future(const std::vector<future_uses::event>& events) {
  return future_uses::create({.layers = 2, .experts = 8, .top_k = 2}, events);
}

TEST(future_uses, lists_each_visit_once) {
  const auto known = future({{0, key_of(0, 1)},
                             {0, key_of(0, 1)},
                             {4, key_of(0, 1)},
                             {4, key_of(1, 2)},
                             {9, key_of(0, 1)}});
  ASSERT_TRUE(known);
  EXPECT_EQ(known->keys(), 16U);
  EXPECT_THAT(known->keys_in_order(), ElementsAre(1, 1, 10, 1));
  EXPECT_THAT(known->ordinals(), ElementsAre(0, 4, 4, 9));
}

TEST(future_uses, refuses_sizes_beyond_its_limits) {
  const auto falling = future({{3, key_of(0, 1)}, {2, key_of(0, 1)}});
  ASSERT_FALSE(falling);
  EXPECT_EQ(falling.error().message,
            "event 1: ordinal 2, layer 0, expert 1, accepted: ordinals that do not fall");
  EXPECT_FALSE(future({{0, key_of(0, 8)}}));
  EXPECT_FALSE(future({{0, key_of(2, 0)}}));
  EXPECT_FALSE(future({{future_uses::never, key_of(0, 1)}}));
}

const geometry shape{.layers = 2, .experts = 4, .top_k = 2};

future_uses known() {
  // Layer 0 is visited at 0, 2 and 4, layer 1 at 1 and 3.
  return future_uses::create(shape, std::vector<future_uses::event>{{0, key_of(0, 1)},
                                                                    {0, key_of(0, 2)},
                                                                    {1, key_of(1, 3)},
                                                                    {2, key_of(0, 1)},
                                                                    {3, key_of(1, 3)},
                                                                    {4, key_of(0, 2)}})
      .value();
}

TEST(use_order, numbers_the_last_use_of_a_pool_first) {
  const use_order order(pool_layout::shared(shape, 4).value(), known());
  EXPECT_EQ(order.size(), 6U);
  EXPECT_THAT(order.ordinals(), ElementsAre(4, 3, 2, 1, 0, 0));
  EXPECT_THAT(order.keys(), ElementsAre(2, 7, 1, 7, 2, 1));
  EXPECT_THAT(order.following(),
              ElementsAre(use_order::none, use_order::none, use_order::none, 1, 0, 2));
  EXPECT_EQ(order.first()[1], 5U);
  EXPECT_EQ(order.first()[7], 3U);
  EXPECT_EQ(order.first()[0], use_order::none);
  EXPECT_EQ(order.end(0_pool), 6U);
  EXPECT_EQ(order.widest(), 2U);
}

TEST(use_order, goes_pool_by_pool) {
  const use_order order(pool_layout::per_layer(shape, 2).value(), known());
  EXPECT_THAT(order.ordinals(), ElementsAre(4, 2, 0, 0, 3, 1));
  EXPECT_EQ(order.end(0_pool), 4U);
  EXPECT_EQ(order.end(1_pool), 6U);
}

TEST(use_order, fits_layouts_with_the_same_pool_sharing) {
  const use_order shared(pool_layout::shared(shape, 4).value(), known());
  EXPECT_TRUE(shared.fits(pool_layout::shared(shape, 8).value()));
  EXPECT_FALSE(shared.fits(pool_layout::per_layer(shape, 2).value()));
  EXPECT_FALSE(
      shared.fits(pool_layout::shared({.layers = 2, .experts = 5, .top_k = 2}, 4).value()));
  EXPECT_FALSE(use_order().fits(pool_layout::shared(shape, 4).value()));
}

/// Replays each use of each key; they equal the key's uses in the future.
TEST(use_order, agrees_with_the_future_of_a_trace) {
  const visit_sequence visits(
      synthetic_trace({.layers = 5, .experts = 12, .top_k = 3, .tokens = 60, .seed = 9}).value());
  std::vector<future_uses::event> events;
  for (std::size_t i = 0; i < visits.size(); ++i)
    for (const auto e : visits[i].experts) events.push_back({i, {visits.at(i).layer, e}});
  const auto future = future_uses::create(visits.shape(), events).value();
  for (const auto& layout : {pool_layout::shared(visits.shape(), 20).value(),
                             pool_layout::per_layer(visits.shape(), 4).value()}) {
    const use_order order(layout, future);
    for (std::size_t k = 0; k < future.keys(); ++k) {
      std::vector<std::uint32_t> walked;
      for (auto use = order.first()[k]; use != use_order::none; use = order.following()[use]) {
        EXPECT_EQ(order.keys()[use], k);
        walked.push_back(order.ordinals()[use]);
      }
      EXPECT_THAT(walked, ::testing::ElementsAreArray(support::uses_of(future, k)));
    }
  }
}

next_visits of(const std::vector<future_uses::event>& events) {
  return {shape, future_uses::create(shape, events).value()};
}
/// Experts that the layer's next visit from an ordinal on uses.
std::vector<expert_id> next_of(next_visits& coming, layer_id layer, std::uint64_t from) {
  std::vector<expert_id> used;
  for (const auto e : each<expert_id>(shape.experts))
    if (coming.uses({layer, e}, from)) used.push_back(e);
  return used;
}
using ids = std::vector<expert_id>;
using support::expert_ids;

TEST(next_visits, belong_to_the_queried_layer) {
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

TEST(next_visits, may_be_queried_repeatedly_and_out_of_order) {
  auto coming = of({{0, key_of(0, 0)}, {1, key_of(0, 1)}, {2, key_of(0, 2)}, {3, key_of(0, 3)}});
  for (const std::uint64_t from : {3U, 0U, 2U, 4U, 1U, 1U, 4U, 0U})
    EXPECT_EQ(next_of(coming, 0_layer, from),
              from == 4 ? ids{} : ids{static_cast<expert_id>(from)});
}

TEST(next_visits, of_no_future_use_nothing) {
  next_visits of_no_layer;
  for (auto none : {of({}), of_no_layer}) EXPECT_EQ(next_of(none, 0_layer, 0), ids{});
}

}  // namespace
}  // namespace future_uses_test
