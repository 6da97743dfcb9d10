// SPDX-License-Identifier: Apache-2.0
// Routing policies and pre-eviction through the C interface decide as those of the library.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "c_handles.hpp"
#include "hotset.h"
#include "hotset/registry/policy_registry.hpp"
#include "hotset/registry/pre_eviction.hpp"
#include "random_source.hpp"

namespace hotset::routing_test {
namespace {

using support::open;
using support::view_of;
using testing::ElementsAre;

constexpr std::int32_t layers = 3;
constexpr std::int32_t experts = 16;
using ids = std::vector<std::int32_t>;

hotset_pager_options options(const char* routing, const char* pre_eviction = nullptr) {
  auto out = support::options_of<hotset_pager_options>(layers, experts, 2);
  out.max_tokens = 2;
  out.slots = 6;
  out.routing = routing;
  out.pre_eviction = pre_eviction;
  return out;
}
ids routed(hotset_pager* pager, const hotset_view& view) {
  ids out(view.tokens * 2, -7);
  EXPECT_EQ(hotset_route(pager, &view, out.data()), HOTSET_OK) << hotset_last_error();
  return out;
}
void visit(hotset_pager* pager, const hotset_view& view) {
  auto planned = support::sized<hotset_visit>();
  ASSERT_EQ(hotset_plan(pager, &view, &planned), HOTSET_OK) << hotset_last_error();
  ASSERT_EQ(hotset_commit(pager), HOTSET_OK);
}

/// A random visit: ids in the order of its logits.
struct sample {
  sample(support::random_source& random, std::size_t tokens)
      : logits(tokens * experts), next(logits.size()) {
    for (auto& z : logits) z = static_cast<float>(random.below(1000)) / 100;
    for (auto& p : next) p = static_cast<float>(random.below(1000)) / 1000;
    for (std::size_t t = 0; t < tokens; ++t) {
      ids order(experts);
      for (std::int32_t e = 0; e < experts; ++e) order[static_cast<std::size_t>(e)] = e;
      std::ranges::stable_sort(order, std::greater<>(), [&](std::int32_t e) {
        return logits[t * experts + static_cast<std::size_t>(e)];
      });
      chosen.insert(chosen.end(), {order[0], order[1]});
    }
  }
  std::vector<float> logits, next;
  ids chosen{};
};

/// The library's pager, routing policy and pre-eviction side by side, as an engine in C++ has them.
struct reference {
  explicit reference(const hotset_pager_options& how)
      : pages(policies()
                  .make_erased_pager({.eviction = how.eviction,
                                      .layout = pool_layout::per_layer(shape, 6).value()})
                  .value()),
        routing(shape, policies().routing.make(how.routing).value()),
        plan(pages.make_plan()) {
    if (how.pre_eviction != nullptr)
      frees.emplace(shape, *make_pre_eviction(how.pre_eviction).value());
  }
  ids route(const routing_view& view) {
    residency_view residents{pages.located(view.layer)};
    if (view.layer == freed_for)
      residents.free_slots =
          static_cast<std::int32_t>(pages.free_slots(pages.layout().pool_of_layer(view.layer)));
    std::vector<expert_id> out(view.experts.size());
    EXPECT_EQ(routing.route(view, residents, out, {}), status::ok);
    ids numbers(out.size());
    std::ranges::transform(out, numbers.begin(), number<expert_id>);
    return numbers;
  }
  void expect(layer_id layer, step_id step, const std::vector<float>& next) {
    const forecast expected{.probabilities = next, .depth = 1};
    pages.expect({.layer = layer, .pool = pages.layout().pool_of_layer(layer), .step = step},
                 expected);
    if (layer + 1 == layers) return;
    const auto wanted = frees->decide(expected, {pages.located(layer + 1)});
    pages.pre_evict(
        {.layer = layer + 1, .pool = pages.layout().pool_of_layer(layer + 1), .step = step},
        wanted.free, wanted.spared, [](slot_id, expert_key) {});
    freed_for = layer + 1;
  }

