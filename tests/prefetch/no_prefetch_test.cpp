// SPDX-License-Identifier: Apache-2.0
#include "hotset/prefetch/no_prefetch.hpp"

#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace hotset::no_prefetch_test {
namespace {

TEST(no_prefetch, never_makes_a_request) {
  no_prefetch none(geometry{.layers = 2, .experts = 2, .top_k = 1});
  EXPECT_EQ(none.depth(), 0);
  EXPECT_EQ(none.most_requests(), 0U);
  const std::vector<std::int32_t> ids{0, 1};
  const std::vector<float> probabilities{0.5F, 0.5F};
  routing_view view;
  view.experts = ids;
  forecast expected;
  expected.probabilities = probabilities;
  expected.depth = 1;
  expected.truth = ids;
  expected.truth_layer = 1_layer;
  none.observe(view);
  std::array<prefetch_request, 3> out{};
  EXPECT_EQ(none.propose(view, expected, out), 0U);
  EXPECT_EQ(out[0].key, no_key);
}

}  // namespace
}  // namespace hotset::no_prefetch_test
