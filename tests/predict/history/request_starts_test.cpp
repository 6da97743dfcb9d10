// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/history/request_starts.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace hotset::request_starts_test {
namespace {

const geometry shape{.layers = 3, .experts = 4, .top_k = 1, .max_tokens_per_visit = 4};

bool begins(request_starts& starts, step_id step, layer_id layer,
            const std::vector<sequence_id>& sequences) {
  routing_view view;
  view.step = step;
  view.layer = layer;
  view.sequences = sequences;
  return starts.begins(view);
}

TEST(request_starts, a_step_without_the_sequences_of_the_one_before_begins_a_request) {
  request_starts starts(shape);
  EXPECT_TRUE(begins(starts, 0, before_layers, {7, 7}));
  EXPECT_FALSE(begins(starts, 0, 0_layer, {7, 7}));
  EXPECT_FALSE(begins(starts, 1, 0_layer, {7}));
  EXPECT_TRUE(begins(starts, 2, 0_layer, {8}));
  EXPECT_FALSE(begins(starts, 2, 1_layer, {8}));
  EXPECT_FALSE(begins(starts, 3, 0_layer, {9, 8}));  // one goes on
  EXPECT_FALSE(begins(starts, 5, 0_layer, {9}));
  EXPECT_TRUE(begins(starts, 6, 0_layer, {8}));  // it was not of the step before
}

TEST(request_starts, views_that_name_no_sequence_are_all_of_one) {
  request_starts starts(shape);
  EXPECT_TRUE(begins(starts, 4, 0_layer, {}));
  EXPECT_FALSE(begins(starts, 5, 0_layer, {}));
  EXPECT_TRUE(begins(starts, 6, 0_layer, {1}));
  EXPECT_TRUE(begins(starts, 7, 0_layer, {}));
}

}  // namespace
}  // namespace hotset::request_starts_test
