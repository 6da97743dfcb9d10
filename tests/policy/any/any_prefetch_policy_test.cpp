// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/any/any_prefetch_policy.hpp"

#include <concepts>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/prefetch/next_layer_top_k.hpp"
#include "hotset/prefetch/no_prefetch.hpp"
#include "hotset/prefetch/noisy_oracle.hpp"
#include "hotset/prefetch/previous_step.hpp"

namespace hotset::any_prefetch_policy_test {
namespace {

static_assert(prefetch_policy<any_prefetch_policy>);
static_assert(std::movable<any_prefetch_policy> && !std::copyable<any_prefetch_policy>);

const geometry shape{.layers = 3, .experts = 8, .top_k = 2};

TEST(any_prefetch_policy, acts_like_the_held_policy) {
  any_prefetch_policy p(
      shape, any_prefetch_policy::holding<next_layer_top_k>({.overfetch = 1.5, .depth = 2}));
  EXPECT_EQ(p.held_name(), "next_layer_top_k");
  EXPECT_EQ(p.facts().needs, forecast_need::probabilities);
  EXPECT_EQ(p.depth(), 2);
  EXPECT_EQ(p.most_requests(), 6U);
  const std::vector<float> probabilities{0, 0, 0, 0.75F, 0, 0.25F, 0, 0};
  forecast expected;
  expected.probabilities = probabilities;
  expected.depth = 1;
  std::vector<prefetch_request> out(6);
  ASSERT_EQ(p.propose({}, expected, out), 2U);
  EXPECT_EQ(out[0].key, (expert_key{1_layer, 3_expert}));
  EXPECT_EQ(out[1].key, (expert_key{1_layer, 5_expert}));
}

TEST(any_prefetch_policy, forwards_visits) {
  any_prefetch_policy p(shape, any_prefetch_policy::holding<previous_step>());
  const std::vector<std::int32_t> ids{6, 1};
  routing_view view;
  view.layer = 1_layer;
  view.experts = ids;
  p.observe(view);
  view.layer = 0_layer;
  std::vector<prefetch_request> out(2);
  EXPECT_EQ(p.propose(view, {}, out), 2U);
  EXPECT_EQ(out[0].key, (expert_key{1_layer, 6_expert}));
}

TEST(any_prefetch_policy, each_build_of_a_config_is_its_own) {
  const auto config = any_prefetch_policy::holding<previous_step>();
  any_prefetch_policy a(shape, config);
  any_prefetch_policy b(shape, config);
  const std::vector<std::int32_t> ids{6, 1};
  routing_view view;
  view.layer = 0_layer;
  view.experts = ids;
  a.observe(view);
  view.layer = 2_layer;
  std::vector<prefetch_request> out(2);
  EXPECT_EQ(a.propose(view, {}, out), 2U);
  EXPECT_EQ(b.propose(view, {}, out), 0U);
}

}  // namespace
}  // namespace hotset::any_prefetch_policy_test
