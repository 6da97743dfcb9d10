// SPDX-License-Identifier: Apache-2.0
// Residents move to the first slots, and nothing else changes.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/eviction/fifo.hpp"
#include "hotset/eviction/furthest_layer.hpp"
#include "hotset/eviction/gate_score.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lfru.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/popularity.hpp"
#include "hotset/eviction/protect_decode.hpp"
#include "hotset/eviction/protect_hot.hpp"
#include "hotset/paging/pager.hpp"
#include "pager_walk.hpp"
#include "random_source.hpp"

namespace hotset::pager_compact_test {
namespace {

const geometry shape{.layers = 3, .experts = 10, .top_k = 2, .max_tokens_per_visit = 2};

template <class Eviction>
class pager_compact : public testing::Test {
 protected:
  pager_compact()
      : pages({.layout = pool_layout::per_layer(shape, 10).value()}), plan(pages.make_plan()) {}

  void visit(layer_id layer, step_id step) {
    std::vector<std::int32_t> ids(4);
    for (auto& id : ids) id = random.id_below(shape.experts);
    std::vector<float> weights{0.5F, 0.25F, 0.125F, 0.0625F};
    const routing_view view{.layer = layer, .step = step, .experts = ids, .weights = weights};
    auto planned = pages.plan(view, plan);
    while (planned == status::ok) {
      ASSERT_EQ(pages.commit(plan), status::ok);
      if (!plan.more()) break;
      planned = pages.plan_next(plan);
    }
    ASSERT_EQ(planned, status::ok);
  }
  [[nodiscard]] std::size_t claimed() const {
    std::size_t slots = 0;
    for (const auto l : each<layer_id>(shape.layers))
      slots += static_cast<std::size_t>(pages.quota(l));
    return slots;
  }
  [[nodiscard]] std::map<slot_id, expert_key> contents() const {
    std::map<slot_id, expert_key> found;
    for (std::size_t k = 0; k < shape.keys(); ++k)
      if (const auto slot = pages.locate(shape.key(k)); slot != no_slot) found[slot] = shape.key(k);
    return found;
  }
  /// Keys of each layer in eviction order.
  [[nodiscard]] std::vector<expert_key> order() { return pages.residents(); }

