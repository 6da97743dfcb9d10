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
  // Another layer's two experts lie between two visits of a layer.
  EXPECT_THAT(shared.histograms()[0].misses(), ElementsAre(12U, 12U, 12U, 8U, 4U, 4U, 4U, 4U, 4U));
  EXPECT_EQ(own.steps(), 3U);
  EXPECT_EQ(shared.steps(), 3U);
}

// Few keys are kept in bytes, many in a bitmap: the same either way.
TEST(curve_recorder, is_the_same_however_many_keys_there_are) {
  const auto misses_of = [](std::int32_t experts) {
    curve_recorder recorder({.layers = 1, .experts = experts, .top_k = 3}, cache_scope::shared);
    for (step_id step = 0; step < 400; ++step) {
      const auto first = static_cast<std::int32_t>(step * step % 41);
      const std::vector<std::int32_t> ids{first, (first + 7) % 41, (first + 19) % 41};
      recorder.observe(view_of(0_layer, step, ids));
    }
    auto misses = recorder.histograms()[0].misses();
    misses.resize(42);
    return misses;
  };
  EXPECT_EQ(misses_of(256), misses_of(257));
}

}  // namespace
}  // namespace hotset::curve_recorder_test
