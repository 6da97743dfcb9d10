// SPDX-License-Identifier: Apache-2.0
#include "hotset/prefetch/cumulative_probability.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prefetch_samples.hpp"
#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::cumulative_probability_test {
namespace {

using support::floats;
using support::in_layer;
using support::key_of;
using support::keys_of;
using support::requests_of;
using testing::ElementsAre;
using testing::IsEmpty;

forecast of(const floats& probabilities, const floats& confidence, std::int32_t depth = 1) {
  return support::forecast_of(probabilities, depth, confidence);
}
std::vector<expert_id> experts_of(const std::vector<prefetch_request>& requests) {
  std::vector<expert_id> out;
  for (const auto& r : requests) out.push_back(r.key.expert);
  return out;
}

const geometry one_ahead{.layers = 3, .experts = 5, .top_k = 1, .max_tokens_per_visit = 4};
const floats row{0.125F, 0.25F, 0.0F, 0.5F, 0.125F};

TEST(cumulative_probability, without_confidence_all_possible_experts_are_requested) {
  cumulative_probability p(one_ahead, {.distance = 1});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float none : {0.0F, -1.0F, nan})
    EXPECT_THAT(experts_of(requests_of(p, in_layer(0_layer), of(row, {none}))),
                ElementsAre(3, 1, 0, 4))
        << "but not what never does";
}

TEST(cumulative_probability, at_least_k_experts_are_requested) {
  const geometry shape{.layers = 3, .experts = 5, .top_k = 3};
  cumulative_probability p(shape, {.distance = 1});
  EXPECT_THAT(experts_of(requests_of(p, in_layer(0_layer), of(row, {1.0F}))), ElementsAre(3, 1, 0));
  EXPECT_THAT(experts_of(requests_of(p, in_layer(0_layer), of(row, {7.0F}))), ElementsAre(3, 1, 0));
  EXPECT_THAT(experts_of(requests_of(p, in_layer(0_layer), of({0, 0, 1, 0, 0}, {1.0F}))),
              ElementsAre(2));
  // A forecast without confidence counts as 1.
  EXPECT_THAT(experts_of(requests_of(p, in_layer(0_layer), of(row, {}))), ElementsAre(3, 1, 0));
}

TEST(cumulative_probability, before_the_first_layer_it_requests_all_layers_in_reach) {
  const geometry shape{.layers = 4, .experts = 3, .top_k = 2};
  cumulative_probability p(shape, {.distance = 2});
  // p / (l + 1): layer 0 .5, .25; layer 1 .375, .125.
  const floats rows{0.25F, 0.5F, 0.25F, 0.75F, 0.25F, 0.0F};
  const floats confidence{1.0F};
  const auto expected = of(rows, confidence, 2);
  const auto got = requests_of(p, in_layer(before_layers), expected);
  EXPECT_THAT(keys_of(got), ElementsAre(key_of(0, 1), key_of(1, 0), key_of(0, 0), key_of(1, 1)));
  EXPECT_EQ(got[1].probability, 0.75F);
  for (std::size_t room = 0; room < 4; ++room) {
    const auto few = requests_of(p, in_layer(before_layers), expected, room);
    ASSERT_EQ(few.size(), room);
    for (std::size_t i = 0; i < room; ++i) EXPECT_EQ(few[i].key, got[i].key);
  }
}

TEST(cumulative_probability, an_invalid_forecast_gives_no_requests) {
  cumulative_probability p(one_ahead, {.distance = 1});
  EXPECT_THAT(requests_of(p, in_layer(0_layer), {}), IsEmpty());
  EXPECT_THAT(requests_of(p, in_layer(0_layer), of({0.5F, 0.5F}, {1.0F})), IsEmpty());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(
      experts_of(requests_of(p, in_layer(0_layer), of({nan, infinity, -1, 0.5F, 0.25F}, {0.5F}))),
      ElementsAre(3))
      << "what is no probability counts 0";
}

TEST(cumulative_probability, agrees_with_the_rule_written_out) {
  support::random_source random(3);
  const geometry shape{.layers = 9, .experts = 12, .top_k = 3, .max_tokens_per_visit = 5};
  cumulative_probability p(shape, {.distance = 4});
  for (int n = 0; n < 3000; ++n) {
    const auto tokens = 1 + random.below(5);
    floats rows(tokens * 4 * 12);
    for (auto& x : rows) x = static_cast<float>(random.below(20)) / 128;
    floats confidence(tokens);
    for (auto& c : confidence) c = static_cast<float>(random.below(65)) / 64;
    const auto layer = layer_id{random.id_below(10) - 1};
    std::vector<std::tuple<float, int, int, float>> wanted;  // -priority, row, expert, p
    for (int ahead = layer < 0 ? 0 : 3; ahead < 4 && layer + 1 + ahead < 9; ++ahead) {
      std::map<int, float> highest;
      for (std::size_t t = 0; t < tokens; ++t) {
        std::vector<std::pair<float, int>> ranked;
        for (int e = 0; e < 12; ++e)
          ranked.emplace_back(
              -rows[(t * 4 + static_cast<std::size_t>(ahead)) * 12 + static_cast<std::size_t>(e)],
              e);
        std::sort(ranked.begin(), ranked.end());
        float sum = 0;
        for (std::size_t i = 0; i < 12 && (i < 3 || sum < 1 - confidence[t]); ++i) {
          sum -= ranked[i].first;
          if (ranked[i].first < 0)
            highest[ranked[i].second] = std::max(highest[ranked[i].second], -ranked[i].first);
        }
      }
      for (const auto& [e, probability] : highest)
        wanted.emplace_back(-probability / static_cast<float>(ahead + 1), ahead, e, probability);
    }
    std::sort(wanted.begin(), wanted.end());
    const auto got = requests_of(p, in_layer(layer), of(rows, confidence, 4));
    ASSERT_LE(got.size(), p.most_requests());
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto& [priority, ahead, e, probability] = wanted[i];
      ASSERT_EQ(got[i].key, (expert_key{layer + 1 + ahead, expert_id{e}}));
      ASSERT_EQ(got[i].probability, probability);
    }
  }
}

TEST(cumulative_probability, looks_no_further_than_there_are_layers) {
  cumulative_probability p({.layers = 2, .experts = 3, .top_k = 1}, {.distance = 9});
  EXPECT_EQ(p.depth(), 1);
  EXPECT_EQ(p.most_requests(), 3U);
  EXPECT_EQ(cumulative_probability({.layers = 8, .experts = 3, .top_k = 1}, {}).depth(), 3);
}

}  // namespace
}  // namespace hotset::cumulative_probability_test