  support::random_source random{17};
  pager<Eviction> pages;
  visit_plan plan;
};
using policies = testing::Types<lru, fifo, lfu, lfru, gate_score, popularity, furthest_layer,
                                least_stale, protect_hot<lru>, protect_decode<least_stale>>;
TYPED_TEST_SUITE(pager_compact, policies);

// Hazard 22: after a shrink no resident may have a slot above the limit.
TYPED_TEST(pager_compact, all_residents_are_below_the_claimed_slots) {
  step_id step = 0;
  for (int round = 0; round < 60; ++round) {
    for (int n = 0; n < 12; ++n, ++step)
      for (const auto l : each<layer_id>(shape.layers)) this->visit(l, step);
    for (const auto l : each<layer_id>(shape.layers))
      ASSERT_EQ(this->pages.set_quota(l, 2), status::ok);
    for (const auto l : each<layer_id>(shape.layers))
      ASSERT_EQ(this->pages.set_quota(l, 2 + this->random.id_below(9)), status::ok);
    auto expected = this->contents();
    std::set<slot_id> targets;
    this->pages.compact([&](slot_id from, slot_id to) {
      EXPECT_TRUE(targets.insert(to).second) << "two experts in one slot";
      EXPECT_FALSE(expected.contains(to)) << "bytes that are needed are overwritten";
      expected[to] = expected.at(from);
      expected.erase(from);
    });
    EXPECT_EQ(this->contents(), expected);
    for (const auto& [slot, key] : expected) {
      EXPECT_LT(index_of(slot), this->claimed());
      EXPECT_EQ(this->pages.row(key.layer)[index_of(key.expert)], slot);
    }
    support::expect_consistent(this->pages);
    this->pages.compact([](slot_id, slot_id) { ADD_FAILURE() << "moved again"; });
  }
}

// Free slots stay free and are used, and slots above the limit are never given out.
TYPED_TEST(pager_compact, continues_within_the_claimed_slots) {
  step_id step = 0;
  for (; step < 20; ++step)
    for (const auto l : each<layer_id>(shape.layers)) this->visit(l, step);
  for (const auto l : each<layer_id>(shape.layers))
    ASSERT_EQ(this->pages.set_quota(l, 3), status::ok);
  this->pages.compact([](slot_id, slot_id) {});
  for (; step < 80; ++step) {
    for (const auto l : each<layer_id>(shape.layers)) this->visit(l, step);
    for (const auto& [slot, key] : this->contents()) ASSERT_LT(slot, 9) << "step " << step;
    if (step == 50) {
      for (const auto l : each<layer_id>(shape.layers))
        ASSERT_EQ(this->pages.set_quota(l, 3 + number(l)), status::ok);
      this->pages.compact([](slot_id, slot_id) { ADD_FAILURE() << "growth moves no resident"; });
      break;
    }
  }
  for (; step < 120; ++step)
    for (const auto l : each<layer_id>(shape.layers)) this->visit(l, step);
  for (const auto& [slot, key] : this->contents()) EXPECT_LT(slot, 12);
  EXPECT_EQ(this->contents().size(), 12U);
}

TYPED_TEST(pager_compact, keeps_the_order) {
  step_id step = 0;
  for (int round = 0; round < 40; ++round) {
    for (int n = 0; n < 10; ++n, ++step)
      for (const auto l : each<layer_id>(shape.layers)) this->visit(l, step);
    for (const auto l : each<layer_id>(shape.layers))
      ASSERT_EQ(this->pages.set_quota(l, 2 + this->random.id_below(8)), status::ok);
    const auto before = this->order();
    this->pages.compact([](slot_id, slot_id) {});
    ASSERT_EQ(this->order(), before) << "round " << round;
  }
}

// Includes counts: a compacted pager makes the same decisions as another.
TYPED_TEST(pager_compact, changes_no_later_decision) {
  const auto keys = [](auto& decisions) {
    auto held = decisions.residents();
    std::sort(held.begin(), held.end());
    return held;
  };
  pager<TypeParam> other({.layout = this->pages.layout()});
  auto other_plan = other.make_plan();
  bool compacted = false;
  for (step_id step = 0; step < 600; ++step)
    for (const auto l : each<layer_id>(shape.layers)) {
      auto same = this->random;
      this->visit(l, step);
      std::swap(same, this->random);
      std::vector<std::int32_t> ids(4);
      for (auto& id : ids) id = this->random.id_below(shape.experts);
      const std::vector<float> weights{0.5F, 0.25F, 0.125F, 0.0625F};
      routing_view view{.layer = l, .step = step, .experts = ids, .weights = weights};
      ASSERT_EQ(other.serve(view, other_plan, [](const visit_group&) {}), status::ok);
      if (this->random.one_in(9)) {
        const auto quota = 2 + this->random.id_below(8);
        ASSERT_EQ(this->pages.set_quota(l, quota), status::ok);
        ASSERT_EQ(other.set_quota(l, quota), status::ok);
        this->pages.compact([&](slot_id, slot_id) { compacted = true; });
      }
      ASSERT_EQ(keys(this->pages), keys(other)) << "step " << step << " layer " << l;
    }
  EXPECT_TRUE(compacted);
}

TEST(pager_idle, is_false_during_a_pin_a_plan_or_a_copy) {
  pager<lru> pages({.layout = pool_layout::per_layer(shape, 4).value()});
  auto plan = pages.make_plan();
  EXPECT_TRUE(pages.is_idle());
  const std::vector<std::int32_t> ids{1, 2};
  const routing_view view{.experts = ids};
  ASSERT_EQ(pages.plan(view, plan), status::ok);
  EXPECT_FALSE(pages.is_idle());
  ASSERT_EQ(pages.commit(plan), status::ok);
  EXPECT_TRUE(pages.is_idle());
  const auto pin = pages.pin(pages.locate({0_layer, 1_expert}));
  EXPECT_FALSE(pages.is_idle());
  pages.unpin(pin);
  EXPECT_TRUE(pages.is_idle());
  const std::vector<prefetch_request> wanted{{{0_layer, 5_expert}, 1, 1.0F}};
  ASSERT_EQ(pages.plan_prefetch({}, wanted, plan), status::ok);
  ASSERT_EQ(pages.commit(plan), status::ok);
  EXPECT_FALSE(pages.is_idle());
  const auto filling = pages.locate({0_layer, 5_expert});
  pages.arrived(filling, pages.slot(filling).generation);
  EXPECT_TRUE(pages.is_idle());
}

// A prefetched expert that moves keeps its request: it is protected, and counted when it is used.
TEST(pager_compact_prefetch, requests_move_with_their_experts) {
  pager<lru> pages({.layout = pool_layout::per_layer(shape, 10).value()});
  auto plan = pages.make_plan();
  const std::vector<prefetch_request> wanted{{{2_layer, 5_expert}, 1, 1.0F}};
  ASSERT_EQ(pages.plan_prefetch({}, wanted, plan), status::ok);
  ASSERT_EQ(pages.commit(plan), status::ok);
  const auto filling = pages.locate({2_layer, 5_expert});
  ASSERT_EQ(filling, 20);
  pages.arrived(filling, pages.slot(filling).generation);
  for (const auto l : each<layer_id>(shape.layers)) ASSERT_EQ(pages.set_quota(l, 3), status::ok);
  std::vector<std::pair<slot_id, slot_id>> moves;
  pages.compact([&](slot_id from, slot_id to) { moves.emplace_back(from, to); });
  ASSERT_EQ(moves.size(), 1U);
  const auto home = pages.locate({2_layer, 5_expert});
  EXPECT_LT(home, 9);
  EXPECT_EQ(pages.slot(home).generation, 1U);  // an expert has moved into this slot

  // The oldest of a full pool, and still protected from other prefetches.
  const std::vector<std::int32_t> others{1, 2};
  const routing_view before{.layer = 2_layer, .experts = others};
  ASSERT_EQ(pages.plan(before, plan), status::ok);
  ASSERT_EQ(pages.commit(plan), status::ok);
  const std::vector<prefetch_request> another{{{2_layer, 7_expert}, 1, 1.0F}};
  ASSERT_EQ(pages.plan_prefetch({}, another, plan), status::ok);
  for (const auto& f : plan.fills()) EXPECT_NE(f.victim, (expert_key{2_layer, 5_expert}));
  ASSERT_EQ(pages.abort(plan), status::ok);

  const std::vector<std::int32_t> ids{5, 5};
  const routing_view view{.layer = 2_layer, .step = 1, .experts = ids};
  ASSERT_EQ(pages.plan(view, plan), status::ok);
  ASSERT_EQ(pages.commit(plan), status::ok);
  EXPECT_EQ(pages.stats().prefetch_hits, 1U);
}

}  // namespace
}  // namespace hotset::pager_compact_test
