// SPDX-License-Identifier: Apache-2.0
#include "hotset/paging/any_pager.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/admission/always.hpp"
#include "hotset/admission/budgeted.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/miss/drop.hpp"
#include "hotset/miss/fetch.hpp"
#include "hotset/trace/visit_sequence.hpp"
#include "lab/replay/registry.hpp"
#include "sim_samples.hpp"

namespace any_pager_test {
namespace {

using namespace hotset;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

visit_sequence sample(std::uint64_t seed, std::uint64_t tokens = 3) {
  return visit_sequence(
      support::random_trace(seed, {.layers = 3, .experts = 9, .steps = 40, .most_tokens = tokens}));
}
pager<lru>::config setup(const visit_sequence& visits, std::int64_t slots) {
  return {.layout = pool_layout::shared(visits.shape(), slots).value()};
}

/// Remembers everything it is told.
class memory final : public decision_sink {
 public:
  void on_plan(const visit_plan& plan) override {
    ++plans;
    fills += plan.fills().size();
    if (plan.groups() > 1) ++groups;
  }
  void on_trim(const visit_context& context, std::span<const expert_key> evicted) override {
    steps.push_back(context.step);
    trimmed.insert(trimmed.end(), evicted.begin(), evicted.end());
  }
  std::size_t plans = 0, fills = 0, groups = 0;
  std::vector<step_id> steps;
  std::vector<expert_key> trimmed;
};

TEST(any_pager, decides_as_the_pager_it_holds) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto visits = sample(seed);
    pager_model<pager<lru>> erased(pager<lru>(setup(visits, 4)));
    pager<lru> plain(setup(visits, 4));
    auto plan = plain.make_plan();
    for (std::size_t i = 0; i < visits.size(); ++i) {
      ASSERT_EQ(erased.visit(visits[i]), status::ok);
      ASSERT_EQ(plain.plan(visits[i], plan), status::ok);
      ASSERT_EQ(plain.commit(plan), status::ok);
      while (plan.more()) {
        ASSERT_EQ(plain.plan_next(plan), status::ok);
        ASSERT_EQ(plain.commit(plan), status::ok);
      }
      ASSERT_EQ(erased.decision_hash(), plain.decision_hash());
    }
    EXPECT_EQ(erased.stats(), plain.stats());
  }
}

/// Counts the calls of a policy that need not be asked.
struct never_asked : always {
  using always::always;
  void on_use(const expert_use&, bool, bool) noexcept { ++calls; }
  void on_evict(expert_key, step_id) noexcept { ++calls; }
  static inline int calls = 0;
};
template <class Admission, class Miss>
void decides_as_composed(const visit_sequence& visits, typename Admission::config admission,
                         typename Miss::config miss) {
  const auto layout = pool_layout::shared(visits.shape(), 5).value();
  pager_model<pager<lru, Admission, Miss>> composed(
      pager<lru, Admission, Miss>({.layout = layout, .admission = admission, .miss = miss}));
  pager_model<erased_pager> erased(
      erased_pager({.layout = layout,
                    .eviction = any_eviction_policy::holding<lru>(),
                    .admission = any_admission_policy::holding<Admission>(admission),
                    .miss = any_miss_policy::holding<Miss>(miss)}));
  EXPECT_EQ(composed.visits(visits, 0, visits.size()).code, status::ok);
  EXPECT_EQ(erased.visits(visits, 0, visits.size()).code, status::ok);
  EXPECT_EQ(erased.decision_hash(), composed.decision_hash());
  EXPECT_EQ(erased.stats(), composed.stats());
}
TEST(erased_pager, decides_and_counts_as_the_pager_that_is_composed) {
  const auto visits = sample(6, 4);
  decides_as_composed<always, fetch>(visits, {}, {});
  decides_as_composed<budgeted, fetch>(visits, {.fills_per_visit = 1}, {});
  decides_as_composed<always, drop>(visits, {}, {.keep = 1});
  decides_as_composed<budgeted, drop>(visits, {.fills_per_visit = 1}, {.keep = 1});
  decides_as_composed<never_asked, fetch>(visits, {}, {});
  EXPECT_EQ(never_asked::calls, 0);
}
TEST(erased_pager, admits_and_fetches_everything_unless_it_is_told_otherwise) {
  const auto visits = sample(7);
  const erased_pager pages({.layout = pool_layout::shared(visits.shape(), 5).value(),
                            .eviction = any_eviction_policy::holding<lru>()});
  EXPECT_EQ(pages.admission().held_name(), "always");
  EXPECT_EQ(pages.misses().held_name(), "fetch");
  EXPECT_TRUE(pages.is_exact());
}

