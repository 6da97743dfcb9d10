// SPDX-License-Identifier: Apache-2.0
#include "lab/studies/co_activation_study.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/planning/budget/right_size.hpp"
#include "json_of.hpp"
#include "lab/errors.hpp"
#include "lab/reports/co_activation_report.hpp"
#include "sim_samples.hpp"

namespace hotset::co_activation_study_test {
namespace {

using lab::judge;
using lab::learn;
using lab::user_of;
using support::refusal;
using testing::ElementsAre;
using testing::HasSubstr;

/// A user whose second layer follows from the first: e -> (e + shift) mod 4, over all e in turn.
routing_trace shifted(std::int32_t shift, std::size_t tokens, std::string name) {
  auto trace = support::empty_trace(2, 4, 1);
  trace.name = std::move(name);
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto e = static_cast<std::int32_t>(t % 4);
    support::add_step(trace, {{e, (e + shift) % 4}});
  }
  return trace;
}

TEST(co_activation_study, counts_the_places_that_the_table_names) {
  const auto seen = shifted(1, 4, "seen");
  const auto other = shifted(2, 8, "other");
  co_activation table(seen.shape(), {});
  const auto nothing = judge(table, user_of(seen));
  EXPECT_EQ(nothing.places, 4U);
  EXPECT_EQ(nothing.hits, 0U) << "an empty table names nobody";
  EXPECT_EQ(nothing.popular_hits, 0U);

  learn(table, user_of(seen));
  const auto before = table.save();
  const auto own = judge(table, user_of(seen));
  EXPECT_EQ(own.tokens, 4U);
  EXPECT_EQ(own.hits, 4U);
  EXPECT_EQ(own.precision(), 1.0);
  EXPECT_EQ(own.popular_hits, 1U) << "all are used alike: expert 0, the lowest";
  EXPECT_EQ(judge(table, user_of(other)).hits, 0U);
  EXPECT_EQ(table.save(), before) << "judging teaches nothing";
  EXPECT_EQ(judge(table, user_of(other), {2, 5}).tokens, 3U);
  EXPECT_EQ(judge(table, user_of(other), {6, 99}).places, 2U);
  EXPECT_EQ(judge(table, user_of(other), {99, 100}).places, 0U);
}

/// What judge should count, from the definition: a table learnt by hand from pairs of neighbouring layers.
TEST(co_activation_study, agrees_with_precision_written_out) {
  const auto trace = support::random_trace(
      3, {.layers = 3, .experts = 6, .top_k = 2, .steps = 60, .absent_one_in = 7});
  co_activation table(trace.shape(), {.reach = 1});
  learn(table, user_of(trace), {0, 40});
  std::uint64_t places = 0, hits = 0;
  for (const auto l : each<layer_id>(2)) {
    std::map<std::pair<expert_id, expert_id>, double> pairs;
    std::map<expert_id, double> fired;
    for (std::size_t t = 0; t < 40; ++t)
      for (const auto i : trace.ids_of(t, l)) {
        if (i < 0) continue;
        ++fired[i];
        for (const auto j : trace.ids_of(t, l + 1))
          if (j >= 0) ++pairs[{i, j}];
      }
    for (std::size_t t = 40; t < 60; ++t) {
      const auto routed = trace.ids_of(t, l + 1);
      if (std::ranges::all_of(routed, [](auto e) { return e < 0; })) continue;
      places += 2;
      std::vector<std::pair<float, expert_id>> scores;
      for (const auto j : each<expert_id>(6)) {
        float score = 0;
        for (const auto i : trace.ids_of(t, l))
          if (i >= 0 && fired[i] > 0)
            score += 1.0F / static_cast<float>(fired[i]) * static_cast<float>(pairs[{i, j}]);
        scores.emplace_back(-score, j);
      }
      std::ranges::sort(scores);
      for (std::size_t k = 0; k < 2; ++k)
        if (scores[k].first < 0 && std::ranges::find(routed, scores[k].second) != routed.end())
          ++hits;
    }
  }
  const auto found = judge(table, user_of(trace), {40, 60});
  EXPECT_EQ(found.places, places);
  EXPECT_EQ(found.hits, hits);
  EXPECT_GT(hits, 0U);
}

TEST(co_activation_study, sequences_are_users) {
  auto trace = shifted(1, 6, "law");
  trace.sequence = {7, 7, 3, 3, 7, 3};
  const auto users = lab::users_by_sequence(trace);
  ASSERT_EQ(users.size(), 2U);
  EXPECT_EQ(users[0].name, "law/7");
  EXPECT_THAT(users[0].rows, ElementsAre(0, 1, 4));
  EXPECT_THAT(users[1].rows, ElementsAre(2, 3, 5));
}

TEST(co_activation_study, a_support_is_that_of_the_layer_that_needs_most) {
  auto trace = support::empty_trace(3, 4, 1);
  for (const auto e : each<expert_id>(4)) support::add_step(trace, {{0, e, no_expert}});
  co_activation table(trace.shape(), {});
  learn(table, user_of(trace));
  const auto all = lab::support_of(table, 4, 1.0);
  EXPECT_EQ(all.cap, 4U);
  EXPECT_EQ(all.cap, support_cap(table.uses(), 4, 1.0));
  EXPECT_DOUBLE_EQ(all.mean, 2.5) << "a layer that routes nothing needs nothing and is not counted";
  EXPECT_EQ(lab::support_of(table, 4, 0.5).cap, 2U);
}

// Two users who contradict each other: each one's own table is right, that of both is torn, the other's is wrong.
TEST(co_activation_study, tells_a_users_table_from_the_populations_and_from_the_others) {
  const auto one = shifted(1, 40, "one");
  const auto two = shifted(2, 44, "two");
  const auto brief = shifted(3, 16, "brief");
  lab::study_request request;
  request.users = {user_of(one), user_of(two), user_of(brief)};
  request.sizes = {2, 8, 16};
  const auto found = lab::compare_personal_and_population(request);
  EXPECT_THAT(found.left_out, ElementsAre("brief"));
  ASSERT_EQ(found.users.size(), 2U);
  EXPECT_EQ(found.users[0].tested, 24U);
  EXPECT_EQ(found.users[1].tested, 28U);
  const auto& first = found.users[0].cells;
  EXPECT_EQ(first[0].personal.quality.precision(), 0.5) << "two of four experts seen";
  EXPECT_EQ(first[1].personal.quality.precision(), 1.0);
  EXPECT_EQ(first[1].others.quality.precision(), 0.0);
  // Both followers of e score alike and the lower id is named: the first user's for e = 0, 1, 3, the second's for e = 2.
  EXPECT_EQ(first[1].population.quality.hits, 24U / 4 * 3);
  EXPECT_EQ(found.users[1].cells[1].population.quality.hits, 28U / 4 * 1);
  EXPECT_EQ(first[2].personal.cap, 4U);
}

TEST(co_activation_study, training_in_steps_is_training_from_the_start) {
  const support::random_shape shape{.layers = 3, .experts = 6, .top_k = 2, .steps = 90};
  const auto one = support::random_trace(1, shape);
  const auto two = support::random_trace(2, shape);
  lab::study_request request;
  request.users = {user_of(one), user_of(two)};
  request.sizes = {5, 20, 60};
  const auto in_steps = support::json_of(lab::compare_personal_and_population(request));
  request.sizes = {60};
  const auto at_once = support::json_of(lab::compare_personal_and_population(request));
  for (std::size_t u = 0; u < 2; ++u)
    EXPECT_EQ(in_steps["users"][u]["sizes"][2], at_once["users"][u]["sizes"][0]);
  EXPECT_EQ(in_steps["all"][2], at_once["all"][0]);
  // And it is what tables learnt by hand say.
  co_activation own(one.shape(), {}), both(one.shape(), {});
  learn(own, user_of(one), {0, 60});
  learn(both, user_of(one), {0, 60});
  learn(both, user_of(two), {0, 60});
  const auto& cell = at_once["users"][0]["sizes"][0];
  EXPECT_EQ(cell["personal"]["precision"], judge(own, user_of(one), {60}).precision());
  EXPECT_EQ(cell["population"]["precision"], judge(both, user_of(one), {60}).precision());
}

TEST(co_activation_study, tells_users_apart_in_its_reports) {
  const auto one = shifted(1, 40, "one");
  const auto two = shifted(2, 44, "two");
  lab::study_request request;
  request.users = {user_of(one), user_of(two)};
  request.sizes = {2, 8};
  const auto found = lab::compare_personal_and_population(request);
  const auto json = support::json_of(found);
  EXPECT_EQ(json["schema"], "hotset.coactivation/1");
  EXPECT_EQ(json["study"], "personal-vs-population");
  EXPECT_EQ(json["users"][1]["name"], "two");
  EXPECT_EQ(json["users"][1]["tested_tokens"], 36);
  EXPECT_EQ(json["users"][0]["sizes"][1]["personal"]["precision"], 1.0);
  EXPECT_EQ(json["all"][1]["tokens"], 8);
  EXPECT_EQ(json["all"][1]["personal"]["precision"], 1.0);
  EXPECT_EQ(json["all"][1]["population"]["precision"], 0.5);
  EXPECT_EQ(json["all"][1]["wins"], 2);
  EXPECT_EQ(json["left_out"].size(), 0U);
  const auto table = lab::to_table(found);
  for (const char* part :
       {"2 users of 2 layers x 4 experts, top-1", "one ", "100.00", "yes", "2/2"})
    EXPECT_THAT(table, HasSubstr(part));
}

TEST(co_activation_study, refuses_what_cannot_be_compared) {
  const auto one = shifted(1, 40, "one");
  const auto two = shifted(2, 10, "two");
  const auto wide = support::one_layer(9, {{0}, {1}, {2}});
  const auto why = [](const lab::study_request& request) {
    return refusal<lab::usage_error>([&] { (void)lab::compare_personal_and_population(request); });
  };
  EXPECT_EQ(why({}), "no user, accepted: 2 or more");
  EXPECT_EQ(why({.users = {user_of(one)}}),
            "no size, accepted: tokens of training, such as 64,256");
  EXPECT_THAT(why({.users = {user_of(one)}, .sizes = {4, 4}}), HasSubstr("size 4, accepted"));
  EXPECT_THAT(why({.users = {user_of(one)}, .sizes = {0}}), HasSubstr("size 0, accepted"));
  EXPECT_THAT(why({.users = {user_of(one), user_of(two)}, .sizes = {10}}),
              HasSubstr("1 of 2 users have more than 10 tokens"));
  EXPECT_EQ(why({.users = {user_of(one), user_of(wide)}, .sizes = {1}}),
            "hand: 1 layers x 9 experts, top-1; accepted: 2 layers x 4 experts, top-1, as one");
  EXPECT_THAT(why({.users = {user_of(one)}, .sizes = {4}, .coverage = 0}),
              HasSubstr("coverage = 0, accepted"));
  EXPECT_THAT(why({.users = {user_of(one)}, .sizes = {4}, .table = {.reach = 0}}),
              HasSubstr("reach = 0"));
}

}  // namespace
}  // namespace hotset::co_activation_study_test
