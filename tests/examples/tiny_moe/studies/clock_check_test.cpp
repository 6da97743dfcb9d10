// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/studies/clock_check.hpp"

#include <gtest/gtest.h>

#include "lab/errors.hpp"
#include "paging_samples.hpp"

namespace clock_check_test {
namespace {

using namespace paging_samples;

const std::vector<named_text> texts{{"sum", "Q: what is 12 + 30? A:"}};

paging_choice over_a_link(const char* prefetch) {
  paging_choice choice;
  choice.policies.eviction = "lru";
  choice.policies.prefetch = prefetch;
  choice.link = "400MB/s";
  choice.latency = "5us";
  return choice;
}

// The link's time is simulated, so engine and replay agree to the nanosecond. The engine's waiting time depends on
// the machine, and no test asserts it.
TEST(tiny_moe_clock_check, the_same_copies_take_the_same_time_on_the_link) {
  const auto found = compare_with_clock(weights(), over_a_link("no_prefetch"), texts, 4);
  EXPECT_GT(found.engine_misses, 0U);
  EXPECT_EQ(found.engine_misses, found.clock_misses);
  EXPECT_NEAR(found.engine_io, found.clock_io, 1e-9);
  EXPECT_GT(found.engine_blocked, 0.0);
  EXPECT_LE(found.clock_blocked, found.clock_io + 1e-9);
  EXPECT_GE(found.visit + found.token, 0.0);
}

// The replay requests the same keys as the engine: equal numbers of requests and of correct ones.
void expect_same_requests(const clock_comparison& found) {
  EXPECT_GT(found.engine_predictions.predicted, 0U);
  EXPECT_GT(found.engine_predictions.predicted_and_routed, 0U);
  EXPECT_EQ(found.engine_predictions, found.clock_predictions);
  EXPECT_GT(found.clock_misses, 0U);
  EXPECT_GT(found.clock_io, 0.0);
}

TEST(tiny_moe_clock_check, prefetches_are_replayed_and_a_table_learns_in_the_replay_too) {
  auto choice = over_a_link("next_layer_top_k");
  choice.policies.predictor = "co-activation";
  const auto found = compare_with_clock(weights(), choice, texts, 4);
  expect_same_requests(found);
  const auto by_router = compare_with_clock(weights(), over_a_link("next_layer_top_k"), texts, 4);
  expect_same_requests(by_router);
  EXPECT_NE(found.clock_predictions, by_router.clock_predictions);
}

TEST(tiny_moe_clock_check, refuses_what_the_engine_or_a_trace_cannot_do) {
  EXPECT_THROW((void)compare_with_clock(weights(), over_a_link("noisy_oracle"), texts, 4),
               hotset::lab::usage_error);
  auto choice = over_a_link("next_layer_top_k");
  choice.policies.predictor = "expert-map";
  EXPECT_THROW((void)compare_with_clock(weights(), choice, texts, 4), hotset::lab::usage_error);
}

}  // namespace
}  // namespace clock_check_test
