// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/dimensions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/errors.hpp"
#include "sim_samples.hpp"

namespace hotset::dimensions_test {
namespace {

using support::refusal;
using testing::HasSubstr;

const geometry shape{.layers = 3,
                     .experts = 8,
                     .top_k = 2,
                     .max_tokens_per_visit = 1,
                     .expert_bytes = {4},
                     .layer_size_class = {},
                     .lower_precisions = {{2}}};

template <class Make>
std::string refused(Make make, const char* text) {
  return refusal<lab::usage_error>([&] { (void)make(text); });
}
std::string refused_prefetch(const char* text) {
  return refused([](std::string_view t) { return lab::make_prefetch(t); }, text);
}
std::string refused_miss(const char* text) { return refused(lab::make_miss, text); }
std::string refused_routing(const char* text) { return refused(lab::make_routing, text); }

TEST(dimensions, every_name_makes_the_policy_of_that_name) {
  for (const auto& name : lab::prefetch_names()) {
    EXPECT_EQ(any_prefetch_policy(shape, lab::make_prefetch(name)).held_name(), name);
    EXPECT_EQ(any_prefetch_policy(shape, lab::make_prefetch("prefetch." + name)).held_name(), name);
  }
  for (const auto& name : lab::miss_names()) {
    EXPECT_EQ(any_miss_policy(shape, lab::make_miss(name)).held_name(), name);
    EXPECT_EQ(any_miss_policy(shape, lab::make_miss("miss." + name)).held_name(), name);
  }
  for (const auto& name : lab::routing_names()) {
    EXPECT_EQ(any_routing_policy(shape, lab::make_routing(name)).held_name(), name);
    EXPECT_EQ(any_routing_policy(shape, lab::make_routing("routing." + name)).held_name(), name);
  }
  for (const auto& name : lab::guard_names()) EXPECT_NO_THROW((void)lab::parse_guard(name));
}

TEST(dimensions, predictors_are_made_by_name) {
  const std::vector<std::string> all{"recorded",          "current-gate",  "next-router",
                                     "activation-matrix", "co-activation", "expert-map",
                                     "last-routed",       "mixed",         "similar-steps"};
  for (const auto& name : all)
    if (name != "mixed") {
      EXPECT_EQ(lab::make_predictor(name, all).name, name);
    }
  EXPECT_TRUE(lab::make_predictor("recorded", all).traits.needs_recorded);
  EXPECT_TRUE(lab::make_predictor("current-gate", all).traits.needs_scores);
  EXPECT_TRUE(lab::make_predictor("next-router", all).traits.needs_routers);
  const auto table = lab::make_predictor("co-activation:reach=5:decay=0.25", all);
  EXPECT_FALSE(with_depth(table, 5).validate());
  EXPECT_TRUE(with_depth(table, 6).validate());
  EXPECT_THAT(
      lab::predictor_names(false, true),
      testing::ElementsAre("recorded", "current-gate", "activation-matrix", "co-activation",
                           "expert-map", "last-routed", "learned-gate", "mixed", "similar-steps"));
  EXPECT_THAT(
      lab::predictor_names(true, false),
      testing::ElementsAre("current-gate", "next-router", "activation-matrix", "co-activation",
                           "expert-map", "last-routed", "learned-gate", "mixed", "similar-steps"));
  const auto why = [&](const char* text, const std::vector<std::string>& accepted) {
    return refusal<lab::usage_error>([&] { (void)lab::make_predictor(text, accepted); });
  };
  const auto mix = lab::make_predictor("mixed:rate=0.5+recorded+co-activation:reach=5", all);
  EXPECT_EQ(mix.name, "mixed");
  EXPECT_TRUE(mix.traits.needs_recorded && !mix.traits.needs_scores);
  EXPECT_FALSE(with_depth(mix, 5).validate());
  EXPECT_TRUE(with_depth(mix, 6).validate()) << "a part looks no further";
  EXPECT_THAT(why("mixed", all), HasSubstr("mixed has no parts, accepted: mixed+"));
  EXPECT_THAT(why("mixed+recorded+next-router", {"mixed", "recorded"}),
              HasSubstr("predictor 'next-router'; accepted: mixed, recorded"));
  EXPECT_THAT(why("mixed:rate=0+recorded", all), HasSubstr("mixed rate = 0"));
  EXPECT_THAT(why("mixed:of=2+recorded", all), HasSubstr("unknown parameter 'of'"));
  EXPECT_THAT(why("mixed+recorded:reach=2", all), HasSubstr("unknown parameter 'reach'"));
  EXPECT_THAT(why("recorded+last-routed", all), HasSubstr("unknown predictor 'recorded+last-"));
  EXPECT_EQ(why("next-router", {"recorded", "co-activation"}),
            "predictor 'next-router'; accepted: recorded, co-activation");
  EXPECT_THAT(why("co-activation:reach=0", all), HasSubstr("reach = 0, accepted: 1 or more"));
  EXPECT_THAT(why("co-activation:depth=2", all), HasSubstr("unknown parameter 'depth'"));
  EXPECT_THAT(why("recorded:reach=2", all), HasSubstr("unknown parameter 'reach'"));
  EXPECT_THAT(why("recorded:scores=sigmoid", all), HasSubstr("unknown parameter 'scores'"));
  EXPECT_THAT(why("current-gate:groups=2", all), HasSubstr("groups = 2, accepted: 1 for softmax"));
  EXPECT_EQ(lab::make_predictor("current-gate:scores=sigmoid:groups=2", all).name, "current-gate");
  EXPECT_THAT(why("activation-matrix:from=absent.matrices", all),
              HasSubstr("absent.matrices: cannot be read"));
  const std::vector<std::string> gates{"learned-gate"};
  EXPECT_THAT(why("learned-gate", gates), HasSubstr("weights = none, accepted: weights=FILE"));
  EXPECT_THAT(why("learned-gate:weights=absent.gate", gates),
              HasSubstr("absent.gate: cannot be read"));
}

TEST(dimensions, parameters_arrive) {
  const any_prefetch_policy wide(shape, lab::make_prefetch("next_layer_top_k:overfetch=2:depth=2"));
  EXPECT_EQ(wide.depth(), 2);
  EXPECT_EQ(wide.most_requests(), 8U);
  const any_prefetch_policy few(shape, lab::make_prefetch("popular:count=3"));
  EXPECT_EQ(few.most_requests(), 3U);
}

TEST(dimensions, unknown_names_list_what_is_accepted) {
  const auto prefetch = refused_prefetch("oracle");
  for (const auto& name : lab::prefetch_names()) EXPECT_THAT(prefetch, HasSubstr(name));
  const auto miss = refused_miss("stall");
  for (const auto& name : lab::miss_names()) EXPECT_THAT(miss, HasSubstr(name));
  const auto routing = refused_routing("sticky");
  for (const auto& name : lab::routing_names()) EXPECT_THAT(routing, HasSubstr(name));
  EXPECT_THAT(refusal<lab::usage_error>([] { (void)lab::parse_guard("all"); }),
              HasSubstr("accepted: none, named, predicted"));
}

TEST(dimensions, values_out_of_range_are_refused_by_name) {
  EXPECT_THAT(refused_prefetch("score_threshold:percentile=0"), HasSubstr("percentile = 0"));
  EXPECT_THAT(refused_prefetch("score_threshold:percentile=100"), HasSubstr("percentile = 100"));
  EXPECT_THAT(refused_prefetch("next_layer_top_k:overfetch=0.5"), HasSubstr("overfetch = 0.5"));
  EXPECT_THAT(refused_prefetch("next_layer_top_k:depth=0"), HasSubstr("depth = 0"));
  EXPECT_THAT(refused_prefetch("next_layer_top_k:depth=4294967297"), HasSubstr("depth = 42949"));
  EXPECT_THAT(refused_prefetch("noisy_oracle:precision=0"), HasSubstr("precision = 0"));
  EXPECT_THAT(refused_prefetch("noisy_oracle:recall=1.5"), HasSubstr("recall = 1.5"));
  EXPECT_THAT(refused_prefetch("previous_step:depth=2"), HasSubstr("depth"));
  EXPECT_THAT(refused_miss("fetch_priority:percentile=100"), HasSubstr("percentile = 100"));
  EXPECT_THAT(refused_miss("drop:keep=0"), HasSubstr("keep = 0"));
  EXPECT_THAT(refused_miss("substitute:tolerance=-1"), HasSubstr("tolerance"));
  EXPECT_THAT(refused_miss("compute_on_host:split=all"), HasSubstr("split"));
  EXPECT_THAT(refused_routing("cache_aware:lambda=-0.1"), HasSubstr("lambda = -0.1"));
}

TEST(dimensions, the_plain_choices_are_known) {
  EXPECT_FALSE(lab::prefetches("no_prefetch"));
  EXPECT_FALSE(lab::prefetches("prefetch.no_prefetch"));
  EXPECT_TRUE(lab::prefetches("previous_step"));
  EXPECT_TRUE(lab::fetches_everything("fetch"));
  EXPECT_FALSE(lab::fetches_everything("fetch_lowest"));
  EXPECT_FALSE(lab::bends_routing("routing.router_order"));
  EXPECT_TRUE(lab::bends_routing("cache_aware:lambda=0"));
  EXPECT_TRUE(lab::wants_scores("substitute"));
  EXPECT_FALSE(lab::wants_scores("drop"));
  EXPECT_TRUE(lab::is_exact_miss("compute_on_host"));
  EXPECT_FALSE(lab::is_exact_miss("drop"));
}

TEST(dimensions, a_set_is_read_once) {
  const auto plain = lab::read_policies({});
  EXPECT_FALSE(plain.prefetcher || plain.misses || plain.routing || plain.pre_eviction);
  EXPECT_EQ(plain.eviction->name, "lru");
  EXPECT_EQ(plain.predictor.name, "recorded");
  EXPECT_FALSE(plain.stands_alone());
  const auto set = lab::read_policies({.eviction = "protect_hot+popularity:first=9",
                                       .prefetch = "popular:profile=trace",
                                       .guard = "predicted",
                                       .miss = "drop_cascade:keep=1",
                                       .routing = "budget_top_k",
                                       .pre_eviction = "active_evict",
                                       .prefetch_order = "likeliest"});
  EXPECT_EQ(set.eviction->name, "popularity");
  EXPECT_EQ(set.profile->first, 9U);
  EXPECT_EQ(set.prefetch_profile->source, "trace");
  EXPECT_TRUE(set.prefetcher && set.misses && set.routing && set.pre_eviction);
  EXPECT_TRUE(set.miss.needs_weights && !set.miss.is_exact);
  EXPECT_EQ(set.guard, prefetch_guard::predicted);
  EXPECT_EQ(set.order, fill_order::likeliest);
  EXPECT_TRUE(lab::read_policies({.eviction = "belady_bypass"}).stands_alone());
  EXPECT_EQ(lab::read_policies({.prefetch = "noisy_oracle"}).prefetch.needs, forecast_need::truth);
  EXPECT_THAT(
      refusal<lab::usage_error>([] { (void)lab::read_policies({.routing = "budget_top_k"}); }),
      HasSubstr("does nothing without slots that were freed ahead"));
}

TEST(dimensions, a_static_profile_is_asked_for_by_name) {
  EXPECT_FALSE(lab::requested_prefetch_profile("popular"));
  EXPECT_FALSE(lab::requested_prefetch_profile("previous_step"));
  const auto asked = lab::requested_prefetch_profile("popular:profile=trace:first=7");
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->source, "trace");
  EXPECT_EQ(asked->first, 7U);
}

}  // namespace
}  // namespace hotset::dimensions_test
