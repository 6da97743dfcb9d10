// SPDX-License-Identifier: Apache-2.0
#include "hotset/registry/policy_registry.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/admission/always.hpp"
#include "hotset/admission/budgeted.hpp"
#include "hotset/eviction/lfru.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/protect_hot.hpp"
#include "hotset/miss/drop.hpp"
#include "hotset/miss/fetch.hpp"
#include "hotset/predict/co_activation.hpp"
#include "hotset/prefetch/popular.hpp"
#include "hotset/routing/cache_aware.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/replay/sweep.hpp"
#include "sim_samples.hpp"

namespace policy_registry_test {
namespace {

using namespace hotset;
using testing::Contains;
using testing::HasSubstr;

/// A program's own policy: lru under another name, with a parameter.
class own_lru : public lru {
 public:
  struct config {
    double share = 0.5;
    template <class From>
    static config read(From& from) {
      return {from.real("share", 0.5)};
    }
    [[nodiscard]] validation validate() const {
      if (share > 0 && share <= 1) return std::nullopt;
      return error{"own_lru share = " + std::to_string(share) + ", accepted: (0, 1]"};
    }
  };
  static constexpr std::string_view name = "own_lru";
  own_lru(const pool_layout& layout, const config&) : lru(layout) {}
};
static_assert(is_eviction_policy<own_lru>());

const geometry shape{.layers = 2, .experts = 4, .top_k = 1};
pool_layout layout() { return pool_layout::shared(shape, 3).value(); }

TEST(policy_registry, takes_a_policy_of_each_kind_and_a_decorator) {
  policy_registry own;
  EXPECT_FALSE(own.add<own_lru>());
  EXPECT_FALSE(own.add<budgeted>());
  EXPECT_FALSE(own.add<popular>());
  EXPECT_FALSE(own.add<drop>());
  EXPECT_FALSE(own.add<cache_aware>());
  EXPECT_FALSE(own.add<co_activation>());
  EXPECT_FALSE(own.add_decorator<protect_hot<any_eviction_policy>>());
  EXPECT_NE(own.eviction.find("own_lru"), nullptr);
  EXPECT_NE(own.eviction.find("eviction.own_lru"), nullptr);
  EXPECT_NE(own.admission.find("admission.budgeted"), nullptr);
  EXPECT_NE(own.prefetch.find("popular"), nullptr);
  EXPECT_NE(own.miss.find("drop"), nullptr);
  EXPECT_NE(own.routing.find("cache_aware"), nullptr);
  EXPECT_NE(own.predictors.find("co-activation"), nullptr);
  EXPECT_TRUE(own.make_eviction("protect_hot:uses=2+own_lru:share=0.25"));
  EXPECT_EQ(own.eviction.find("protect_hot"), nullptr);
}

TEST(policy_registry, a_name_is_taken_once) {
  policy_registry own;
  EXPECT_FALSE(own.add<own_lru>());
  EXPECT_EQ(own.add<own_lru>()->message,
            "eviction policy name 'own_lru' is taken, accepted: another one");
  EXPECT_TRUE(policies().add<lru>());
}

TEST(policy_registry, a_name_holds_nothing_that_separates) {
  for (const std::string name : {"", "a:b", "a+b", "a=b", "a,b"}) {
    eviction_row row;
    row.name = name;
    EXPECT_TRUE(policy_registry().eviction.add(row)) << name;
  }
}

TEST(policy_registry, refuses_in_a_sentence) {
  policy_registry own;
  ASSERT_FALSE(own.add<own_lru>());
  ASSERT_FALSE(own.add_decorator<protect_hot<any_eviction_policy>>());
  EXPECT_EQ(own.make_eviction("own_lrv").error().message,
            "unknown eviction policy 'own_lrv' (did you mean own_lru?); accepted: own_lru; "
            "decorated by: protect_hot");
  EXPECT_THAT(own.make_eviction("own_lru:share=2").error().message, HasSubstr("accepted: (0, 1]"));
  EXPECT_THAT(own.make_eviction("own_lru:shape=1").error().message,
              HasSubstr("did you mean share?"));
  EXPECT_THAT(own.make_eviction("own_lru+own_lru").error().message,
              HasSubstr("unknown decorator 'own_lru'; accepted: protect_hot"));
  EXPECT_THAT(own.make_eviction("protect_hot:uses=0+own_lru").error().message,
              HasSubstr("accepted: 1 or more"));
  EXPECT_FALSE(own.make_eviction("own_lru:"));
}

TEST(policy_registry, decorators_are_eviction_policies_by_their_full_names) {
  EXPECT_TRUE(policies().make_eviction("eviction.protect_hot+eviction.lru"));
  EXPECT_THAT(policies().make_eviction("decorator.protect_hot+lru").error().message,
              HasSubstr("unknown decorator 'decorator.protect_hot'"));
}

TEST(policy_registry, a_policy_without_its_required_profile_is_refused) {
  const auto refused = [](const auto& made) { return made ? std::string() : made.error().message; };
  const std::string words =
      "' of a trace, and none was counted; accepted: another policy, or counts in its config "
      "(hotset simulate counts)";
  EXPECT_EQ(refused(policies().make_eviction("protect_hot+popularity:profile=a.trace")),
            "popularity needs the profile 'a.trace" + words);
  EXPECT_EQ(refused(policies().prefetch.make("popular:profile=a.trace")),
            "popular needs the profile 'a.trace" + words);
  EXPECT_EQ(refused(policies().make_erased_pager({.eviction = "popularity", .layout = layout()})),
            "popularity needs the profile 'trace" + words);
  policy_knowledge known;
  known.profile.counts.assign(shape.keys(), 1.0);
  EXPECT_TRUE(policies().make_eviction("popularity", known));
  EXPECT_TRUE(policies().make_erased_pager({.eviction = "popularity", .layout = layout()}, known));
  EXPECT_TRUE(policies().prefetch.make("popular:profile=a.trace", known));
  EXPECT_TRUE(policies().prefetch.make("popular")) << "counts for itself";
  EXPECT_THAT(refused(policies().prefetch.make("popular:first=3")),
              HasSubstr("unknown parameter 'first'"));
}

TEST(policy_registry, has_everything_that_the_library_offers) {
  const auto& all = policies();
  for (const auto& row : all.eviction.rows())
    EXPECT_TRUE(row.make || row.name == "belady_bypass") << row.name << " makes no policy";
  EXPECT_GE(all.eviction.rows().size(), 10U);
  EXPECT_EQ(all.admission.rows().size(), 4U);
  EXPECT_EQ(all.prefetch.rows().size(), 7U);
  EXPECT_EQ(all.miss.rows().size(), 7U);
  EXPECT_EQ(all.routing.rows().size(), 3U);
  EXPECT_EQ(all.predictors.rows().size(), 10U);
}

TEST(policy_registry, a_policy_of_other_precisions_is_refused_by_its_traits) {
  EXPECT_FALSE(policies().check_precisions("lfru", 2));
  EXPECT_THAT(policies().check_precisions("lhu", 1)->message, HasSubstr("2 or more precisions"));
  EXPECT_THAT(policies().check_precisions("protect_hot+belady", 2)->message,
              HasSubstr("at most 1 precision"));
}

TEST(policy_registry, an_erased_pager_has_the_requested_policies) {
  const auto name_of = [](const pager_request& wanted) {
    const auto made = policies().make_erased_pager(wanted);
    return std::string(made->eviction().held_name()) + " " +
           std::string(made->admission().held_name()) + " " +
           std::string(made->misses().held_name());
  };
  EXPECT_EQ(name_of({.eviction = "lfru", .layout = layout()}), "lfru always fetch");
  EXPECT_EQ(name_of({.admission = "budgeted", .layout = layout()}), "lru budgeted fetch");
  EXPECT_EQ(name_of({.layout = layout(), .miss = any_miss_policy::holding<drop>()}),
            "lru always drop");
  EXPECT_EQ(name_of({.admission = "after_n_uses",
                     .layout = layout(),
                     .miss = any_miss_policy::holding<drop>()}),
            "lru after_n_uses drop");
}

/// Counts calls of a policy whose answer is constant.
struct never_asked : always {
  using always::always;
  void on_use(const expert_use&, bool, bool) noexcept { ++calls; }
  void on_evict(expert_key, step_id) noexcept { ++calls; }
  static inline int calls = 0;
};
template <class Admission, class Miss>
void decides_as_composed(const visit_sequence& visits, typename Admission::config admission,
                         typename Miss::config miss) {
  const auto place = pool_layout::shared(visits.shape(), 5).value();
  pager<lru, Admission, Miss> composed({.layout = place, .admission = admission, .miss = miss});
  erased_pager erased({.layout = place,
                       .eviction = any_eviction_policy::holding<lru>(),
                       .admission = any_admission_policy::holding<Admission>(admission),
                       .miss = any_miss_policy::holding<Miss>(miss)});
  auto plan = composed.make_plan();
  auto erased_plan = erased.make_plan();
  for (std::size_t i = 0; i < visits.size(); ++i) {
    ASSERT_EQ(composed.serve(visits[i], plan, [](const visit_group&) {}), status::ok);
    ASSERT_EQ(erased.serve(visits[i], erased_plan, [](const visit_group&) {}), status::ok);
  }
  EXPECT_EQ(erased.decision_hash(), composed.decision_hash());
  EXPECT_EQ(erased.stats(), composed.stats());
}
TEST(erased_pager, decides_and_counts_as_the_pager_that_is_composed) {
  const visit_sequence visits(
      support::random_trace(6, {.layers = 3, .experts = 9, .steps = 40, .most_tokens = 4}));
  decides_as_composed<always, fetch>(visits, {}, {});
  decides_as_composed<budgeted, fetch>(visits, {.fills_per_visit = 1}, {});
  decides_as_composed<always, drop>(visits, {}, {.keep = 1});
  decides_as_composed<budgeted, drop>(visits, {.fills_per_visit = 1}, {.keep = 1});
  decides_as_composed<never_asked, fetch>(visits, {}, {});
  EXPECT_EQ(never_asked::calls, 0);
}
TEST(erased_pager, admits_and_fetches_everything_by_default) {
  const erased_pager pages({.layout = layout(), .eviction = any_eviction_policy::holding<lru>()});
  EXPECT_EQ(pages.admission().held_name(), "always");
  EXPECT_EQ(pages.misses().held_name(), "fetch");
  EXPECT_TRUE(pages.is_exact());
}

// A policy added once is available in every study.
TEST(policy_registry, an_added_policy_reaches_sweeps) {
  (void)policies().add<own_lru>();  // another test may have added it
  EXPECT_THAT(lab::known_policies().eviction.names(), Contains("own_lru"));
  const auto trace = support::random_trace(3, {.layers = 2, .experts = 6, .steps = 50});
  lab::sweep_request request;
  request.policies = support::policy_sets({"lru", "own_lru:share=0.1", "protect_hot+own_lru"});
  request.sizes = {lab::size_request::parse_slots("50%")};
  const auto runs = lab::run_sweep(trace, request).results;
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0].decision_hash, runs[1].decision_hash);
  EXPECT_NE(runs[0].decision_hash, 0U);
  request.policies = support::policy_sets({"own_lru:share=7"});
  EXPECT_THROW((void)lab::run_sweep(trace, request), lab::usage_error);
}

}  // namespace
}  // namespace policy_registry_test
