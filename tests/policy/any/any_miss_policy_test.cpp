// SPDX-License-Identifier: Apache-2.0
#include "hotset/policy/any/any_miss_policy.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "hotset/miss/compute_on_host.hpp"
#include "hotset/miss/drop.hpp"
#include "hotset/miss/fetch.hpp"
#include "hotset/miss/fetch_lowest.hpp"
#include "hotset/miss/fetch_priority.hpp"
#include "hotset/miss/substitute.hpp"

namespace hotset::any_miss_policy_test {
namespace {

static_assert(miss_policy<any_miss_policy>);
static_assert(std::movable<any_miss_policy> && !std::copyable<any_miss_policy>);
static_assert(!any_miss_policy::traits.is_exact && !any_miss_policy::traits.fetches_all &&
              any_miss_policy::traits.needs_logits);

const geometry one{.layers = 1, .experts = 8, .top_k = 2, .expert_bytes = {8}};
const geometry two{
    .layers = 1, .experts = 8, .top_k = 2, .expert_bytes = {8}, .lower_precisions = {{4}}};

TEST(any_miss_policy, acts_like_the_held_policy) {
  any_miss_policy policy(one, any_miss_policy::holding<drop>({.keep = 1}));
  EXPECT_EQ(policy.held_name(), "drop");
  EXPECT_EQ(policy.prefetch_precision(), 0);
  const std::vector<miss> misses{{.expert = 3_expert, .rank = 0}, {.expert = 4_expert, .rank = 1}};
  std::vector<miss_decision> out(2);
  policy.decide(misses, {}, {}, {}, out);
  EXPECT_EQ(out[0].action, miss_action::fetch);
  EXPECT_EQ(out[1].action, miss_action::drop);
}

TEST(any_miss_policy, forwards_the_visit_and_observations) {
  const std::vector<expert_id> routed{0_expert, 1_expert};
  const std::vector<float> scores(8, 0.125F);
  const std::vector<slot_id> row{0_slot,  no_slot, 1_slot,  no_slot,
                                 no_slot, no_slot, no_slot, no_slot};
  routing_view view;
  view.experts = routed;
  view.probabilities = scores;
  const std::vector<miss> misses{{.expert = 1_expert, .weight = 0.5F}};
  std::vector<miss_decision> out(1);
  auto ids = routed;
  any_miss_policy editor(one, any_miss_policy::holding<substitute>());
  editor.decide(misses, view, {row}, ids, out);
  EXPECT_EQ(out[0].action, miss_action::substitute);
  EXPECT_EQ(ids, (std::vector<expert_id>{0_expert, 2_expert}));

  const std::vector<float> heavier(2, 0.75F);
  view.weights = heavier;
  any_miss_policy cascade(two, any_miss_policy::holding<fetch_priority>());
  cascade.decide(misses, view, {row}, ids, out);
  EXPECT_EQ(out[0].precision, 0);
  cascade.observe(heavier);
  cascade.decide(misses, view, {row}, ids, out);
  EXPECT_EQ(out[0].precision, 1);
}

TEST(any_miss_policy, has_the_held_policys_traits_at_run_time) {
  const any_miss_policy all{fetch(one)};
  EXPECT_TRUE(all.facts().is_exact && !all.facts().needs_logits);
  const any_miss_policy host{compute_on_host(one, {})};
  EXPECT_TRUE(host.facts().is_exact && !host.facts().needs_logits);
  const any_miss_policy scores{substitute(one, {})};
  EXPECT_TRUE(!scores.facts().is_exact && scores.facts().needs_logits);
}

TEST(any_miss_policy, checks_its_configuration_and_the_model) {
  EXPECT_FALSE(any_miss_policy::config{}.validate(one));
  EXPECT_FALSE(any_miss_policy::holding<fetch>().validate());
  EXPECT_TRUE(any_miss_policy::holding<drop>({.keep = 0}).validate());
  EXPECT_TRUE(any_miss_policy::holding<fetch_lowest>().validate(one));
  EXPECT_FALSE(any_miss_policy::holding<fetch_lowest>().validate(two));
}

}  // namespace
}  // namespace hotset::any_miss_policy_test
