// SPDX-License-Identifier: Apache-2.0
#include "hotset/prefetch/next_layer_top_k.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prefetch_samples.hpp"
#include "random_source.hpp"
#include "written_ids.hpp"

namespace hotset::next_layer_top_k_test {
namespace {

using support::key_of;
using testing::ElementsAre;
using testing::IsEmpty;
using keys = std::vector<expert_key>;
using support::floats;
using support::in_layer;
using support::keys_of;
using support::requests_of;

forecast of(const floats& probabilities, std::int32_t depth = 1) {
  return support::forecast_of(probabilities, depth);
}

TEST(next_layer_top_k, takes_the_best_of_the_next_layer) {
  next_layer_top_k p(geometry{.layers = 3, .experts = 5, .top_k = 2}, {});
  EXPECT_EQ(p.depth(), 1);
  EXPECT_EQ(p.most_requests(), 2U);
  const auto got = requests_of(p, in_layer(0_layer), of({0.125F, 0.25F, 0.0F, 0.5F, 0.125F}));
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].key, key_of(1, 3));
  EXPECT_EQ(got[0].for_step, 7U);
  EXPECT_EQ(got[0].probability, 0.5F);
  EXPECT_EQ(got[1].key, key_of(1, 1));
  EXPECT_EQ(got[1].probability, 0.25F);
}

TEST(next_layer_top_k, with_from_nearer_layers_are_left_to_earlier_visits) {
  const geometry shape{.layers = 5, .experts = 2, .top_k = 1};
  next_layer_top_k p(shape, {.depth = 3, .from = 2});
  EXPECT_EQ(p.depth(), 3);
  EXPECT_EQ(p.most_requests(), 2U);
  const floats three{1, 0, 0, 1, 1, 0};
  EXPECT_THAT(keys_of(requests_of(p, in_layer(0_layer), of(three, 3))),
              ElementsAre(key_of(2, 1), key_of(3, 0)));
  EXPECT_THAT(keys_of(requests_of(p, in_layer(2_layer), of(three, 3))), ElementsAre(key_of(4, 1)));
  EXPECT_THAT(keys_of(requests_of(p, in_layer(3_layer), of(three, 3))), IsEmpty());
  next_layer_top_k clipped({.layers = 2, .experts = 2, .top_k = 1}, {.depth = 3, .from = 3});
  EXPECT_EQ(clipped.most_requests(), 1U);
}

TEST(next_layer_top_k, looks_no_further_than_the_model_or_the_forecast) {
  next_layer_top_k p({.layers = 3, .experts = 2, .top_k = 1}, {.depth = 2147483647});
  EXPECT_EQ(p.depth(), 2);
  EXPECT_EQ(p.most_requests(), 2U);
  EXPECT_THAT(keys_of(requests_of(p, in_layer(0_layer), of({0.75F, 0.25F}, 1))),
              ElementsAre(key_of(1, 0)));
  next_layer_top_k near({.layers = 4, .experts = 2, .top_k = 1}, {});
  EXPECT_THAT(keys_of(requests_of(near, in_layer(0_layer), of({0.25F, 0.75F, 1, 0}, 2))),
              ElementsAre(key_of(1, 1)));
  next_layer_top_k alone({.layers = 1, .experts = 2, .top_k = 1}, {});
  EXPECT_EQ(alone.depth(), 0);
  EXPECT_EQ(alone.most_requests(), 0U);
}

TEST(next_layer_top_k, overfetch_is_rounded_half_up_and_ends_at_all_experts) {
  const auto most = [](std::int32_t experts, std::int32_t top_k, double overfetch) {
    return next_layer_top_k({.layers = 2, .experts = experts, .top_k = top_k},
                            {.overfetch = overfetch})
        .most_requests();
  };
  EXPECT_EQ(most(64, 8, 1.5), 12U);
  EXPECT_EQ(most(64, 6, 1.25), 8U);    // 7.5
  EXPECT_EQ(most(64, 6, 1.24), 7U);    // 7.44
  EXPECT_EQ(most(64, 10, 1.15), 12U);  // 11.5
  EXPECT_EQ(most(10, 8, 2.0), 10U);
  EXPECT_EQ(most(10, 8, 1e300), 10U);
  next_layer_top_k p({.layers = 2, .experts = 4, .top_k = 2}, {.overfetch = 1.5});
  EXPECT_THAT(keys_of(requests_of(p, in_layer(0_layer), of({0.25F, 0.375F, 0.25F, 0.125F}))),
              ElementsAre(key_of(1, 1), key_of(1, 0), key_of(1, 2)));
}