TEST(any_pager, a_sink_changes_no_decision_and_hears_every_group) {
  const auto visits = sample(1, 6);
  pager_model<pager<lru>> watched(pager<lru>(setup(visits, 5)));
  pager_model<pager<lru>> alone(pager<lru>(setup(visits, 5)));
  memory heard;
  watched.watch(&heard);
  for (std::size_t i = 0; i < visits.size(); ++i) {
    ASSERT_EQ(watched.visit(visits[i]), status::ok);
    ASSERT_EQ(alone.visit(visits[i]), status::ok);
  }
  const auto stats = watched.stats();
  EXPECT_EQ(stats, alone.stats());
  EXPECT_EQ(watched.decision_hash(), alone.decision_hash());
  EXPECT_GT(stats.split_visits, 0U);
  EXPECT_EQ(heard.groups, stats.groups);
  EXPECT_EQ(heard.plans, stats.visits - stats.split_visits + stats.groups);
  EXPECT_EQ(heard.fills, stats.fills);
}

// 0 1, then 2 3: the two oldest go, and the log names them.
TEST(any_pager, visit_within_trims_after_the_visit_and_spares_what_it_used) {
  const visit_sequence visits(support::one_layer(6, {{0, 1}, {2, 3}, {0, 4}}));
  pager_model<pager<lru>> pager_held(pager<lru>(setup(visits, 6)));
  memory heard;
  pager_held.watch(&heard);
  ASSERT_EQ(pager_held.visit_within(visits[0], 3), status::ok);
  EXPECT_THAT(heard.trimmed, IsEmpty());
  ASSERT_EQ(pager_held.visit_within(visits[1], 3), status::ok);
  EXPECT_THAT(heard.trimmed, ElementsAre(expert_key{0_layer, 0_expert}));
  ASSERT_EQ(pager_held.visit_within(visits[2], 1), status::ok);
  EXPECT_EQ(pager_held.stats().fills - pager_held.stats().evictions, 2U)
      << "the running visit stays, above the budget";
}

TEST(any_pager, visit_within_decides_alike_with_and_without_a_sink) {
  const auto visits = sample(2);
  pager_model<pager<lru>> watched(pager<lru>(setup(visits, 27)));
  pager_model<pager<lru>> alone(pager<lru>(setup(visits, 27)));
  memory heard;
  watched.watch(&heard);
  for (std::size_t i = 0; i < visits.size(); ++i) {
    ASSERT_EQ(watched.visit_within(visits[i], 8), status::ok);
    ASSERT_EQ(alone.visit_within(visits[i], 8), status::ok);
  }
  EXPECT_EQ(watched.decision_hash(), alone.decision_hash());
  EXPECT_EQ(heard.trimmed.size(), watched.stats().evictions);
}

TEST(any_pager, a_budget_for_everything_is_no_budget) {
  const auto visits = sample(3);
  pager_model<pager<lru>> budgeted_pager(pager<lru>(setup(visits, 27)));
  pager_model<pager<lru>> free_pager(pager<lru>(setup(visits, 27)));
  for (std::size_t i = 0; i < visits.size(); ++i) {
    ASSERT_EQ(budgeted_pager.visit_within(visits[i], 27), status::ok);
    ASSERT_EQ(free_pager.visit(visits[i]), status::ok);
  }
  EXPECT_EQ(budgeted_pager.stats(), free_pager.stats());
  EXPECT_EQ(budgeted_pager.stats().evictions, 0U);
}

TEST(any_pager, says_when_sums_change_their_order) {
  const auto visits = sample(4);
  auto config = setup(visits, 4);
  EXPECT_THAT(pager_model<pager<lru>>(pager<lru>(config)).notes(), IsEmpty());
  config.split = visit_split::by_expert;
  EXPECT_THAT(pager_model<pager<lru>>(pager<lru>(config)).notes(),
              ElementsAre(HasSubstr("not exact")));
}

TEST(any_pager, hands_on_why_a_visit_was_refused) {
  const auto visits = sample(5);
  pager_model<pager<lru>> held(pager<lru>(setup(visits, 4)));
  auto view = visits[0];
  view.layer = 99_layer;
  EXPECT_EQ(held.visit(view), status::invalid_visit);
  EXPECT_EQ(held.visit_within(view, 4), status::invalid_visit);
  const std::vector<std::int32_t> many(1000, 0);
  view.layer = 0_layer;
  view.weights = {};
  view.experts = many;
  EXPECT_EQ(held.visit(view), status::visit_too_large);
  EXPECT_EQ(held.stats().visits, 0U);
  EXPECT_EQ(held.visit(visits[0]), status::ok) << "and goes on";
}

}  // namespace
}  // namespace any_pager_test
