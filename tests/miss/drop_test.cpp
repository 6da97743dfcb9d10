// SPDX-License-Identifier: Apache-2.0
#include "hotset/miss/drop.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "hotset/registry/parameters.hpp"

namespace hotset::drop_test {
namespace {

static_assert(!drop::traits.is_exact && !drop::traits.fetches_all && !drop::traits.needs_logits);

const geometry shape{.layers = 1, .experts = 8, .top_k = 4};
using actions = std::vector<miss_action>;

actions ask(const drop& policy, const std::vector<miss>& misses) {
  std::vector<miss_decision> out(misses.size());
  policy.decide(misses, {}, {}, {}, out);
  actions taken;
  for (const auto& d : out) {
    EXPECT_EQ(d.precision, 0);
    taken.push_back(d.action);
  }
  return taken;
}
const std::vector<miss> ranked{{.expert = 3_expert, .rank = 0},
                               {.expert = 5_expert, .rank = 1},
                               {.expert = 1_expert, .rank = 2},
                               {.expert = 0_expert, .rank = 3}};

TEST(drop, the_first_two_ranks_are_fetched) {
  EXPECT_EQ(ask(drop(shape, {}), ranked), (actions{miss_action::fetch, miss_action::fetch,
                                                   miss_action::drop, miss_action::drop}));
}

TEST(drop, obeys_keep) {
  EXPECT_EQ(ask(drop(shape, {.keep = 1}), ranked),
            (actions{miss_action::fetch, miss_action::drop, miss_action::drop, miss_action::drop}));
  EXPECT_EQ(ask(drop(shape, {.keep = 100'000}), ranked), actions(4, miss_action::fetch));
}

TEST(drop, uses_residents_of_any_rank) {
  EXPECT_EQ(ask(drop(shape, {}), {{.expert = 3_expert, .rank = 0, .held = 1_precision},
                                  {.expert = 4_expert, .rank = 3, .held = 1_precision}}),
            actions(2, miss_action::keep));
}

actions ask(const drop& policy, const std::vector<miss>& misses,
            const std::vector<std::int32_t>& experts, const std::vector<float>& weights) {
  routing_view view;
  view.experts = experts;
  view.weights = weights;
  std::vector<miss_decision> out(misses.size());
  policy.decide(misses, view, {}, {}, out);
  actions taken;
  for (const auto& d : out) taken.push_back(d.action);
  return taken;
}

TEST(drop, a_threshold_keeps_experts_with_enough_weight_for_any_token) {
  // Expert 3 has a tenth of the first token's weight, expert 5 a quarter of the second's; neither token's weights sum
  // to 1.
  const std::vector<std::int32_t> experts{0, 1, 2, 3, 4, 5, 3, 6};
  const std::vector<float> weights{0.2F, 0.1F, 0.06F, 0.04F, 1.0F, 0.5F, 0.4F, 0.1F};
  const std::vector<miss> misses{{.expert = 0_expert, .rank = 0},
                                 {.expert = 5_expert, .rank = 1},
                                 {.expert = 3_expert, .rank = 2},
                                 {.expert = 6_expert, .rank = 3}};
  const auto with = [&](double threshold) {
    return ask(drop(shape, {.keep = 1, .threshold = threshold}), misses, experts, weights);
  };
  constexpr auto yes = miss_action::fetch;
  constexpr auto no = miss_action::drop;
  EXPECT_EQ(with(0.04), (actions{yes, yes, yes, yes}));
  EXPECT_EQ(with(0.1), (actions{yes, yes, yes, no}));
  EXPECT_EQ(with(0.21), (actions{yes, yes, no, no}));
  EXPECT_EQ(with(0.3), (actions{yes, no, no, no}));  // a token's best rank is never dropped
  EXPECT_EQ(with(9.0), (actions{yes, no, no, no}));
}

TEST(drop, without_weights_nothing_is_below_a_threshold) {
  EXPECT_EQ(ask(drop(shape, {.keep = 1, .threshold = 0.5}), ranked, {3, 5, 1, 0}, {}),
            actions(4, miss_action::fetch));
}

TEST(drop, by_name_a_threshold_keeps_one_rank) {
  const auto read = [](const char* text) {
    const auto spec_from = parse_policy(text).value();
    parameters from(spec_from);
    return drop::config::read(from);
  };
  EXPECT_EQ(read("drop").keep, 2U);
  EXPECT_EQ(read("drop:threshold=0.05").keep, 1U);
  EXPECT_EQ(read("drop:threshold=0.05").threshold, 0.05);
  EXPECT_EQ(read("drop:threshold=0.05:keep=3").keep, 3U);
}

}  // namespace
}  // namespace hotset::drop_test
