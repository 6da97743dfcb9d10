// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/curve/curve_recorder.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::curve_recorder_test {
namespace {

using testing::ElementsAre;

routing_view view_of(layer_id layer, step_id step, const std::vector<std::int32_t>& ids) {
  routing_view view{};
  view.layer = layer;
  view.step = step;
  view.experts = ids;
  return view;
}

TEST(curve_recorder, has_a_curve_a_layer_or_one) {
  const geometry shape{.layers = 2, .experts = 4, .top_k = 2};
  curve_recorder own(shape, cache_scope::per_layer);
  curve_recorder shared(shape, cache_scope::shared);
  const std::vector<std::int32_t> ids{0, 1};
  for (step_id step = 0; step < 3; ++step)
    for (const layer_id layer : {0_layer, 1_layer}) {
      own.observe(view_of(layer, step, ids));
      shared.observe(view_of(layer, step, ids));
    }
  ASSERT_EQ(own.histograms().size(), 2U);
  for (const auto& histogram : own.histograms()) {
    EXPECT_THAT(histogram.misses(), ElementsAre(6U, 4U, 2U, 2U, 2U));
    EXPECT_EQ(histogram.widest(), 2U);
  }
  ASSERT_EQ(shared.histograms().size(), 1U);
  // Another layer's two experts are used between two visits of a layer.
  EXPECT_THAT(shared.histograms()[0].misses(), ElementsAre(12U, 12U, 12U, 8U, 4U, 4U, 4U, 4U, 4U));
  EXPECT_EQ(own.steps(), 3U);
  EXPECT_EQ(shared.steps(), 3U);
}

}  // namespace
}  // namespace hotset::curve_recorder_test
