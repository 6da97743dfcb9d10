// SPDX-License-Identifier: Apache-2.0
#include "hotset/core/router_scores.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/registry/parameters.hpp"
#include "random_source.hpp"

namespace hotset::router_scores_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatEq;
using testing::FloatNear;
using floats = std::vector<float>;
using ids = std::vector<expert_id>;

constexpr auto never = -std::numeric_limits<float>::infinity();

geometry shape_of(std::int32_t experts, std::int32_t top_k) {
  return {.layers = 1, .experts = experts, .top_k = top_k};
}
/// The logit whose sigmoid is p.
float logit(double p) { return static_cast<float>(std::log(p / (1 - p))); }
floats logits(const std::vector<double>& scores) {
  floats out;
  for (const auto p : scores) out.push_back(logit(p));
  return out;
}

TEST(router_scores, softmax_is_of_all_experts) {
  floats out(3);
  softmax(floats{std::log(6.0F), std::log(3.0F), 0.0F}, out);
  EXPECT_THAT(out,
              ElementsAre(FloatNear(0.6F, 1e-6F), FloatNear(0.3F, 1e-6F), FloatNear(0.1F, 1e-6F)));
  softmax(floats{never, never, never}, out);
  EXPECT_THAT(out, Each(0.0F));
}

TEST(router_scores, sigmoid_is_of_each_expert_by_itself) {
  floats out(5);
  sigmoid(floats{0.0F, std::log(3.0F), never, 500.0F, -500.0F}, out);
  EXPECT_THAT(out, ElementsAre(0.5F, FloatNear(0.75F, 1e-6F), 0.0F, 1.0F, 0.0F));
}

TEST(router_scores, shares_sum_to_one) {
  const router_scores router(shape_of(3, 1), {.function = score_function::sigmoid});
  floats out(3);
  router.shares(logits({0.8, 0.2, 0.6}), out);
  EXPECT_THAT(
      out, ElementsAre(FloatNear(0.5F, 1e-6F), FloatNear(0.125F, 1e-6F), FloatNear(0.375F, 1e-6F)));
  router.shares(floats{never, never, never}, out);
  EXPECT_THAT(out, Each(0.0F)) << "nothing is likelier than anything";
  const router_scores plain(shape_of(2, 1), {});
  floats two(2);
  plain.shares(floats{std::log(3.0F), 0.0F}, two);
  EXPECT_THAT(two, ElementsAre(FloatNear(0.75F, 1e-6F), FloatNear(0.25F, 1e-6F)));
}

// DeepSeek-V3 in small: 8 experts in 4 groups of which 2 stay, top-2.
const router_scores::config small{
    .function = score_function::sigmoid, .groups = 4, .top_groups = 2};
//                                group:  0         1         2         3
const std::vector<double> small_scores{.90, .05, .60, .50, .40, .55, .30, .20};

TEST(router_scores, probabilities_have_the_order_of_the_choice) {
  router_scores plain(shape_of(2, 1), {});
  floats two(2);
  plain.likely(floats{std::log(3.0F), 0.0F}, {}, two);
  EXPECT_THAT(two, ElementsAre(FloatNear(0.75F, 1e-6F), FloatNear(0.25F, 1e-6F)));

  router_scores router(shape_of(8, 2), small);
  floats out(8);
  router.likely(logits({.90, .05, .60, .40, .40, .60, .30, .20}), {}, out);
  EXPECT_THAT(out, ElementsAre(0, 0, FloatNear(.3F, 1e-5F), FloatNear(.2F, 1e-5F),
                               FloatNear(.2F, 1e-5F), FloatNear(.3F, 1e-5F), 0, 0));
  // With biases the ranks are .60 .50 in group 1 and .30 .95 in group 3; minus the lowest of them: .30 .20 0 .65.
  const floats bias{-.5F, 0, 0, 0, 0, 0, 0, .75F};
  router.likely(logits(small_scores), bias, out);
  EXPECT_THAT(out, ElementsAre(0, 0, FloatNear(.30F / 1.15F, 1e-5F), FloatNear(.20F / 1.15F, 1e-5F),
                               0, 0, FloatNear(0, 1e-5F), FloatNear(.65F / 1.15F, 1e-5F)));
}

TEST(router_scores, an_expert_of_a_refused_group_is_less_likely_than_a_negative_rank) {
  router_scores router(shape_of(4, 2),
                       {.function = score_function::sigmoid, .groups = 2, .top_groups = 1});
  floats out(4);
  router.likely(logits({.5, .6, .9, .9}), floats{-2, -1.5F, -2.5F, -2.5F}, out);
  EXPECT_THAT(out, ElementsAre(0, 1, 0, 0));
}

