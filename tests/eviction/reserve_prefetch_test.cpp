// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/reserve_prefetch.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/eviction/gate_score.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/protect_hot.hpp"
#include "hotset/paging/pager.hpp"
#include "hotset/policy/any/any_eviction_policy.hpp"
#include "reference_policies.hpp"

namespace hotset::reserve_prefetch_test {
namespace {

using reference::hand_walk;
using reference::shared;
using testing::ElementsAre;
using slots = std::vector<slot_id>;

using split_lru = reserve_prefetch<lru>;
static_assert(eviction_policy<split_lru>);
static_assert(eviction_policy<protect_hot<reserve_prefetch<gate_score>>>);
static_assert(split_lru::name == "reserve_prefetch");
static_assert(split_lru::traits.moves_by_itself);
static_assert(reserve_prefetch<gate_score>::traits.needs_weights);

/// Victims that a prefetch would take from pool 0.
template <class P>
slots for_prefetch(hand_walk<P>& w) {
  slots out(w.eligible.slots() + 1, no_slot);
  const visit_context context{.step = 9, .speculative = true};
  out.resize(w.policy.select_victims(context, w.eligible, out));
  return out;
}
template <class P>
slots for_demand(hand_walk<P>& w) {
  return w.order_of(0_pool, 9, 0);
}

/// Two of five slots are for prefetched experts. Slots 0 and 1 hold used ones, slot 2 the first prefetched one, and
/// so on.
hand_walk<split_lru> with_prefetched(std::int32_t count) {
  hand_walk<split_lru> w(shared(1, 5), {.share = 0.4});
  w.begin(0, 0);
  w.fill_from(0, 5 - count);
  for (auto s = 5 - count; s < 5; ++s) w.prefetch(s, {0_layer, expert_id{s}}, 1);
  return w;
}

TEST(reserve_prefetch, without_prefetches_the_inner_policy_decides) {
  auto w = with_prefetched(0);
  EXPECT_THAT(for_demand(w), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(for_prefetch(w), ElementsAre(0, 1, 2, 3, 4));
}

TEST(reserve_prefetch, while_its_share_is_not_full_everyone_takes_the_others) {
  auto w = with_prefetched(1);
  w.hit(0);
  EXPECT_THAT(for_demand(w), ElementsAre(1, 2, 3, 0, 4));
  EXPECT_THAT(for_prefetch(w), ElementsAre(1, 2, 3, 0, 4));
}

TEST(reserve_prefetch, once_its_share_is_full_prefetches_replace_each_other) {
  auto w = with_prefetched(2);
  EXPECT_THAT(for_demand(w), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(for_prefetch(w), ElementsAre(3, 4, 0, 1, 2));
}

TEST(reserve_prefetch, a_miss_evicts_prefetched_keys_beyond_the_share) {
  auto w = with_prefetched(4);
  // Two too many: the two that the inner policy evicts first, then the other prefetched one, then the rest.
  EXPECT_THAT(for_demand(w), ElementsAre(1, 2, 0, 3, 4));
  EXPECT_THAT(for_prefetch(w), ElementsAre(1, 2, 3, 4, 0));
  w.evict(1);  // share: two of four slots, rounded; there are three
  EXPECT_THAT(for_demand(w), ElementsAre(2, 0, 3, 4));
  w.fill(1, {0_layer, 6_expert});
  w.evict(2);
  w.fill(2, {0_layer, 7_expert});
  EXPECT_THAT(for_demand(w), ElementsAre(0, 1, 2, 3, 4));
}

TEST(reserve_prefetch, the_excess_does_not_depend_on_eligibility) {
  auto w = with_prefetched(3);
  EXPECT_THAT(for_demand(w), ElementsAre(2, 0, 1, 3, 4));
  w.eligible.reset(2_slot);
  EXPECT_THAT(for_demand(w), ElementsAre(0, 1, 3, 4));
  w.eligible.reset(0_slot);
  w.eligible.reset(1_slot);
  EXPECT_THAT(for_demand(w), ElementsAre(3, 4));
}

TEST(reserve_prefetch, the_share_is_at_least_one_and_less_than_all) {
  for (const double share : {0.01, 0.99}) {
    hand_walk<split_lru> w(shared(1, 3), {.share = share});
    w.begin(0, 0);
    w.fill(0, {0_layer, 0_expert});
    w.prefetch(1, {0_layer, 1_expert}, 1);
    w.prefetch(2, {0_layer, 2_expert}, 1);
    // One more than the share allows, or none.
    EXPECT_THAT(for_demand(w), share < 0.5 ? ElementsAre(1, 0, 2) : ElementsAre(0, 1, 2));
    EXPECT_THAT(for_prefetch(w), ElementsAre(1, 2, 0));
    w.hit(1);
    EXPECT_THAT(for_prefetch(w), share < 0.5 ? ElementsAre(2, 0, 1) : ElementsAre(0, 1, 2));
  }
  hand_walk<split_lru> one(pool_layout::shared({.layers = 1, .experts = 4, .top_k = 1}, 1).value(),
                           {});
  one.begin(0, 0);
  one.prefetch(0, {0_layer, 0_expert}, 1);
  EXPECT_THAT(for_demand(one), ElementsAre(0));
  EXPECT_THAT(for_prefetch(one), ElementsAre(0));
}

/// One layer, one expert a token.
template <class Eviction>
struct paged {
  const geometry shape{.layers = 1, .experts = 12, .top_k = 1};
  pager<Eviction> pages;
  visit_plan plan = pages.make_plan();
  step_id step = 0;

  explicit paged(const typename Eviction::config& options)
      : pages({.layout = pool_layout::shared(shape, 5).value(),
               .eviction = options,
               .guard = prefetch_guard::none}) {}
  void visit(expert_id e) {
    const std::vector<expert_id> ids{e};
    const routing_view view{.step = step++, .experts = ids};
    ASSERT_EQ(pages.serve(view, plan, [](const visit_group&) {}), status::ok);
  }
  void prefetch(expert_id e) {
    const std::vector<prefetch_request> requests{{{0_layer, e}, step + 100, 1.0F}};
    ASSERT_EQ(pages.plan_prefetch({.step = step}, requests, plan), status::ok);
    ASSERT_EQ(plan.fills().size(), 1U);
    ASSERT_EQ(pages.commit(plan), status::ok);
    const auto& f = plan.fills()[0];
    pages.arrived(f.slot, f.generation);
  }
  [[nodiscard]] std::vector<expert_id> held() const {
    std::vector<expert_id> out;
    for (const auto e : each<expert_id>(12))
      if (pages.locate({0_layer, e}) != no_slot) out.push_back(e);
    return out;
  }
};

TEST(reserve_prefetch, a_pager_marks_speculative_choices) {
  paged<split_lru> with({.share = 0.4});
  paged<any_eviction_policy> erased(any_eviction_policy::holding<split_lru>({.share = 0.4}));
  paged<lru> without({});
  const auto play = [](auto& p) {
    for (const expert_id e : {0_expert, 1_expert, 2_expert}) p.visit(e);
    for (const expert_id e : {3_expert, 4_expert}) p.prefetch(e);
    p.prefetch(5_expert);
    auto first = p.held();
    p.visit(6_expert);
    return std::pair(first, p.held());
  };
  // The share is full: the prefetch of 5 takes the slot of 3, and the miss on 6 that of the least recently used one.
  const auto [first, second] = play(with);
  EXPECT_THAT(first, ElementsAre(0, 1, 2, 4, 5));
  EXPECT_THAT(second, ElementsAre(1, 2, 4, 5, 6));
  EXPECT_EQ(play(erased), std::pair(first, second));
  EXPECT_THAT(play(without).first, ElementsAre(1, 2, 3, 4, 5));
}

}  // namespace
}  // namespace hotset::reserve_prefetch_test
