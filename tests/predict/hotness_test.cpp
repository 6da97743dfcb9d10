// SPDX-License-Identifier: Apache-2.0
#include "hotset/predict/hotness.hpp"

#include <cmath>
#include <deque>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::hotness_test {
namespace {

using testing::ElementsAre;
using ids = std::vector<std::int32_t>;

const geometry shape{.layers = 2, .experts = 4, .top_k = 2, .max_tokens_per_visit = 8};

TEST(hotness, the_last_use_is_worth_one_and_older_ones_less) {
  hotness heat(shape, {.gamma = 0.5, .window = 3});
  EXPECT_THAT(heat.of(1_layer), ElementsAre(0, 0, 0, 0));
  heat.observe(1_layer, ids{0, 1});
  heat.observe(1_layer, ids{1, 2});
  EXPECT_THAT(heat.of(1_layer), ElementsAre(0.5, 1.5, 1, 0));
  heat.observe(1_layer, ids{1, 3});
  EXPECT_THAT(heat.of(1_layer), ElementsAre(0.25, 1.75, 0.5, 1));
  heat.observe(1_layer, ids{2, 3});  // the first token has left the window
  EXPECT_THAT(heat.of(1_layer), ElementsAre(0, 0.75, 1.25, 1.5));
  EXPECT_THAT(heat.of(0_layer), ElementsAre(0, 0, 0, 0));
}

TEST(hotness, absent_ids_count_0_and_repeated_ids_count_once) {
  hotness heat(shape, {});
  heat.observe(0_layer, ids{-1, 9});
  heat.observe(0_layer, ids{3, 3});
  EXPECT_THAT(heat.of(0_layer), ElementsAre(0, 0, 0, 1));
  heat.observe(0_layer, ids{2});  // not a whole token
  EXPECT_THAT(heat.of(0_layer), ElementsAre(0, 0, 0, 1));
}

TEST(hotness, without_memory_only_the_last_token_counts) {
  hotness heat(shape, {.gamma = 0.0});
  heat.observe(0_layer, ids{0, 1});
  heat.observe(0_layer, ids{1, 2});
  EXPECT_THAT(heat.of(0_layer), ElementsAre(0, 1, 1, 0));
}

TEST(hotness, equals_the_definition) {
  const geometry wide{.layers = 1, .experts = 12, .top_k = 3, .max_tokens_per_visit = 6};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    support::random_source random(seed);
    const auto window = 1 + random.below(20);
    const double gamma = static_cast<double>(random.below(101)) / 100.0;
    hotness heat(wide, {.gamma = gamma, .window = static_cast<std::int32_t>(window)});
    std::deque<std::set<expert_id>> tokens;
    for (int visit = 0; visit < 60; ++visit) {
      ids routed;
      for (std::uint64_t t = 0, n = 1 + random.below(6); t < n; ++t) {
        std::set<expert_id> token;
        for (int k = 0; k < 3; ++k) {
          routed.push_back(random.id_below(13) - 1);
          if (routed.back() >= 0) token.insert(expert_id{routed.back()});
        }
        tokens.push_front(token);
      }
      heat.observe(0_layer, routed);
      if (random.one_in(3)) continue;
      for (const auto e : each<expert_id>(12)) {
        double wanted = 0;
        double worth = 1;
        for (std::size_t age = 0; age < std::min<std::size_t>(window, tokens.size()); ++age) {
          wanted += tokens[age].contains(e) ? worth : 0;
          worth *= gamma;
        }
        ASSERT_EQ(heat.of(0_layer)[static_cast<std::size_t>(e)], wanted) << seed;
      }
    }
  }
}

// Estimates times a factor of the layer equal the values of `of` within the claimed error, over several turns of the
// ring.
TEST(hotness, estimates_are_heat_times_a_factor_of_the_layer) {
  for (const double gamma : {0.3, 0.9, 0.98, 1.0})
    for (const std::int32_t window : {1, 7, 40}) {
      support::random_source random(5);
      hotness heat({.layers = 2, .experts = 16, .top_k = 4}, {.gamma = gamma, .window = window});
      const auto error = heat.estimate_error();
      ASSERT_LT(error, 1e-9) << gamma << ' ' << window;
      for (int token = 0; token < 200; ++token) {
        ids routed;
        for (int k = 0; k < 4; ++k)
          routed.push_back(static_cast<std::int32_t>(random.below(18)) - 1);
        heat.observe(1_layer, routed);
        const auto exact = heat.of(1_layer);
        const auto estimates = heat.estimates(1_layer);
        double factor = 0;
        for (std::size_t e = 0; e < 16; ++e) {
          ASSERT_EQ(heat.is_used({1_layer, static_cast<expert_id>(e)}), exact[e] != 0);
          if (exact[e] == 0) {
            ASSERT_EQ(estimates[e], 0);
            continue;
          }
          const auto ratio = estimates[e] / exact[e];
          if (factor == 0) factor = ratio;
          ASSERT_NEAR(ratio / factor, 1.0, 4 * error) << gamma << ' ' << window << ' ' << token;
        }
      }
    }
}

TEST(hotness, reports_if_nothing_can_be_estimated) {
  const hotness heat(shape, {.gamma = 0.05, .window = 256});
  EXPECT_TRUE(std::isinf(heat.estimate_error()));
}

TEST(hotness, refuses_invalid_configurations) {
  EXPECT_FALSE(hotness::config{}.validate());
  EXPECT_EQ(hotness::config{.gamma = 1.5}.validate()->message,
            "hotness gamma = 1.500000, accepted: 0..1");
  EXPECT_TRUE(hotness::config{.gamma = std::nan("")}.validate());
  EXPECT_EQ(hotness::config{.window = 0}.validate()->message,
            "hotness window = 0, accepted: 1..65536");
  EXPECT_TRUE(hotness::config{.window = 65537}.validate());
}

}  // namespace
}  // namespace hotset::hotness_test
