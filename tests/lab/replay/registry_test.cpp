// SPDX-License-Identifier: Apache-2.0
#include "lab/replay/registry.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/trace/visit_sequence.hpp"
#include "lab/errors.hpp"
#include "lab/replay/replay.hpp"
#include "sim_samples.hpp"

namespace registry_test {
namespace {

using namespace hotset;
using lab::usage_error;
using support::refusal;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const routing_trace& sample() {
  static const auto trace =
      support::random_trace(1, {.layers = 2, .experts = 6, .steps = 30, .most_tokens = 2});
  return trace;
}
const visit_sequence& visits() {
  static const visit_sequence made(sample());
  return made;
}
pool_layout layout() { return pool_layout::shared(visits().shape(), 6).value(); }

lab::run_result run(const std::string& eviction, const std::string& admission = "always") {
  return support::one_run(sample(), {eviction, "shared", "6", "event-atomic", admission});
}
std::uint64_t hash_of(const std::string& eviction, const std::string& admission = "always") {
  const auto done = run(eviction, admission);
  EXPECT_EQ(done.stats.visits, visits().size());
  return done.decision_hash;
}
std::string refused(const std::string& eviction, const std::string& admission = "always") {
  return refusal<usage_error>([&] { (void)run(eviction, admission); });
}

const geometry shape{.layers = 3, .experts = 8, .top_k = 2, .expert_bytes = {4}};

template <class Make>
std::string refused_by(Make make, const char* text) {
  return refusal<usage_error>([&] { (void)make(text); });
}
std::string refused_prefetch(const char* text) {
  return refused_by([](std::string_view t) { return lab::make_prefetch(t); }, text);
}
void expect_lists(const std::string& refusal, const std::vector<std::string>& names) {
  for (const auto& name : names) EXPECT_THAT(refusal, HasSubstr(name));
}

TEST(registry, every_eviction_name_builds_and_replays_dotted_or_not) {
  for (const auto& name : support::plain_evictions()) {
    SCOPED_TRACE(name);
    const auto hash = hash_of(name);
    EXPECT_NE(hash, 0U);
    EXPECT_EQ(hash_of("eviction." + name), hash);
  }
}

TEST(registry, a_dotted_name_is_the_same_policy_in_a_chain_and_of_admission) {
  EXPECT_EQ(hash_of("eviction.protect_hot:uses=2+eviction.lru"), hash_of("protect_hot:uses=2+lru"));
  EXPECT_EQ(hash_of("lru", "admission.budgeted"), hash_of("lru", "budgeted"));
}

TEST(registry, a_dotted_name_of_another_folder_is_unknown) {
  EXPECT_THAT(refused("admission.lru"), HasSubstr("unknown eviction policy 'admission.lru'"));
  EXPECT_THAT(refused("lru", "eviction.always"),
              HasSubstr("unknown admission policy 'eviction.always'"));
}

TEST(registry, every_decorator_works_with_every_policy_except_bypass) {
  for (const auto& decorator : lab::known_policies().decorators.names())
    for (const auto& name : support::plain_evictions()) {
      if (name == "belady_bypass") continue;
      SCOPED_TRACE(decorator + "+" + name);
      EXPECT_NE(hash_of(decorator + "+" + name), 0U);
    }
}

TEST(registry, every_admission_works_with_every_policy_except_bypass) {
  for (const auto& admission : lab::known_policies().admission.names())
    for (const auto& name : support::plain_evictions()) {
      if (name == "belady_bypass") continue;
      SCOPED_TRACE(name + " behind " + admission);
      EXPECT_NE(hash_of(name, admission), 0U);
    }
}

TEST(registry, decorators_nest_and_parameters_reach_them) {
  EXPECT_NE(hash_of("protect_decode:window=2+protect_hot:uses=2+lfu:history=resident"),
            hash_of("lfu:history=resident"));
  EXPECT_NE(hash_of("protect_hot:uses=1+lru"), hash_of("protect_hot:uses=3+lru"));
}

TEST(registry, unknown_names_list_the_accepted_ones) {
  const auto& known = lab::known_policies();
  const auto eviction = refused("lru2");
  expect_lists(eviction, {"'lru2'"});
  expect_lists(eviction, known.eviction.names());
  expect_lists(eviction, known.decorators.names());
  const auto admission = refused("lru", "never");
  expect_lists(admission, {"'never'"});
  expect_lists(admission, known.admission.names());
  expect_lists(refused_prefetch("oracle"), known.prefetch.names());
  expect_lists(refused_by(lab::make_miss, "stall"), known.miss.names());
  expect_lists(refused_by(lab::make_routing, "sticky"), known.routing.names());
  EXPECT_THAT(refusal<usage_error>([] { (void)lab::read_policies({.guard = "all"}); }),
              HasSubstr("accepted: none, named, predicted"));
  EXPECT_THAT(refusal<usage_error>([] { (void)lab::read_policies({.prefetch_order = "first"}); }),
              HasSubstr("accepted: nearest, likeliest, greatest"));
}

TEST(registry, a_decorator_without_a_policy_is_refused) {
  EXPECT_THAT(
      refused("lfu+lru"),
      AllOf(HasSubstr("'lfu'"), HasSubstr("protect_hot, protect_decode, reserve_prefetch")));
  EXPECT_THAT(refused("protect_hot"), HasSubstr("unknown eviction policy 'protect_hot'"));
}

// The registry's own tests check each policy's messages.
TEST(registry, an_unknown_parameter_gives_the_policys_own_message) {
  EXPECT_THAT(refused("lfu:history=some"), HasSubstr("accepted: whole, resident"));
  EXPECT_THAT(refused("gate_score:accumulate=max"), HasSubstr("accepted: sum, ema"));
  EXPECT_THAT(refused("protect_hot:window=3+lru"),
              HasSubstr("unknown parameter 'window', accepted: uses"));
  EXPECT_THAT(refused("belady_bypass:x=1"), HasSubstr("unknown parameter 'x', accepted: none"));
  EXPECT_THAT(refused("lru", "always:n=1"), HasSubstr("unknown parameter 'n', accepted: none"));
  EXPECT_THAT(refused("lru", "budgeted:fills=1"), HasSubstr("accepted: fills_per_visit"));
  EXPECT_THAT(refused_prefetch("next_layer_top_k:depth=4294967297"),
              HasSubstr("accepted: a whole number from 0 to 2147483647"));
  EXPECT_THAT(refused_prefetch("previous_step:depth=2"), HasSubstr("depth"));
  EXPECT_THAT(refused_by(lab::make_miss, "compute_on_host:split=all"), HasSubstr("split"));
  EXPECT_THAT(refused_by(lab::make_routing, "cache_aware:lambda=-0.1"), HasSubstr("lambda = -0.1"));
}

TEST(registry, after_n_uses_raises_its_second_threshold_with_the_first) {
  EXPECT_EQ(hash_of("lru", "after_n_uses:uses=9"),
            hash_of("lru", "after_n_uses:uses=9:after_eviction=9"));
}

TEST(registry, an_empty_budget_lets_nothing_in) {
  const auto stats = run("lru", "budgeted:fills_per_visit=0").stats;
  EXPECT_EQ(stats.fills, 0U);
  EXPECT_EQ(stats.bypasses, stats.accesses);
}

TEST(registry, offline_policies_are_refused_without_a_future) {
  for (const std::string name : {"belady", "next_visit_oracle", "protect_hot+belady"}) {
    SCOPED_TRACE(name);
    EXPECT_THAT(refusal<usage_error>([&] {
                  (void)lab::make_pager({name, "always", layout()});
                }),
                HasSubstr("future"));
  }
}

TEST(registry, a_future_or_a_profile_of_another_shape_is_refused) {
  const auto other = support::random_trace(2, {.layers = 3, .experts = 5, .steps = 4});
  const visit_sequence elsewhere(other);
  const auto place = pool_layout::shared(elsewhere.shape(), 6).value();
  const policy_knowledge foreign{lab::order_events(elsewhere, place, false).future,
                                 {std::vector<double>(15, 1.0), "another"}};
  for (const std::string name : {"belady", "next_visit_oracle", "protect_hot+belady", "popularity",
                                 "protect_hot+popularity"})
    EXPECT_THROW((void)lab::make_pager({name, "always", layout()}, foreign), usage_error) << name;
  EXPECT_NO_THROW((void)lab::make_pager({"lru", "always", layout()}, foreign));
}

TEST(registry, belady_bypass_takes_no_decorator_and_no_other_policy) {
  EXPECT_THAT(refused("protect_hot+belady_bypass"), HasSubstr("no decorator"));
  for (const std::string admission : {"after_n_uses", "budgeted", "admission.budgeted"})
    EXPECT_THAT(refused("belady_bypass", admission), HasSubstr("accepted: --admission always"))
        << admission;
  EXPECT_THAT(refused("belady_bypass", "never"), HasSubstr("unknown admission policy"));
  EXPECT_NE(hash_of("belady_bypass", "admission.always"), 0U);
  EXPECT_THAT(refusal<usage_error>(
                  [] { (void)lab::read_policies({.eviction = "belady_bypass", .miss = "drop"}); }),
              HasSubstr("accepted: --miss fetch"));
  EXPECT_THAT(refusal<usage_error>([] {
                (void)lab::make_pager({"belady_bypass", "always", layout()});
              }),
              HasSubstr("has no slots"));
}

TEST(registry, names_policies_that_need_the_future) {
  const auto needs_future = [](const std::string& name) {
    return lab::read_policies({.eviction = name}).eviction->traits.needs_future;
  };
  for (const std::string name : {"belady", "belady_bypass", "next_visit_oracle", "eviction.belady",
                                 "eviction.belady_bypass", "protect_hot+belady"})
    EXPECT_TRUE(needs_future(name)) << name;
  for (const std::string name : {"lru", "popularity", "protect_hot:uses=2+eviction.lfu"})
    EXPECT_FALSE(needs_future(name)) << name;
}

TEST(registry, names_the_source_of_popularitys_profile) {
  const auto profile = [](const std::string& name) {
    return lab::read_policies({.eviction = name}).profile;
  };
  EXPECT_EQ(profile("lru"), std::nullopt);
  EXPECT_EQ(profile("popularity"), (profile_request{"trace", 0}));
  EXPECT_EQ(profile("protect_hot+eviction.popularity:first=64"), (profile_request{"trace", 64}));
  EXPECT_EQ(profile("popularity:profile=a.csv:first=3"), (profile_request{"a.csv", 3}));
}

TEST(registry, policies_can_be_checked_before_there_is_a_trace) {
  const auto check = [](const std::string& eviction, const std::string& admission) {
    (void)lab::read_policies({.eviction = eviction, .admission = admission});
  };
  for (const auto& name : lab::known_policies().eviction.names())
    EXPECT_NO_THROW(check(name, "always")) << name;
  for (const auto& name : lab::known_policies().admission.names())
    EXPECT_NO_THROW(check("protect_hot+belady", name)) << name;
  EXPECT_THROW(check("lru2", "always"), usage_error);
  EXPECT_THROW(check("lru", "never"), usage_error);
}

TEST(registry, names_agree_with_the_documentation) {
  EXPECT_THAT(lab::known_policies().admission.names(),
              ElementsAre("always", "after_n_uses", "budgeted", "least_valuable"));
  EXPECT_THAT(lab::known_policies().decorators.names(),
              ElementsAre("protect_hot", "protect_decode", "reserve_prefetch"));
}

TEST(registry, every_name_makes_the_policy_of_that_name) {
  for (const auto& name : lab::known_policies().prefetch.names()) {
    EXPECT_EQ(any_prefetch_policy(shape, lab::make_prefetch(name)).held_name(), name);
    EXPECT_EQ(any_prefetch_policy(shape, lab::make_prefetch("prefetch." + name)).held_name(), name);
  }
  for (const auto& name : lab::known_policies().miss.names()) {
    EXPECT_EQ(any_miss_policy(shape, lab::make_miss(name)).held_name(), name);
    EXPECT_EQ(any_miss_policy(shape, lab::make_miss("miss." + name)).held_name(), name);
  }
  for (const auto& name : lab::known_policies().routing.names()) {
    EXPECT_EQ(any_routing_policy(shape, lab::make_routing(name)).held_name(), name);
    EXPECT_EQ(any_routing_policy(shape, lab::make_routing("routing." + name)).held_name(), name);
  }
}

const std::vector<std::string> all{"recorded",          "current-gate",  "next-router",
                                   "activation-matrix", "co-activation", "expert-map",
                                   "last-routed",       "mixed",         "similar-steps"};

TEST(registry, predictors_are_made_by_name) {
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
  const auto mix = lab::make_predictor("mixed:rate=0.5+recorded+co-activation:reach=5", all);
  EXPECT_EQ(mix.name, "mixed");
  EXPECT_TRUE(mix.traits.needs_recorded && !mix.traits.needs_scores);
  EXPECT_FALSE(with_depth(mix, 5).validate());
  EXPECT_TRUE(with_depth(mix, 6).validate()) << "a part looks no further";
  EXPECT_EQ(lab::make_predictor("current-gate:scores=sigmoid:groups=2", all).name, "current-gate");
}

TEST(registry, predictors_that_cannot_be_made_are_refused) {
  const auto why = [](const char* text, const std::vector<std::string>& accepted) {
    return refusal<usage_error>([&] { (void)lab::make_predictor(text, accepted); });
  };
  for (const auto& [text, said] :
       {std::pair("mixed", "mixed has no parts, accepted: mixed+"),
        {"mixed:rate=0+recorded", "mixed rate = 0"},
        {"mixed:of=2+recorded", "unknown parameter 'of'"},
        {"mixed+recorded:reach=2", "unknown parameter 'reach'"},
        {"recorded+last-routed", "unknown predictor 'recorded+last-"},
        {"co-activation:reach=0", "reach = 0, accepted: 1 or more"},
        {"co-activation:depth=2", "unknown parameter 'depth'"},
        {"recorded:reach=2", "unknown parameter 'reach'"},
        {"recorded:scores=sigmoid", "unknown parameter 'scores'"},
        {"current-gate:groups=2", "groups = 2, accepted: 1 for softmax"},
        {"activation-matrix:from=absent.matrices", "absent.matrices: cannot be read"}})
    EXPECT_THAT(why(text, all), HasSubstr(said)) << text;
  EXPECT_THAT(why("mixed+recorded+next-router", {"mixed", "recorded"}),
              HasSubstr("predictor 'next-router'; accepted: mixed, recorded"));
  EXPECT_EQ(why("next-router", {"recorded", "co-activation"}),
            "predictor 'next-router'; accepted: recorded, co-activation");
  EXPECT_THAT(why("learned-gate", {"learned-gate"}),
              HasSubstr("weights = none, accepted: weights=FILE"));
  EXPECT_THAT(why("learned-gate:weights=absent.gate", {"learned-gate"}),
              HasSubstr("absent.gate: cannot be read"));
}

TEST(registry, parameters_arrive) {
  const any_prefetch_policy wide(shape, lab::make_prefetch("next_layer_top_k:overfetch=2:depth=2"));
  EXPECT_EQ(wide.depth(), 2);
  EXPECT_EQ(wide.most_requests(), 8U);
  const any_prefetch_policy few(shape, lab::make_prefetch("popular:count=3"));
  EXPECT_EQ(few.most_requests(), 3U);
}

TEST(registry, the_plain_choices_need_no_policy) {
  const auto plain = lab::read_policies({.prefetch = "prefetch.no_prefetch",
                                         .miss = "miss.fetch",
                                         .routing = "routing.router_order"});
  EXPECT_FALSE(plain.prefetcher || plain.misses || plain.routing || plain.pre_eviction);
  EXPECT_TRUE(lab::read_policies({.routing = "cache_aware:lambda=0"}).routing);
  EXPECT_TRUE(lab::read_policies({.miss = "substitute"}).miss.needs_logits);
  EXPECT_FALSE(lab::read_policies({.miss = "drop"}).miss.needs_logits);
  EXPECT_TRUE(lab::read_policies({.miss = "compute_on_host"}).miss.is_exact);
  EXPECT_FALSE(lab::read_policies({.miss = "drop"}).miss.is_exact);
}

TEST(registry, a_set_is_read_once) {
  const auto plain = lab::read_policies({});
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
  EXPECT_THAT(refusal<usage_error>([] { (void)lab::read_policies({.routing = "budget_top_k"}); }),
              HasSubstr("does nothing without slots that were freed ahead"));
}

TEST(registry, a_static_profile_is_requested_by_name) {
  const auto profile = [](const std::string& name) {
    return lab::read_policies({.prefetch = name}).prefetch_profile;
  };
  EXPECT_FALSE(profile("popular"));
  EXPECT_FALSE(profile("previous_step"));
  EXPECT_EQ(profile("popular:profile=trace:first=7"), (profile_request{"trace", 7}));
}

}  // namespace
}  // namespace registry_test
