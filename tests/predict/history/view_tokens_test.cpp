// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/history/view_tokens.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotset::view_tokens_test {
namespace {

using testing::ElementsAre;

const view_tokens tokens_of({.layers = 3, .experts = 9, .top_k = 2, .max_tokens_per_visit = 3});
const std::array<std::int32_t, 8> ids{0, 1, 2, 3, 4, 5, 6, 7};
const std::array<sequence_id, 4> sequences{5, 6, 7, 8};
const std::array<std::int32_t, 4> words{100, 101, 102, 103};

routing_view view_of(layer_id layer, std::size_t experts, std::size_t owners = 0) {
  return {.layer = layer,
          .experts = std::span(ids).first(experts),
          .sequences = std::span(sequences).first(owners)};
}

TEST(view_tokens, counts_the_tokens_of_a_visit) {
  EXPECT_EQ(tokens_of.tokens(view_of(0_layer, 6)), 3U);
  EXPECT_EQ(tokens_of.tokens(view_of(2_layer, 0)), 0U);
  EXPECT_THAT(tokens_of.ids_of(view_of(0_layer, 6), 1), ElementsAre(2, 3));
}

TEST(view_tokens, a_view_that_opens_a_step_concerns_its_own_sequences) {
  auto view = view_of(before_layers, 0);
  EXPECT_EQ(tokens_of.tokens(view), 1U);
  view.token_ids = std::span(words).first(3);
  EXPECT_EQ(tokens_of.tokens(view), 3U);
  EXPECT_EQ(tokens_of.tokens(view_of(before_layers, 0, 2)), 2U);
}

TEST(view_tokens, a_token_without_a_sequence_is_of_request_0) {
  EXPECT_EQ(sequence_of(view_of(0_layer, 4, 2), 1), 6U);
  EXPECT_EQ(sequence_of(view_of(0_layer, 4), 1), 0U);
}

TEST(view_tokens, arrays_that_do_not_belong_together_are_refused) {
  EXPECT_EQ(tokens_of.check(view_of(0_layer, 6, 3)), status::ok);
  EXPECT_EQ(tokens_of.check(view_of(2_layer, 2)), status::ok);
  EXPECT_EQ(tokens_of.check(view_of(before_layers, 0, 3)), status::ok);
  EXPECT_EQ(tokens_of.check(view_of(layer_id{-2}, 2)), status::invalid_visit);
  EXPECT_EQ(tokens_of.check(view_of(3_layer, 2)), status::invalid_visit);
  EXPECT_EQ(tokens_of.check(view_of(0_layer, 3)), status::invalid_visit);
  EXPECT_EQ(tokens_of.check(view_of(0_layer, 4, 3)), status::invalid_visit);
  EXPECT_EQ(tokens_of.check(view_of(0_layer, 8)), status::visit_too_large);
  EXPECT_EQ(tokens_of.check(view_of(before_layers, 0, 4)), status::visit_too_large);
  auto view = view_of(before_layers, 0, 2);
  view.token_ids = std::span(words).first(3);
  EXPECT_EQ(tokens_of.check(view), status::invalid_visit) << "one sequence a token";
}

const geometry three_layers{.layers = 3, .experts = 4, .top_k = 1, .max_tokens_per_visit = 4};

bool begins(request_starts& starts, step_id step, layer_id layer,
            const std::vector<sequence_id>& owners) {
  return starts.begins({.layer = layer, .step = step, .sequences = owners});
}

TEST(request_starts, a_step_without_the_sequences_of_the_one_before_begins_a_request) {
  request_starts starts(three_layers);
  EXPECT_TRUE(begins(starts, 0, before_layers, {7, 7}));
  EXPECT_FALSE(begins(starts, 0, 0_layer, {7, 7}));
  EXPECT_FALSE(begins(starts, 1, 0_layer, {7}));
  EXPECT_TRUE(begins(starts, 2, 0_layer, {8}));
  EXPECT_FALSE(begins(starts, 2, 1_layer, {8}));
  EXPECT_FALSE(begins(starts, 3, 0_layer, {9, 8}));  // one sequence continues
  EXPECT_FALSE(begins(starts, 5, 0_layer, {9}));
  EXPECT_TRUE(begins(starts, 6, 0_layer, {8}));  // it was not in the step before
}

TEST(request_starts, views_that_name_no_sequence_are_all_of_one) {
  request_starts starts(three_layers);
  EXPECT_TRUE(begins(starts, 4, 0_layer, {}));
  EXPECT_FALSE(begins(starts, 5, 0_layer, {}));
  EXPECT_TRUE(begins(starts, 6, 0_layer, {1}));
  EXPECT_TRUE(begins(starts, 7, 0_layer, {}));
}

}  // namespace
}  // namespace hotset::view_tokens_test
