// SPDX-License-Identifier: Apache-2.0
#include "lab/traces/synthetic/score_rows.hpp"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace score_rows_test {
namespace {
using namespace hotset;

std::vector<float> all(const half_array& halves) {
  std::vector<float> out(halves.size());
  halves.convert(0, out);
  return out;
}

// Two layers of four experts, two routed; the second layer's scores are tied.
TEST(score_rows, ties_give_way_by_a_step_and_the_last_layer_predicts_nothing) {
  constexpr float step = 0x1p-18F;
  detail::score_rows rows({.layers = 2, .experts = 4, .top_k = 2});
  const std::vector<std::int32_t> ids{2, 1};
  std::vector<std::int64_t> clear{-9, 5, 8, 4};
  rows.add(ids, clear, std::vector<std::uint64_t>{0, 2, 5, 1}, 8);
  std::vector<std::int64_t> tied{7, 7, 7, -1};
  rows.add(ids, tied, std::vector<std::uint64_t>{1, 1, 1, 1}, 4);
  rows.end_token();
  routing_trace trace;
  rows.move_into(trace, "by hand");
  EXPECT_EQ(trace.logits, (std::vector<float>{-9 * step, 5 * step, 8 * step, 4 * step, 5 * step,
                                              6 * step, 7 * step, -1 * step}));
  constexpr float below = 0.25F - 0x1p-13F;  // the next half
  EXPECT_EQ(all(trace.probabilities),
            (std::vector<float>{0, 0.25F, 0.625F, 0.125F, below, 0.25F, 0.25F, below}));
  EXPECT_EQ(all(trace.predictions), (std::vector<float>{below, 0.25F, 0.25F, below, 0, 0, 0, 0}));
  EXPECT_EQ(trace.prediction_depth, 1);
  EXPECT_EQ(trace.fact("logits"), "by hand");
}

}  // namespace
}  // namespace score_rows_test