  geometry shape{.layers = layers, .experts = experts, .top_k = 2, .max_tokens_per_visit = 2};
  erased_pager pages;
  any_routing_policy routing;
  visit_plan plan;
  std::optional<active_evict> frees{};
  layer_id freed_for = before_layers;
};

/// Returns the number of places that the policy changed.
std::size_t compare(hotset_pager_options how, const char* eviction) {
  how.eviction = eviction;
  const auto pager = open(how);
  reference same(how);
  support::random_source random(7);
  std::size_t changed = 0;
  for (std::uint64_t step = 0; step < 60; ++step)
    for (const auto layer : each<layer_id>(layers)) {
      const sample one(random, 1 + random.below(2));
      auto view = view_of(number(layer), step, one.chosen);
      view.logits = one.logits.data();
      const auto mine = routed(pager.get(), view);
      EXPECT_EQ(
          mine,
          same.route({.layer = layer, .step = step, .experts = one.chosen, .logits = one.logits}));
      for (std::size_t i = 0; i < mine.size(); ++i) changed += mine[i] != one.chosen[i] ? 1U : 0U;
      if (same.frees) {
        EXPECT_EQ(hotset_expect(pager.get(), number(layer), step, one.next.data(), view.tokens, 1),
                  HOTSET_OK);
        same.expect(layer, step, one.next);
      }
      view.experts = mine.data();
      view.chosen = one.chosen.data();
      visit(pager.get(), view);
      EXPECT_EQ(same.pages.serve({.layer = layer,
                                  .step = step,
                                  .experts = mine,
                                  .logits = one.logits,
                                  .router_choice = one.chosen},
                                 same.plan, [](const visit_group&) {}),
                status::ok);
      if (layer == same.freed_for) same.freed_for = before_layers;
    }
  std::uint64_t hash = 0;
  EXPECT_EQ(hotset_decision_hash(pager.get(), &hash), HOTSET_OK);
  EXPECT_EQ(hash, same.pages.decision_hash());
  return changed;
}

TEST(c_routing, chooses_and_frees_as_the_library_does) {
  EXPECT_EQ(compare(options("router_order"), "lru"), 0U);
  EXPECT_EQ(compare(options("cache_aware:lambda=0"), "lru"), 0U);
  for (const auto* eviction : {"lru", "similar_steps", "importance"}) {
    EXPECT_GT(compare(options("cache_aware:lambda=0.5"), eviction), 50U);
    EXPECT_GT(compare(options("budget_top_k", "active_evict:tau=0"), eviction), 20U);
    EXPECT_GT(compare(options("budget_top_k:keep_hits=true", "active_evict"), eviction), 10U);
  }
}

// The budget of a visit is what was freed for it: it ends with the visit.
TEST(c_routing, a_budget_holds_for_one_visit) {
  const auto pager = open(options("budget_top_k", "active_evict:tau=0"));
  for (const ids& filling : {ids{0, 1}, ids{2, 3}, ids{4, 5}})
    visit(pager.get(), view_of(1, 0, filling));
  const ids best_is_here{4, 9};
  const auto view = view_of(1, 1, best_is_here);
  EXPECT_THAT(routed(pager.get(), view), ElementsAre(4, 9)) << "nothing was freed";
  std::vector<float> next(experts, 0.0F);
  next[4] = next[5] = 0.5F;  // both resident: no slot is freed
  ASSERT_EQ(hotset_expect(pager.get(), 0, 1, next.data(), 1, 1), HOTSET_OK);
  EXPECT_THAT(routed(pager.get(), view), ElementsAre(4, -1));
  EXPECT_THAT(routed(pager.get(), view_of(0, 1, best_is_here)), ElementsAre(4, 9));
  visit(pager.get(), view);
  EXPECT_THAT(routed(pager.get(), view), ElementsAre(4, 9));
  next[9] = 0.6F;  // one of the two best is absent: a slot is freed for it
  ASSERT_EQ(hotset_expect(pager.get(), 0, 2, next.data(), 1, 1), HOTSET_OK);
  EXPECT_THAT(routed(pager.get(), view), ElementsAre(4, 9));
}

TEST(c_routing, rows_that_lie_apart_are_the_same_choice) {
  const auto pager = open(options(nullptr));
  const ids wide{1, 2, -7, 3, 4, -7};
  auto view = view_of(0, 0, wide);
  view.tokens = 2;
  view.experts_stride = 3;
  EXPECT_THAT(routed(pager.get(), view), ElementsAre(1, 2, 3, 4));
}

TEST(c_routing, calls_that_cannot_be_are_refused_in_words) {
  const auto pager = open(options("cache_aware"));
  const ids chosen{1, 2, 3, 4, 5, 6};
  const std::vector<float> logits(2 * experts, 1.0F);
  ids out(6, -7);
  const auto refused = [&](hotset_status code, auto spoil) {
    auto view = view_of(0, 0, chosen);
    view.tokens = 1;
    view.logits = logits.data();
    auto* to = out.data();
    spoil(view, to);
    EXPECT_EQ(hotset_route(pager.get(), &view, to), code);
    return std::string(hotset_last_error());
  };
  EXPECT_EQ(
      refused(HOTSET_INVALID_VISIT, [](auto& v, auto&) { v.logits = nullptr; }),
      "a visit without logits, accepted: with the router's logits, which the routing policy needs");
  EXPECT_EQ(refused(HOTSET_INVALID_VISIT, [](auto& v, auto&) { v.layer = 3; }),
            "a visit of layer 3, accepted: 0..2");
  EXPECT_EQ(refused(HOTSET_VISIT_TOO_LARGE, [](auto& v, auto&) { v.tokens = 3; }),
            "a visit of 3 tokens, accepted: at most 2, max_tokens");
  EXPECT_EQ(refused(HOTSET_INVALID_ARGUMENT, [](auto&, auto*& to) { to = nullptr; }),
            "experts is null");
  EXPECT_THAT(out, testing::Each(-7));
  auto view = view_of(0, 0, chosen);
  view.tokens = 0;
  EXPECT_EQ(hotset_route(pager.get(), &view, nullptr), HOTSET_OK);
}

TEST(c_routing, no_slots_are_freed_while_a_plan_is_open) {
  const auto pager = open(options("budget_top_k", "active_evict"));
  const ids chosen{1, 2};
  const std::vector<float> next(experts, 0.1F);
  const auto view = view_of(0, 0, chosen);
  auto planned = support::sized<hotset_visit>();
  ASSERT_EQ(hotset_plan(pager.get(), &view, &planned), HOTSET_OK);
  EXPECT_EQ(hotset_expect(pager.get(), 0, 0, next.data(), 1, 1), HOTSET_PLAN_OPEN);
  ASSERT_EQ(hotset_commit(pager.get()), HOTSET_OK);
  EXPECT_EQ(hotset_expect(pager.get(), 0, 0, next.data(), 1, 1), HOTSET_OK);
  EXPECT_EQ(hotset_expect(pager.get(), 2, 0, next.data(), 1, 1), HOTSET_OK) << "no layer after it";
}

}  // namespace
}  // namespace hotset::routing_test
