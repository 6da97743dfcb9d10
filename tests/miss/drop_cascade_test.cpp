// SPDX-License-Identifier: Apache-2.0
#include "hotset/miss/drop_cascade.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace hotset::drop_cascade_test {
namespace {

static_assert(!drop_cascade::traits.is_exact && !drop_cascade::traits.fetches_all &&
              !drop_cascade::traits.needs_logits);

const geometry one{.layers = 1, .experts = 8, .top_k = 4, .expert_bytes = {8}};
const geometry three{
    .layers = 1, .experts = 8, .top_k = 4, .expert_bytes = {8}, .lower_precisions = {{4}, {2}}};
const std::vector<float> ten{0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F, 0.7F, 0.8F, 0.9F, 1.0F};

std::string ask(drop_cascade& policy, const miss& m) {
  const std::vector<miss> misses{m};
  std::vector<miss_decision> out(1);
  routing_view view;
  view.weights = ten;
  policy.decide(misses, view, {}, {}, out);
  switch (out[0].action) {
    case miss_action::fetch: return "fetch " + to_string(out[0].precision);
    case miss_action::keep: return "keep";
    case miss_action::drop: return "drop";
    default: return "other";
  }
}

TEST(drop_cascade, rank_selects_dropped_experts_and_weight_the_precision_of_others) {
  drop_cascade policy(three, {});
  policy.observe(ten);
  EXPECT_EQ(ask(policy, {.rank = 0, .weight = 0.8F}), "fetch 0");
  EXPECT_EQ(ask(policy, {.rank = 1, .weight = 0.4F}), "fetch 1");
  EXPECT_EQ(ask(policy, {.rank = 1, .weight = 0.1F}), "fetch 2");
  EXPECT_EQ(ask(policy, {.rank = 2, .weight = 0.8F}), "drop");
  EXPECT_EQ(ask(policy, {.rank = 2, .weight = 0.1F}), "drop");
}

TEST(drop_cascade, does_not_drop_residents) {
  drop_cascade policy(three, {});
  policy.observe(ten);
  EXPECT_EQ(ask(policy, {.rank = 3, .weight = 0.8F, .held = 2_precision}), "fetch 0");
  EXPECT_EQ(ask(policy, {.rank = 3, .weight = 0.1F, .held = 2_precision}), "keep");
}

TEST(drop_cascade, obeys_its_parameters) {
  drop_cascade policy(three, {.keep = 3, .percentile = 90.0, .window = 10});
  policy.observe(std::vector<float>(10, 0.001F));
  policy.observe(ten);
  EXPECT_EQ(ask(policy, {.rank = 2, .weight = 0.9F}), "fetch 0");
  EXPECT_EQ(ask(policy, {.rank = 2, .weight = 0.89F}), "fetch 1");
  EXPECT_EQ(ask(policy, {.rank = 3, .weight = 0.9F}), "drop");
}

TEST(drop_cascade, refuses_a_model_of_one_precision) {
  EXPECT_FALSE(drop_cascade::config{}.validate(three));
  ASSERT_TRUE(drop_cascade::config{}.validate(one));
  EXPECT_EQ(drop_cascade::config{}.validate(one)->message,
            "drop_cascade needs two or more precisions, this model has 1; accepted: 2 or more");
}

}  // namespace
}  // namespace hotset::drop_cascade_test
