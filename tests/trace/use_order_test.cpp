// SPDX-License-Identifier: Apache-2.0
#include "hotset/trace/use_order.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/trace/visit_sequence.hpp"
#include "lab/traces/synthetic/synthetic.hpp"
#include "written_ids.hpp"

namespace use_order_test {
namespace {
using namespace hotset;
using support::key_of;
using ::testing::ElementsAre;

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

TEST(use_order, fits_layouts_whose_layers_share_pools_alike) {
  const use_order shared(pool_layout::shared(shape, 4).value(), known());
  EXPECT_TRUE(shared.fits(pool_layout::shared(shape, 8).value()));
  EXPECT_FALSE(shared.fits(pool_layout::per_layer(shape, 2).value()));
  EXPECT_FALSE(
      shared.fits(pool_layout::shared({.layers = 2, .experts = 5, .top_k = 2}, 4).value()));
  EXPECT_FALSE(use_order().fits(pool_layout::shared(shape, 4).value()));
}

/// Each use of each key, walked through, is the key's in the future.
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
      EXPECT_THAT(walked, ::testing::ElementsAreArray(future.uses(k)));
    }
  }
}

}  // namespace
}  // namespace use_order_test