/// The chosen experts, by sorting all.
ids by_the_rule(const router_scores::config& options, std::size_t k, const floats& scores,
                const floats& bias) {
  const auto size = scores.size() / static_cast<std::size_t>(options.groups);
  floats ranks = scores;
  for (std::size_t e = 0; e < bias.size(); ++e) ranks[e] = scores[e] + bias[e];
  const auto sum_of = [&](std::size_t group) {
    floats own(ranks.begin() + static_cast<std::ptrdiff_t>(group * size),
               ranks.begin() + static_cast<std::ptrdiff_t>((group + 1) * size));
    std::ranges::sort(own, std::greater<>());
    return own[0] + (size > 1 ? own[1] : 0.0F);
  };
  std::vector<std::size_t> groups(static_cast<std::size_t>(options.groups));
  std::iota(groups.begin(), groups.end(), std::size_t{0});
  std::ranges::stable_sort(groups, std::greater<>(), sum_of);
  groups.resize(static_cast<std::size_t>(options.top_groups));
  std::ranges::sort(groups);
  std::vector<std::size_t> eligible;
  for (const auto g : groups)
    for (std::size_t e = g * size; e < (g + 1) * size; ++e) eligible.push_back(e);
  std::ranges::stable_sort(eligible, std::greater<>(), [&](std::size_t e) { return ranks[e]; });
  ids out;
  for (std::size_t i = 0; i < k; ++i) out.push_back(static_cast<expert_id>(eligible[i]));
  return out;
}

TEST(router_scores, chosen_experts_are_at_least_as_likely_as_others) {
  support::random_source random(3);
  for (int round = 0; round < 2000; ++round) {
    const auto groups = 1 + random.id_below(4);
    const auto size = 1 + random.id_below(6);
    const auto top_groups = 1 + random.id_below(groups);
    const auto k = 1 + random.id_below(size * top_groups);
    const bool by_softmax = groups == 1 && random.one_in(2);
    const router_scores::config options{
        .function = by_softmax ? score_function::softmax : score_function::sigmoid,
        .groups = groups,
        .top_groups = top_groups};
    router_scores router(shape_of(groups * size, k), options);
    // Few distinct values, so that ties occur.
    const auto some = [&](std::uint64_t values) {
      floats out(static_cast<std::size_t>(groups * size));
      for (auto& v : out) v = static_cast<float>(random.below(values)) / 4.0F - 1.0F;
      return out;
    };
    const auto in = some(9);
    const auto bias = random.one_in(2) ? floats{} : some(5);
    floats scores(in.size());
    by_softmax ? softmax(in, scores) : sigmoid(in, scores);
    const auto chosen = by_the_rule(options, static_cast<std::size_t>(k), scores, bias);
    floats likely(in.size());
    router.likely(in, bias, likely);
    ASSERT_NEAR(std::accumulate(likely.begin(), likely.end(), 0.0), 1.0,
                *std::max_element(likely.begin(), likely.end()) > 0 ? 1e-5 : 1.0);
    float least = 1;
    for (const auto e : chosen) least = std::min(least, likely[index_of(e)]);
    for (std::size_t e = 0; e < likely.size(); ++e)
      if (std::ranges::find(chosen, static_cast<expert_id>(e)) == chosen.end()) {
        EXPECT_LE(likely[e], least) << round;
      }
  }
}

TEST(router_scores, names_the_accepted_values) {
  const auto why = [](const router_scores::config& c, const geometry& shape) {
    const auto bad = c.validate(shape);
    return bad ? bad->message : std::string("fine");
  };
  constexpr auto by_sigmoid = score_function::sigmoid;
  const auto shape = shape_of(8, 3);
  EXPECT_EQ(why({}, shape), "fine");
  EXPECT_EQ(why({.function = by_sigmoid, .groups = 4, .top_groups = 2}, shape), "fine");
  EXPECT_EQ(why({.function = static_cast<score_function>(2)}, shape),
            "router_scores function = 2, accepted: 0 (softmax), 1 (sigmoid)");
  EXPECT_EQ(why({.groups = 2}, shape),
            "router_scores groups = 2, accepted: 1 for softmax, 1 or more for sigmoid");
  EXPECT_EQ(why({.function = by_sigmoid, .groups = 0}, shape),
            "router_scores groups = 0, accepted: 1 for softmax, 1 or more for sigmoid");
  EXPECT_EQ(why({.function = by_sigmoid, .groups = 2, .top_groups = 3}, shape),
            "router_scores top_groups = 3, accepted: 1..2 (groups)");
  EXPECT_EQ(why({.function = by_sigmoid, .groups = 3}, shape),
            "router_scores groups = 3, accepted: divisors of 8 (experts)");
  EXPECT_EQ(why({.function = by_sigmoid, .groups = 4}, shape),
            "router_scores top_groups = 1 hold 2 experts, accepted: 3 (top_k) or more");
}

TEST(router_scores, is_read_from_parameters) {
  const auto spec = *parse_policy("gate:scores=sigmoid:groups=8:top_groups=4");
  parameters from(spec);
  const auto read = router_scores::config::read(from);
  EXPECT_FALSE(from.finish());
  EXPECT_EQ(read.function, score_function::sigmoid);
  EXPECT_EQ(read.groups, 8);
  EXPECT_EQ(read.top_groups, 4);
}

}  // namespace
}  // namespace hotset::router_scores_test
