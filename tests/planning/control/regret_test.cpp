// SPDX-License-Identifier: Apache-2.0
#include "hotset/planning/control/regret.hpp"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/eviction/lru.hpp"
#include "random_source.hpp"

namespace hotset::regret_test {
namespace {

const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 2};

/// A running cache and what it is judged by.
template <class Eviction>
struct judged {
  explicit judged(pool_layout layout, typename Eviction::config eviction = {},
                  std::size_t visits = 1000)
      : pages({.layout = layout, .eviction = std::move(eviction)}),
        plan(pages.make_plan()),
        judge(layout, {.visits = visits}) {
    judge.begin_window({}, 0);
  }
  void visit(layer_id layer, step_id step, const std::vector<std::int32_t>& ids) {
    routing_view view;
    view.layer = layer;
    view.step = step;
    view.ordinal = step * 2 + static_cast<std::uint64_t>(layer);
    view.experts = ids;
    auto code = pages.plan(view, plan);
    while (code == status::ok) {
      ASSERT_EQ(pages.commit(plan), status::ok);
      if (!plan.more()) break;
      code = pages.plan_next(plan);
    }
    ASSERT_EQ(code, status::ok);
    EXPECT_TRUE(judge.observe(view));
  }
  regret::outcome end() {
    const auto found = judge.end_window(pages.stats().fills);
    EXPECT_TRUE(found);
    judge.begin_window(pages.residents(), pages.stats().fills);
    return *found;
  }
  pager<Eviction> pages;
  visit_plan plan;
  regret judge;
};

// One pool of 3: A B, C, A B. LRU gives up what is used next.
TEST(regret, of_a_hand_walked_window) {
  judged<lru> cache(pool_layout::shared(shape, 3).value());
  cache.visit(0_layer, 0, {0, 1});
  cache.visit(0_layer, 1, {2, 3});
  cache.visit(0_layer, 2, {0, 2});
  // LRU: 0 1, then 2 3 for 0 and the free slot, then 0 again: 5. Belady gives up 1: 4.
  const auto found = cache.end();
  EXPECT_EQ(found.visits, 3U);
  EXPECT_EQ(found.fills, 5U);
  EXPECT_EQ(found.best_fills, 4U);
  EXPECT_DOUBLE_EQ(found.ratio(), 0.25);
  // Who knows that 0 and 2 come next gives up 1 as well.
  EXPECT_EQ(found.next_visit_fills, 4U);
  EXPECT_EQ(found.unavoidable(), 4U);
  EXPECT_EQ(found.horizon(), 0U);
  EXPECT_EQ(found.ours(), 1U);
}

// One pool of 4: A B, A C, D E, D E, B C. At D E the next visit says nothing, and A was used most. Belady gives it up.
TEST(regret, what_no_one_could_have_known_lies_beyond_the_horizon) {
  judged<lru> cache(pool_layout::shared(shape, 4).value());
  cache.visit(0_layer, 0, {0, 1});
  cache.visit(0_layer, 1, {0, 2});
  cache.visit(0_layer, 2, {3, 4});
  cache.visit(0_layer, 3, {3, 4});
  cache.visit(0_layer, 4, {1, 2});
  const auto found = cache.end();
  EXPECT_EQ(found.fills, 6U);
  EXPECT_EQ(found.best_fills, 5U);
  EXPECT_EQ(found.next_visit_fills, 6U);
  EXPECT_EQ(found.unavoidable(), 5U);
  EXPECT_EQ(found.horizon(), 1U);
  EXPECT_EQ(found.ours(), 0U);
}

// A B thrice, C D, E F twice, C D: rates hold on to A and B, recency does not.
TEST(regret, a_cache_may_copy_less_than_the_oracle) {
  judged<lru> cache(pool_layout::shared(shape, 4).value());
  step_id step = 0;
  for (const auto& ids : std::vector<std::vector<std::int32_t>>{
           {0, 1}, {0, 1}, {0, 1}, {2, 3}, {4, 5}, {4, 5}, {2, 3}})
    cache.visit(0_layer, step++, ids);
  const auto found = cache.end();
  EXPECT_EQ(found.fills, 6U);
  EXPECT_EQ(found.best_fills, 6U);
  EXPECT_EQ(found.next_visit_fills, 8U);
  EXPECT_EQ(found.unavoidable(), 6U);
  EXPECT_EQ(found.horizon() + found.ours(), 0U);
}

TEST(regret, shares_are_never_negative_and_add_up) {
  const std::vector<std::vector<std::uint64_t>> cases = {
      // fills, belady's, the oracle's: unavoidable, horizon, ours
      {9, 4, 6, 4, 2, 3}, {7, 5, 9, 5, 2, 0}, {5, 5, 5, 5, 0, 0}, {3, 4, 4, 3, 0, 0},
      {9, 6, 5, 6, 0, 3}, {0, 0, 0, 0, 0, 0}, {0, 2, 3, 0, 0, 0}};
  for (const auto& c : cases) {
    const regret::outcome found{1, c[0], c[1], c[2]};
    EXPECT_EQ(found.unavoidable(), c[3]);
    EXPECT_EQ(found.horizon(), c[4]);
    EXPECT_EQ(found.ours(), c[5]);
    EXPECT_EQ(found.unavoidable() + found.horizon() + found.ours(), found.fills);
  }
}

// A B thrice and C D; then E F twice and A B. Who has seen the first window gives up C and D.
TEST(regret, the_oracle_remembers_the_windows_before) {
  const auto layout = pool_layout::shared(shape, 4).value();
  judged<lru> cache(layout);
  step_id step = 0;
  for (const auto& ids : std::vector<std::vector<std::int32_t>>{{0, 1}, {0, 1}, {0, 1}, {2, 3}})
    cache.visit(0_layer, step++, ids);
  (void)cache.end();
  judged<lru> forgetful(layout);
  forgetful.judge.begin_window(cache.pages.residents(), 0);
  for (const auto& ids : std::vector<std::vector<std::int32_t>>{{4, 5}, {4, 5}, {0, 1}}) {
    cache.visit(0_layer, step, ids);
    routing_view view;
    view.step = step++;
    view.experts = ids;
    EXPECT_TRUE(forgetful.judge.observe(view));
  }
  EXPECT_EQ(forgetful.judge.end_window(4)->next_visit_fills, 4U);
  const auto found = cache.end();
  EXPECT_EQ(found.fills, 4U);
  EXPECT_EQ(found.best_fills, 2U);
  EXPECT_EQ(found.next_visit_fills, 2U);
  EXPECT_EQ(found.ours(), 2U);
}

TEST(regret, begins_with_who_is_resident) {
  judged<lru> cache(pool_layout::shared(shape, 4).value());
  cache.visit(0_layer, 0, {0, 1});
  EXPECT_EQ(cache.end().best_fills, 2U);
  cache.visit(0_layer, 1, {0, 1});
  const auto found = cache.end();
  EXPECT_EQ(found.fills, 0U);
  EXPECT_EQ(found.best_fills, 0U);
  EXPECT_EQ(found.ratio(), 0);
}

TEST(regret, is_never_below_zero_whatever_the_window) {
  support::random_source random(8);
  for (const std::size_t length : {1U, 5U, 40U}) {
    judged<lru> cache(pool_layout::per_layer(shape, 4).value(), {}, length);
    std::uint64_t fills = 0;
    std::uint64_t best = 0;
    std::size_t in_window = 0;
    for (step_id step = 0; step < 300; ++step)
      for (const auto layer : each<layer_id>(2)) {
        std::vector<std::int32_t> ids;
        for (int n = 0; n < 2; ++n) ids.push_back(std::min(random.id_below(8), random.id_below(8)));
        cache.visit(layer, step, ids);
        if (++in_window < length) continue;
        EXPECT_TRUE(cache.judge.is_full());
        const auto found = cache.end();
        EXPECT_GE(found.fills, found.best_fills);
        EXPECT_GE(found.next_visit_fills, found.best_fills);
        EXPECT_EQ(found.unavoidable() + found.horizon() + found.ours(), found.fills);
        fills += found.fills;
        best += found.best_fills;
        in_window = 0;
      }
    EXPECT_EQ(fills, cache.pages.stats().fills);
    if (length == 40) {
      EXPECT_GT(fills, best);
    }
  }
}

TEST(regret, a_full_window_takes_no_more) {
  regret judge(pool_layout::shared(shape, 4).value(), {.visits = 1});
  judge.begin_window({}, 0);
  const std::vector<std::int32_t> ids{1, 2};
  routing_view view;
  view.experts = ids;
  EXPECT_TRUE(judge.observe(view));
  EXPECT_FALSE(judge.observe(view));
  EXPECT_EQ(judge.end_window(2)->visits, 1U);
}

TEST(regret, a_wrong_configuration_is_refused) {
  EXPECT_EQ(regret::config{.visits = 0}.validate()->message,
            "regret visits = 0, accepted: 1..16777216");
  EXPECT_FALSE(regret::config{}.validate());
}

}  // namespace
}  // namespace hotset::regret_test
