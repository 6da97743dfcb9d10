// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/visit_gather.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trace_samples.hpp"

namespace visit_gather_test {
namespace {
using namespace hotset;
using ::testing::ElementsAre;

TEST(visit_gather, collects_the_rows_of_a_visit) {
  auto trace = trace_samples::full_trace();
  for (std::size_t i = 0; i < trace.logits.size(); ++i) trace.logits[i] = static_cast<float>(i);
  const visit_sequence visits(trace);
  visit_gather gather(trace, visits);
  const auto view = gather[1];  // step 0, layer 1, tokens 0 and 1
  EXPECT_THAT(view.experts, ElementsAre(2, 3, 3, -1));
  EXPECT_THAT(view.token_ids, ElementsAre(7, 0));
  EXPECT_THAT(view.logits, ElementsAre(4, 5, 6, 7, 12, 13, 14, 15));
  EXPECT_EQ(view.probabilities.size(), 8U);
  EXPECT_EQ(view.probabilities[7], 0.25F);
  EXPECT_EQ(view.hidden.size(), 6U);
  EXPECT_EQ(view.hidden[0], 2.0F);
  EXPECT_EQ(gather.predictions(1).size(), 8U);
  EXPECT_THAT(gather[2].logits, ElementsAre(16, 17, 18, 19));
}

TEST(visit_gather, leaves_unrecorded_arrays_empty) {
  auto trace = trace_samples::full_trace();
  trace.logits = {};
  trace.probabilities = {};
  trace.hidden = {};
  trace.predictions = {};
  const visit_sequence visits(trace);
  visit_gather gather(trace, visits);
  EXPECT_THAT(gather[1].experts, ElementsAre(2, 3, 3, -1));
  EXPECT_TRUE(gather[1].logits.empty());
  EXPECT_TRUE(gather[1].probabilities.empty());
  EXPECT_TRUE(gather[1].hidden.empty());
  EXPECT_TRUE(gather.predictions(1).empty());
}

}  // namespace
}  // namespace visit_gather_test
