// SPDX-License-Identifier: Apache-2.0
#include "hotset/prefetch/popular.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "random_source.hpp"

namespace hotset::popular_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using ids = std::vector<std::int32_t>;

const geometry shape{.layers = 2, .experts = 6, .top_k = 2, .max_tokens_per_visit = 3};

struct walk {
  explicit walk(const popular::config& options = {}, const geometry& g = shape)
      : policy(g, options) {}
  void use(layer_id layer, const ids& experts) { policy.observe(in(layer, 0, experts)); }
  ids ask(layer_id layer, step_id step = 4, std::size_t room = 50) {
    requests.resize(room);
    requests.resize(policy.propose(in(layer, step, {}), {}, requests));
    ids got;
    for (const auto& r : requests) got.push_back(number(r.key.expert));
    return got;
  }
  static routing_view in(layer_id layer, step_id step, id_view<expert_id> experts) {
    routing_view view;
    view.layer = layer;
    view.step = step;
    view.experts = experts;
    return view;
  }
  popular policy;
  std::vector<prefetch_request> requests;
};

TEST(popular, declares_its_inputs) {
  EXPECT_EQ(popular(shape, {}).depth(), 1);
  EXPECT_EQ(popular(shape, {}).most_requests(), 2U);
  EXPECT_EQ(popular(shape, {.count = 5}).most_requests(), 5U);
  EXPECT_EQ(popular(shape, {.count = 50}).most_requests(), 6U);
}

TEST(popular, requests_the_next_layers_most_used_experts) {
  walk w({.count = 3});
  EXPECT_THAT(w.ask(0_layer), IsEmpty());
  w.use(1_layer, {4, 2});
  w.use(1_layer, {2, 5});
  w.use(1_layer, {2, 5});
  w.use(1_layer, {0, 4});
  w.use(1_layer, {4, 3});  // 2 and 4: 3 times, 5: 2, 0 and 3: 1
  EXPECT_THAT(w.ask(0_layer, 7), ElementsAre(2, 4, 5));
  EXPECT_EQ(w.requests[0].key.layer, 1);
  EXPECT_EQ(w.requests[0].for_step, 7U);
  // Ten uses in total, two for each token.
  EXPECT_EQ(w.requests[0].probability, 0.6F);
  EXPECT_EQ(w.requests[2].probability, 0.4F);
}

TEST(popular, wraps_from_the_last_layer_to_the_next_step) {
  walk w;
  w.use(0_layer, {3, 1});
  EXPECT_THAT(w.ask(1_layer, 7), ElementsAre(1, 3));
  EXPECT_EQ(w.requests[0].key.layer, 0);
  EXPECT_EQ(w.requests[0].for_step, 8U);
  EXPECT_THAT(w.ask(0_layer), IsEmpty());
}

TEST(popular, a_profile_stays_as_it_is) {
  walk w({.count = 4, .profile = {{0, 1, 0, 0, 0, 0, 2.5, 0, 5, 2.5, 0, 0}, "made up"}});
  for (int n = 0; n < 9; ++n) w.use(1_layer, {5, 4});
  EXPECT_THAT(w.ask(0_layer), ElementsAre(2, 0, 3));
  EXPECT_EQ(w.requests[0].probability, 1.0F);
  EXPECT_EQ(w.requests[1].probability, 0.5F);
  EXPECT_THAT(w.ask(1_layer), ElementsAre(1));
}

TEST(popular, a_profile_of_huge_counts_gives_probabilities) {
  walk w({.profile = {{0, 0, 0, 0, 0, 0, 1e308, 0, 1e308, 0, 0, 0}, "made up"}});
  EXPECT_THAT(w.ask(0_layer), ElementsAre(0, 2));
  for (const auto& r : w.requests) EXPECT_TRUE(r.probability >= 0.0F && r.probability <= 1.0F);
}

TEST(popular, agrees_with_sorting_the_counts) {
  const geometry wide{.layers = 2, .experts = 24, .top_k = 4, .max_tokens_per_visit = 4};
  support::random_source random(6);
  walk w({.count = 24}, wide);
  std::array<std::array<int, 24>, 2> counts{};
  for (int n = 0; n < 1500; ++n) {
    const auto layer = random.id_below(2);
    ids experts(random.below(9));
    for (auto& e : experts) e = random.id_below(random.id_below(24) + 1) - 1;
    w.use(layer_id{layer}, experts);
    for (const auto e : std::set<std::int32_t>(experts.begin(), experts.end()))
      if (e >= 0) ++counts[static_cast<std::size_t>(layer)][static_cast<std::size_t>(e)];
    const auto asked = random.id_below(2);
    const auto& of = counts[static_cast<std::size_t>(1 - asked)];
    ids expected;
    for (std::int32_t e = 0; e < 24; ++e)
      if (of[static_cast<std::size_t>(e)] > 0) expected.push_back(e);
    std::stable_sort(expected.begin(), expected.end(), [&](std::int32_t a, std::int32_t b) {
      return of[static_cast<std::size_t>(a)] > of[static_cast<std::size_t>(b)];
    });
    ASSERT_EQ(w.ask(layer_id{asked}), expected) << "visit " << n;
  }
}

TEST(popular, names_the_accepted_values) {
  using config = popular::config;
  const auto why = [](const config& c) {
    return c.validate(shape).value_or(error{"fine"}).message;
  };
  EXPECT_EQ(why({.count = -1}), "popular count = -1, accepted: 0 (K) or more");
  EXPECT_EQ(why({.profile = {std::vector<double>(12, 1.0), ""}}), "fine");
  EXPECT_EQ(why({.profile = {{1.0, 2.0}, ""}}),
            "popular profile has 2 entries, accepted: none or layers x experts (12)");
  usage_profile profile{std::vector<double>(12, 1.0), ""};
  profile.counts[3] = -0.5;
  EXPECT_EQ(why({.profile = profile}),
            "popular profile[3] = -0.500000, accepted: finite, 0 or more");
  profile.counts[3] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(why({.profile = profile}), "popular profile[3] = nan, accepted: finite, 0 or more");
}

}  // namespace
}  // namespace hotset::popular_test
