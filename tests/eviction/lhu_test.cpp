// SPDX-License-Identifier: Apache-2.0
#include "hotset/eviction/lhu.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "naive_policies.hpp"
#include "random_source.hpp"
#include "reference_policies.hpp"
#include "single_uses.hpp"

namespace hotset::lhu_test {
namespace {

using reference::hand_walk;
using reference::shared;
using support::slot_ids;

void hit(hand_walk<lhu>& w, slot_id slot, expert_key key, precision_id precision) {
  auto a = w.about(slot, key);
  a.precision = precision;
  support::hit(w.policy, a);
}

TEST(lhu, uses_at_a_lower_precision_count_nothing_but_move_the_key) {
  hand_walk<lhu> w(shared(1, 3));
  w.begin(0, 0);
  w.fill_from(4, 3);
  for (step_id s = 1; s < 4; ++s) {
    w.begin(s, 0);
    hit(w, 0_slot, {0_layer, 4_expert}, 1_precision);
  }
  EXPECT_EQ(w.order(4, 0), slot_ids({1, 2, 0}));  // one use each; 0 is the most recent
  w.begin(4, 0);
  w.hit(1);
  EXPECT_EQ(w.order(5, 0), slot_ids({2, 0, 1}));
}

// A use at a lower precision counts 0.
TEST(lhu, agrees_with_its_naive_form) {
  constexpr std::int32_t layers = 3;
  constexpr std::size_t count = 40;  // enough for buckets
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    const auto layout =
        pool_layout::shared({.layers = layers, .experts = 32, .top_k = 2}, count).value();
    lhu policy(layout);
    reference::policy naive(layout.shape(), reference::by_whole_count());
    slot_mask eligible(count);
    std::map<expert_key, slot_id> where;
    for (step_id n = 0; n < 800; ++n) {
      expert_use a;
      a.key = {static_cast<layer_id>(n % layers),
               expert_id{random.id_below(1 + random.id_below(32))}};
      a.step = n / layers;
      a.precision = static_cast<precision_id>(random.below(3));
      support::begin_visit(policy, a.step, a.key.layer);
      const visit_context context{a.key.layer, 0_pool, a.step, n, request_class::decode};
      const auto order = naive.order(context, eligible);
      std::vector<slot_id> got(where.size());
      ASSERT_EQ(policy.select_victims(context, eligible, got), where.size());
      ASSERT_EQ(got, order);
      auto told = a;
      told.repeated = a.precision != 0;
      if (const auto found = where.find(a.key); found != where.end()) {
        a.slot = told.slot = found->second;
        support::hit(policy, a);
        naive.on_hit(told);
        continue;
      }
      if (random.one_in(6)) {
        support::bypass(policy, a);
        naive.on_bypass(a);
        continue;
      }
      a.slot = where.size() == count ? order.front() : static_cast<slot_id>(where.size());
      if (where.size() == count) {
        const auto old = std::ranges::find(where, a.slot, [](const auto& w) { return w.second; });
        policy.on_evict(a.slot, old->first);
        naive.on_evict(a.slot, old->first);
        where.erase(old);
      }
      told.slot = a.slot;
      a.speculative = told.speculative = random.one_in(5);
      support::bring(policy, a);
      naive.on_fill(told);
      where[a.key] = a.slot;
      eligible.set(a.slot);
    }
  }
}

}  // namespace
}  // namespace hotset::lhu_test
