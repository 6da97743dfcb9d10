// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hotset/eviction/lru.hpp"
#include "hotset/miss/fetch_lowest.hpp"
#include "hotset/paging/pager_parts.hpp"
#include "pager_walk.hpp"
#include "random_source.hpp"

namespace hotset::removals_test {
namespace {

using support::key_of;
using support::pager_walk;
using testing::ElementsAre;

const geometry shape{.layers = 2, .experts = 8, .top_k = 2, .max_tokens_per_visit = 3};

/// Bytes stored by key: copied and not yet released. A released copy must be in it.
struct kept_bytes {
  std::multiset<std::pair<expert_key, precision_id>> keys;
  std::vector<removal> told;

  removal_listener sink() {
    return {[](void* who, const removal& of) noexcept {
              auto& self = *static_cast<kept_bytes*>(who);
              const auto found = self.keys.find({of.key, of.precision});
              EXPECT_NE(found, self.keys.end()) << "expert " << of.key.expert;
              if (found != self.keys.end()) self.keys.erase(found);
              self.told.push_back(of);
            },
            this};
  }
  void copy(std::span<const fill> fills) {
    for (const auto& f : fills) keys.insert({f.key, f.precision});
  }
};

TEST(removals, an_eviction_is_reported_at_the_commit_with_its_last_reader) {
  kept_bytes kept;
  pager_walk w({.layout = pool_layout::shared(shape, 2).value(), .removals = kept.sink()});
  ASSERT_EQ(w.try_plan(0, 0, {0, 1}), status::ok);
  kept.copy(w.plan.fills());
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  const auto slot = w.decisions.locate(key_of(0, 0));
  w.decisions.unpin(w.decisions.pin(slot), 77);
  ASSERT_EQ(w.try_plan(1, 0, {2, 1}), status::ok);
  EXPECT_TRUE(kept.told.empty()) << "the plan may yet be aborted";
  kept.copy(w.plan.fills());
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  ASSERT_EQ(kept.told.size(), 1U);
  EXPECT_EQ(kept.told[0].key, key_of(0, 0));
  EXPECT_EQ(kept.told[0].slot, slot);
  EXPECT_EQ(kept.told[0].last_reader, 77U);
}

TEST(removals, an_abandoned_copy_is_reported_with_its_victim) {
  kept_bytes kept;
  pager_walk w({.layout = pool_layout::shared(shape, 2).value(), .removals = kept.sink()});
  ASSERT_EQ(w.try_plan(0, 0, {0, 1}), status::ok);
  kept.copy(w.plan.fills());
  ASSERT_EQ(w.decisions.commit(w.plan), status::ok);
  ASSERT_EQ(w.try_plan(1, 0, {2, 3}), status::ok);
  kept.copy(w.plan.fills().first(1));
  ASSERT_EQ(w.decisions.abort(w.plan, std::vector<std::uint8_t>{1, 0}), status::ok);
  ASSERT_EQ(kept.told.size(), 2U);
  EXPECT_EQ(kept.told[0].key, key_of(0, 0));
  EXPECT_EQ(kept.told[1].key, key_of(0, 2));
  EXPECT_EQ(kept.keys.size(), 1U);
}

/// After any call, the copies not yet released are those that the pager locates.
template <class Pager>
void walk(const pool_layout& layout, std::uint64_t seed) {
  support::random_source random(seed);
  kept_bytes kept;
  pager_walk<Pager> w({.layout = layout, .removals = kept.sink()});
  auto& pages = w.decisions;
  std::vector<fill> under_way;
  const auto context_of = [&](layer_id layer) {
    return visit_context{.layer = layer, .pool = layout.pool_of_layer(layer)};
  };
  for (step_id step = 0; step < 3000; ++step) {
    const auto layer = static_cast<layer_id>(random.below(2));
    const expert_key key{layer, static_cast<expert_id>(random.below(8))};
    switch (random.below(9)) {
      case 0: (void)pages.invalidate(key); break;
      case 1:
        if (random.below(4) == 0) (void)pages.invalidate(layer);
        break;
      case 2: (void)pages.set_quota(layer, static_cast<std::int32_t>(2 + random.below(4))); break;
      case 3: pages.trim(context_of(layer), random.below(200), {}); break;
      case 4:
        pages.pre_evict(context_of(layer), random.below(3), {}, [](slot_id, expert_key) {});
        break;
      case 5: {
        const prefetch_request wanted{.key = key};
        ASSERT_EQ(pages.plan_prefetch(context_of(layer), {&wanted, 1}, w.plan), status::ok);
        kept.copy(w.plan.fills());
        under_way.insert(under_way.end(), w.plan.fills().begin(), w.plan.fills().end());
        ASSERT_EQ(pages.commit(w.plan), status::ok);
        break;
      }
      case 6:
        for (const auto& f : std::exchange(under_way, {})) {
          const auto how = random.below(3);
          if (how == 0) pages.arrived(f.slot, f.generation);
          if (how == 1) pages.cancelled(f.slot, f.generation);
          if (how == 2) pages.failed(f.slot, f.generation);
        }
        break;
      default: {
        std::vector<std::int32_t> ids(2 * (1 + random.below(3)));
        for (auto& id : ids) id = static_cast<std::int32_t>(random.below(8));
        auto planned = w.try_plan(step, layer, ids);
        while (planned == status::ok) {
          if (random.below(5) == 0) {
            std::vector<std::uint8_t> begun(w.plan.fills().size());
            for (std::size_t i = 0; i < begun.size(); ++i)
              if ((begun[i] = random.below(2) == 0)) kept.copy(w.plan.fills().subspan(i, 1));
            ASSERT_EQ(pages.abort(w.plan, begun), status::ok);
            if (pages.is_unfinished(w.plan)) pages.abandon();
            break;
          }
          kept.copy(w.plan.fills());
          ASSERT_EQ(pages.commit(w.plan), status::ok);
          if (!w.plan.more()) break;
          planned = pages.plan_next(w.plan);
          if (planned != status::ok) pages.abandon();
        }
      }
    }
    std::multiset<std::pair<expert_key, precision_id>> located;
    for (const auto l : each<layer_id>(2))
      for (const auto e : each<expert_id>(8))
        if (const auto slot = pages.locate({l, e}); slot != no_slot)
          located.insert({{l, e}, pages.precision_of(slot)});
    ASSERT_EQ(kept.keys, located) << "step " << step;
  }
  EXPECT_GT(kept.told.size(), 500U);
}

TEST(removals, copies_without_a_removal_are_the_located_ones) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    walk<pager<lru>>(pool_layout::shared(shape, 5).value(), seed);
    walk<pager<lru>>(pool_layout::per_layer(shape, 4).value(), seed);
  }
}
TEST(removals, each_copy_of_several_precisions_is_reported) {
  auto of_two = shape;
  of_two.expert_bytes = {40};
  of_two.lower_precisions = {{20}};
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    walk<pager<lru, always, fetch_lowest>>(
        pool_layout::shared_by_precision(of_two, std::vector<std::int64_t>{3, 3}).value(), seed);
}

}  // namespace
}  // namespace hotset::removals_test