TEST(next_layer_top_k, invalid_probabilities_count_nothing) {
  constexpr auto nan = std::numeric_limits<float>::quiet_NaN();
  constexpr auto infinity = std::numeric_limits<float>::infinity();
  next_layer_top_k p({.layers = 2, .experts = 6, .top_k = 6}, {});
  EXPECT_THAT(
      keys_of(requests_of(p, in_layer(0_layer), of({nan, 0.25F, infinity, -0.5F, 0.5F, -0.0F}))),
      ElementsAre(key_of(1, 4), key_of(1, 1)));
}

TEST(next_layer_top_k, a_forecast_of_another_size_is_none) {
  next_layer_top_k p({.layers = 3, .experts = 2, .top_k = 1}, {.depth = 2});
  const floats three{0.5F, 0.25F, 0.25F};
  EXPECT_THAT(requests_of(p, in_layer(0_layer), of(three)), IsEmpty());
  const floats two{0.5F, 0.5F};
  EXPECT_THAT(requests_of(p, in_layer(0_layer), of(two, 2)), IsEmpty());
  EXPECT_THAT(requests_of(p, in_layer(0_layer), of(two, 0)), IsEmpty());
  EXPECT_THAT(requests_of(p, in_layer(0_layer), {}), IsEmpty());
}

TEST(next_layer_top_k, agrees_with_sorting) {
  support::random_source random(21);
  for (int trial = 0; trial < 300; ++trial) {
    const auto experts = 1 + random.id_below(40);
    const auto depth = 1 + random.id_below(3);
    const auto tokens = 1 + random.below(4);
    const geometry shape{.layers = 6,
                         .experts = experts,
                         .top_k = 1 + random.id_below(experts),
                         .max_tokens_per_visit = 4};
    next_layer_top_k p(shape, {.overfetch = 1.5, .depth = depth});
    floats probabilities(tokens * static_cast<std::size_t>(depth * experts));
    for (auto& v : probabilities) v = static_cast<float>(random.below(9)) / 64.0F;  // many ties
    const auto layer = layer_id{random.id_below(6)};
    keys expected;
    for (std::int32_t d = 0; d < depth && layer + 1 + d < 6; ++d) {
      std::vector<std::pair<float, expert_id>> ranked;
      for (const auto e : each<expert_id>(experts)) {
        float sum = 0.0F;  // exact: small multiples of 1/64
        for (std::size_t t = 0; t < tokens; ++t)
          sum += probabilities[(t * static_cast<std::size_t>(depth) + static_cast<std::size_t>(d)) *
                                   static_cast<std::size_t>(experts) +
                               static_cast<std::size_t>(e)];
        if (sum > 0) ranked.emplace_back(-sum, e);
      }
      std::sort(ranked.begin(), ranked.end());
      const auto count = std::min({ranked.size(), static_cast<std::size_t>(experts),
                                   static_cast<std::size_t>((3 * shape.top_k + 1) / 2)});
      for (std::size_t n = 0; n < count; ++n) expected.push_back({layer + 1 + d, ranked[n].second});
    }
    const auto room = random.below(expected.size() + 3);
    expected.resize(std::min(expected.size(), static_cast<std::size_t>(room)));
    ASSERT_EQ(keys_of(requests_of(p, in_layer(layer), of(probabilities, depth), room)), expected)
        << "trial " << trial;
  }
}

}  // namespace
}  // namespace hotset::next_layer_top_k_test
