// SPDX-License-Identifier: Apache-2.0
#include "hotset/trace/visit_sequence.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/traces/synthetic/synthetic.hpp"
#include "trace_samples.hpp"

namespace visit_sequence_test {
namespace {
using namespace hotset;
using ::testing::ElementsAre;

TEST(visit_sequence, goes_step_by_step_layer_by_layer) {
  const auto trace = trace_samples::full_trace();
  const visit_sequence visits(trace);
  ASSERT_EQ(visits.size(), 3U);  // the last token routes nothing in layer 1
  EXPECT_THAT(visits[0].experts, ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(visits[0].weights, ElementsAre(.75F, .25F, .75F, .25F));
  EXPECT_THAT(visits[1].experts, ElementsAre(2, 3, 3, -1));
  EXPECT_THAT(visits[2].experts, ElementsAre(3, 0));
  EXPECT_EQ(visits[1].layer, 1);
  EXPECT_EQ(visits[1].ordinal, 1U);
  EXPECT_EQ(visits[1].kind, request_class::prefill);
  EXPECT_EQ(visits[2].kind, request_class::decode);
  EXPECT_EQ(visits[2].step, 1U) << "steps are renumbered without gaps";
  EXPECT_EQ(visits.at(2).first_row, 2U);
  EXPECT_EQ(visits.tokens(), 3U);
  EXPECT_EQ(visits.steps(), 2U);
  EXPECT_EQ(visits.accesses(), 3U + 2U + 2U);
  EXPECT_EQ(visits.routed(), 4U + 3U + 2U);
  EXPECT_EQ(visits.widest_union(), 3U);
  EXPECT_EQ(visits.shape().max_tokens_per_visit, 2);
}

TEST(visit_sequence, per_access_each_valid_id_is_a_visit) {
  const visit_sequence visits(trace_samples::full_trace(), {.per_access = true});
  ASSERT_EQ(visits.size(), 9U);
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < visits.size(); ++i) ids.push_back(number(visits[i].experts.front()));
  EXPECT_THAT(ids, ElementsAre(0, 1, 1, 2, 2, 3, 3, 3, 0));
  EXPECT_THAT(visits[2].weights, ElementsAre(.75F));
  EXPECT_EQ(visits.at(2).first_row, 1U);
  EXPECT_EQ(visits.shape().top_k, 1);
  EXPECT_EQ(visits.shape().max_tokens_per_visit, 1);
  EXPECT_EQ(visits.accesses(), 9U);
}

TEST(visit_sequence, a_limit_of_tokens_cuts_a_step_into_passes) {
  const visit_sequence visits(trace_samples::full_trace(), {.max_tokens = 1});
  ASSERT_EQ(visits.size(), 5U);
  EXPECT_EQ(visits[1].layer, 1);
  EXPECT_EQ(visits[1].step, 0U);
  EXPECT_EQ(visits[2].layer, 0);
  EXPECT_EQ(visits[2].step, 1U);
  EXPECT_EQ(visits.steps(), 3U);
}

TEST(visit_sequence, a_mixed_step_is_prefill) {
  auto trace = trace_samples::full_trace();
  trace.kind[0] = request_class::decode;
  EXPECT_EQ(visit_sequence(trace)[0].kind, request_class::prefill);
  trace.kind[1] = request_class::verify;
  EXPECT_EQ(visit_sequence(trace)[0].kind, request_class::verify);
}

TEST(visit_sequence, refuses_an_invalid_trace_and_one_that_routes_nothing) {
  auto trace = trace_samples::full_trace();
  trace.ids[0] = 99_expert;
  EXPECT_THROW(visit_sequence{trace}, invalid_config);
  trace.ids.assign(trace.ids.size(), no_expert);
  const auto made = visit_sequence::create(trace);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("routes no expert"), std::string::npos);
}

TEST(visit_sequence, without_weights_the_views_have_none) {
  auto trace = trace_samples::full_trace();
  trace.weights.clear();
  const visit_sequence visits(trace);
  EXPECT_TRUE(visits[0].weights.empty());
}

}  // namespace
}  // namespace visit_sequence_test
