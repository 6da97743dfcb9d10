// SPDX-License-Identifier: Apache-2.0
#include "hotset/miss/fetch_priority.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::fetch_priority_test {
namespace {

static_assert(!fetch_priority::traits.is_exact && !fetch_priority::traits.fetches_all &&
              !fetch_priority::traits.needs_logits);

geometry with(std::size_t precisions) {
  geometry shape{.layers = 1, .experts = 8, .top_k = 2, .expert_bytes = {256}};
  for (std::uint64_t bytes = 128; shape.precisions() < precisions; bytes /= 2)
    shape.lower_precisions.push_back({bytes});
  return shape;
}

/// 0.1, 0.2, ... 1.0: numbered from 0, p60 is the 5th and p30 the 2nd.
const std::vector<float> ten{0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F, 0.7F, 0.8F, 0.9F, 1.0F};

miss_decision ask(fetch_priority& policy, float weight, precision_id held = miss::absent,
                  bool weighed = true) {
  const std::vector<miss> misses{{.expert = 3_expert, .weight = weight, .held = held}};
  std::vector<miss_decision> out(1);
  routing_view view;
  const std::vector<float> weights(2, weight);
  if (weighed) view.weights = weights;
  policy.decide(misses, view, {}, {}, out);
  return out[0];
}
void expect_fetch(miss_decision d, precision_id precision) {
  EXPECT_EQ(d.action, miss_action::fetch);
  EXPECT_EQ(d.precision, precision);
}

TEST(fetch_priority, everything_is_important_until_weights_were_seen_and_without_any) {
  fetch_priority policy(with(3), {});
  expect_fetch(ask(policy, 0.0F), 0_precision);
  expect_fetch(ask(policy, -1.0F), 0_precision);
  policy.observe({});
  expect_fetch(ask(policy, 0.0F), 0_precision);
  policy.observe(ten);
  expect_fetch(ask(policy, 0.0F, miss::absent, false), 0_precision);
  expect_fetch(ask(policy, 0.0F, 1_precision, false), 0_precision);
  expect_fetch(ask(policy, 0.0F), 2_precision);
}

TEST(fetch_priority, ignores_invalid_weights) {
  fetch_priority policy(with(2), {});
  const auto infinite = std::numeric_limits<float>::infinity();
  policy.observe(
      std::vector<float>{std::numeric_limits<float>::quiet_NaN(), infinite, -infinite, -0.5F});
  expect_fetch(ask(policy, 0.1F), 0_precision);  // still no weight seen
  policy.observe(ten);
  expect_fetch(ask(policy, 0.6F), 0_precision);
  expect_fetch(ask(policy, 0.59F), 1_precision);
}

// Computes the classes by sorting: the values of rank floor(q (n - 1) / 100) are the limits.
TEST(fetch_priority, agrees_with_sorting_the_window) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    const auto precisions = 2 + random.below(4);
    const auto lower = precisions - 1;
    const auto window = 1 + random.below(40);
    const auto percentile = 1 + random.below(99);
    fetch_priority policy(with(precisions),
                          {.percentile = static_cast<double>(percentile), .window = window});
    std::deque<float> recent;
    for (int visit = 0; visit < 60; ++visit) {
      const auto weight = static_cast<float>(random.below(64)) / 64.0F;
      std::vector<float> sorted(recent.begin(), recent.end());
      std::sort(sorted.begin(), sorted.end());
      precision_id expected{};
      if (!sorted.empty()) {
        // The class is the number of limits above the weight.
        for (std::size_t p = 0; p < lower; ++p) {
          const auto rank = percentile * (lower - p) * (sorted.size() - 1) / (lower * 100);
          expected = static_cast<precision_id>(expected + (sorted[rank] > weight ? 1 : 0));
        }
      }
      const precision_id held =
          random.one_in(2) ? miss::absent : static_cast<precision_id>(1 + random.below(lower));
      const auto got = ask(policy, weight, held);
      if (held != miss::absent && expected > 0) {
        EXPECT_EQ(got.action, miss_action::keep);
      } else {
        expect_fetch(got, expected);
      }
      std::vector<float> seen(random.below(6));
      for (auto& w : seen) {
        w = static_cast<float>(random.below(64)) / 64.0F;
        recent.push_back(w);
        if (recent.size() > window) recent.pop_front();
      }
      policy.observe(seen);
    }
  }
}

TEST(fetch_priority, refuses_invalid_configurations) {
  EXPECT_TRUE(
      fetch_priority::config{.percentile = std::numeric_limits<double>::quiet_NaN()}.validate());
  EXPECT_FALSE(fetch_priority::config{}.validate(with(2)));
  ASSERT_TRUE(fetch_priority::config{}.validate(with(1)));
  EXPECT_EQ(fetch_priority::config{}.validate(with(1))->message,
            "fetch_priority needs two or more precisions, this model has 1; accepted: 2 or more");
}

}  // namespace
}  // namespace hotset::fetch_priority_test
