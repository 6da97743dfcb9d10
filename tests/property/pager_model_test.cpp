// SPDX-License-Identifier: Apache-2.0
// Random sequences of everything that may happen to an LRU pager, told to it and to a naive model.

#include <algorithm>
#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "naive_groups.hpp"
#include "pager_walk.hpp"
#include "random_source.hpp"

namespace hotset::pager_model_test {
namespace {

/// Event-atomic LRU of one pool, with lists of keys and no slots.
struct pool_model {
  std::int32_t capacity = 0;
  std::list<expert_key> order{};  // oldest first
  std::set<expert_key> pinned{};
  std::set<expert_key> filling{};

  [[nodiscard]] bool holds(expert_key k) const {
    return std::ranges::find(order, k) != order.end();
  }
  [[nodiscard]] std::size_t free() const {
    return static_cast<std::size_t>(capacity) - order.size();
  }
  [[nodiscard]] bool may_go(expert_key k) const {
    return pinned.count(k) == 0 && filling.count(k) == 0;
  }
  [[nodiscard]] std::vector<expert_key> eligible(const std::set<expert_key>& spared) const {
    std::vector<expert_key> out;
    for (const auto k : order)
      if (may_go(k) && spared.count(k) == 0) out.push_back(k);
    return out;
  }
  void drop(expert_key k) {
    order.remove(k);
    filling.erase(k);
  }
};

class pager_model {
 public:
  pager_model(const pool_layout& layout, support::random_source& random)
      : layout_(layout), random_(random), walk_({.layout = layout}), pools_(layout.pools()) {
    for (std::size_t p = 0; p < pools_.size(); ++p)
      pools_[p].capacity = layout.at(static_cast<pool_id>(p)).slots;
  }

  void visit() {
    layer_ = layer_id{random_.id_below(shape().layers)};
    if (random_.one_in(3)) ++step_;
    const auto k = static_cast<std::size_t>(shape().top_k);
    const auto tokens = 1 + random_.below(static_cast<std::uint64_t>(shape().max_tokens_per_visit));
    ids_.resize(tokens * k);
    for (auto& id : ids_)
      id = random_.one_in(12) ? no_expert : expert_id{random_.id_below(shape().experts)};
    auto& pool = pool_of(layer_);
    const auto all = distinct(ids_);
    const auto missing = misses(pool, all);
    support::token_lists groups;
    if (missing.size() <= pool.eligible(all).size() + pool.free()) {
      groups.emplace_back();
      for (std::uint32_t t = 0; t < tokens; ++t) groups[0].push_back(t);
    } else {
      groups =
          support::naive_groups(ids_, k, pool.eligible({}).size() + pool.free(), [&](expert_id e) {
            return e >= 0 && (!pool.holds({layer_, e}) || pool.may_go({layer_, e}));
          });
    }
    auto& p = walk_.decisions;
    auto planned = p.plan(walk_.view(step_, layer_, ids_), walk_.plan);
    if (under_way_ != nullptr) {  // an aborted group left groups behind it
      ASSERT_EQ(planned, status::visit_unfinished);
      p.abandon();
      planned = p.plan(walk_.view(step_, layer_, ids_), walk_.plan);
    }
    under_way_ = nullptr;
    if (groups.empty()) {
      ASSERT_EQ(planned, status::no_victim);
      return;
    }
    for (std::size_t g = 0; g < groups.size(); ++g) {
      ASSERT_EQ(planned, status::ok) << describe(planned);
      ASSERT_EQ(walk_.plan.groups(), groups.size());
      if (groups.size() > 1) {
        ASSERT_TRUE(std::ranges::equal(walk_.plan.tokens(), groups[g]));
      }
      std::vector<expert_id> of_group;
      for (const auto t : groups[g])
        of_group.insert(of_group.end(), ids_.begin() + static_cast<std::ptrdiff_t>(t * k),
                        ids_.begin() + static_cast<std::ptrdiff_t>(t * k + k));
      const auto u = distinct(of_group);
      const auto wanted = misses(pool, u);
      auto victims = pool.eligible(u);
      victims.resize(wanted.size() - std::min(wanted.size(), pool.free()));
      check_plan(u, wanted, victims);
      if (testing::Test::HasFatalFailure()) return;
      if (random_.one_in(6)) {
        abort();
        return;
      }
      ASSERT_EQ(p.commit(walk_.plan), status::ok);
      under_way_ = g + 1 < groups.size() ? &pool : nullptr;
      if (g == 0) {
        accesses += all.size();
        hits += all.size() - missing.size();
      }
      fills += wanted.size();
      for (const auto v : victims) pool.drop(v);
      for (auto at = of_group.begin(); at != of_group.end(); ++at) {
        if (*at < 0 || std::find(at + 1, of_group.end(), *at) != of_group.end()) continue;
        pool.order.remove({layer_, *at});
        pool.order.push_back({layer_, *at});
        pool.filling.erase({layer_, *at});
      }
      check();
      if (g + 1 < groups.size()) planned = p.plan_next(walk_.plan);
    }
  }

  void prefetch() {
    visit_context context;
    context.step = step_;
    const std::vector<prefetch_request> requests{
        {{layer_id{random_.id_below(shape().layers)}, expert_id{random_.id_below(shape().experts)}},
         step_}};
    const auto key = requests[0].key;
    auto& pool = pool_of(key.layer);
    ASSERT_EQ(walk_.decisions.plan_prefetch(context, requests, walk_.plan), status::ok);
    const std::vector<fill> made(walk_.plan.fills().begin(), walk_.plan.fills().end());
    const bool room = pool.filling.size() + static_cast<std::size_t>(shape().top_k) <
                      static_cast<std::size_t>(pool.capacity);
    if (made.empty()) {
      // Outstanding requests may spare every slot; otherwise there must have been a reason.
      ASSERT_TRUE(pool.holds(key) || !room || pool.free() == 0 || under_way_ == &pool);
    } else {
      ASSERT_FALSE(pool.holds(key));
      ASSERT_TRUE(room);
      ASSERT_NE(under_way_, &pool) << "its groups need the slots";
      ASSERT_EQ(made[0].victim == no_key, pool.free() != 0);
    }
    if (random_.one_in(5)) {
      abort();
      return;
    }
    ASSERT_EQ(walk_.decisions.commit(walk_.plan), status::ok);
    for (const auto& f : made) {
      if (f.victim != no_key) {
        ASSERT_TRUE(pool.may_go(f.victim));
        pool.drop(f.victim);
      }
      pool.order.push_back(f.key);
      pool.filling.insert(f.key);
      copies_.push_back(f);
    }
    check();
  }
  /// Some copy ends, well or badly; perhaps one whose slot was reused long ago.
  void end_copy() {
    if (copies_.empty()) return;
    const auto at = random_.below(copies_.size());
    const auto f = copies_[at];
    copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(at));
    auto& pool = pool_of(f.key.layer);
    if (random_.one_in(3)) {
      const bool same = walk_.decisions.slot(f.slot).generation == f.generation &&
                        walk_.decisions.slot(f.slot).state != slot_state::free;
      walk_.decisions.failed(f.slot, f.generation);
      if (same) {
        pool.drop(f.key);
        pool.pinned.erase(f.key);
      }
    } else {
      const bool same = walk_.decisions.slot(f.slot).generation == f.generation;
      walk_.decisions.arrived(f.slot, f.generation);
      if (same) pool.filling.erase(f.key);
    }
    check();
  }
  void pin_or_unpin() {
    auto& pool = pools_[random_.below(pools_.size())];
    if (!pool.pinned.empty() && random_.one_in(2)) {
      support::unpin(walk_.decisions, walk_.decisions.locate(*pool.pinned.begin()));
      pool.pinned.erase(pool.pinned.begin());
    } else if (!pool.order.empty() && pool.filling.count(pool.order.back()) == 0 &&
               pool.pinned.size() < 3 && pool.pinned.insert(pool.order.back()).second) {
      walk_.decisions.pin(walk_.decisions.locate(pool.order.back()));
    }
    check();
  }
  void invalidate() {
    const expert_key key{layer_id{random_.id_below(shape().layers)},
                         expert_id{random_.id_below(shape().experts)}};
    auto& pool = pool_of(key.layer);
    const bool free_to_go = !pool.holds(key) || pool.may_go(key);
    ASSERT_EQ(walk_.decisions.invalidate(key), free_to_go ? status::ok : status::busy);
    if (free_to_go) pool.drop(key);
    check();
  }
  void trim() {
    const auto p = random_.below(pools_.size());
    auto& pool = pools_[p];
    visit_context context;
    context.pool = static_cast<pool_id>(p);
    context.layer = layout_.at(context.pool).layers.front();
    const auto keep = random_.below(pool.order.size() + 1);
    auto gone = pool.eligible({});
    gone.resize(std::min(gone.size(), pool.order.size() - keep));
    ASSERT_EQ(walk_.decisions.trim(context, keep, {}), gone.size());
    for (const auto k : gone) pool.drop(k);
    check();
  }
  void resize() {
    const layer_id layer{random_.id_below(shape().layers)};
    auto& pool = pool_of(layer);
    const auto most =
        std::int32_t{shape().experts} *
        static_cast<std::int32_t>(layout_.at(layout_.pool_of_layer(layer)).layers.size());
    const auto to = shape().top_k + random_.id_below(most - shape().top_k + 1);
    std::int32_t claimed = 0;
    for (const auto& other : pools_) claimed += other.capacity;
    const auto got = walk_.decisions.set_quota(layer, to);
    if (got == status::visit_unfinished) return;  // an aborted group left a visit under way
    if (to > pool.capacity) {
      const bool fits = claimed - pool.capacity + to <= static_cast<std::int32_t>(layout_.slots());
      ASSERT_EQ(got, fits ? status::ok : status::exceeds_memory);
      if (fits) pool.capacity = to;
    } else {
      auto gone = pool.eligible({});
      const auto surplus = static_cast<std::size_t>(pool.capacity - to);
      const auto needed = surplus - std::min(surplus, pool.free());
      ASSERT_EQ(got, needed <= gone.size() ? status::ok : status::busy);
      if (got == status::ok) {
        gone.resize(needed);
        for (const auto k : gone) pool.drop(k);
        pool.capacity = to;
      }
    }
    check();
  }
  /// Every slot of every quota can be used: none was lost, none is owned twice.
  void fill_up() {
    for (std::size_t p = 0; p < pools_.size(); ++p) {
      while (!pools_[p].pinned.empty()) {
        support::unpin(walk_.decisions, walk_.decisions.locate(*pools_[p].pinned.begin()));
        pools_[p].pinned.erase(pools_[p].pinned.begin());
      }
    }
    while (!copies_.empty()) end_copy();
    const auto before = walk_.stats().evictions;
    walk_.decisions.abandon();
    for (std::size_t p = 0; p < pools_.size(); ++p) {
      auto& pool = pools_[p];
      for (const auto l : layout_.at(static_cast<pool_id>(p)).layers)
        for (expert_id e{}; e < shape().experts && pool.free() != 0; ++e) {
          if (pool.holds({l, e})) continue;
          std::vector<expert_id> token(static_cast<std::size_t>(shape().top_k), no_expert);
          token[0] = e;
          walk_.visit(step_, l, token);
          pool.order.push_back({l, e});
          ++accesses;
          ++fills;
        }
      ASSERT_EQ(pool.free(), 0U);
    }
    ASSERT_EQ(walk_.stats().evictions, before);
    check();
  }
  void check() {
    ASSERT_NO_FATAL_FAILURE(support::expect_consistent(walk_.decisions));
    std::vector<expert_key> order;
    for (const auto& pool : pools_) {
      const auto eligible = pool.eligible({});
      order.insert(order.end(), eligible.begin(), eligible.end());
    }
    ASSERT_EQ(walk_.decisions.residents(), order);
    for (std::size_t k = 0; k < shape().keys(); ++k) {
      const auto key = shape().key(k);
      const auto& pool = pool_of(key.layer);
      ASSERT_EQ(walk_.decisions.locate(key) != no_slot, pool.holds(key))
          << key.layer << ' ' << key.expert;
      ASSERT_EQ(walk_.decisions.row(key.layer)[static_cast<std::size_t>(key.expert)] != -1,
                pool.holds(key) && pool.filling.count(key) == 0);
    }
    const auto s = walk_.stats();
    ASSERT_EQ(s.accesses, accesses);
    ASSERT_EQ(s.hits, hits);
    ASSERT_EQ(s.fills, fills);
  }

  std::uint64_t accesses = 0;
  std::uint64_t hits = 0;
  std::uint64_t fills = 0;

 private:
  [[nodiscard]] const geometry& shape() const { return layout_.shape(); }
  pool_model& pool_of(layer_id l) {
    return pools_[static_cast<std::size_t>(layout_.pool_of_layer(l))];
  }
  [[nodiscard]] std::set<expert_key> distinct(const std::vector<expert_id>& ids) const {
    std::set<expert_key> out;
    for (const auto id : ids)
      if (id >= 0) out.insert({layer_, id});
    return out;
  }
  static std::vector<expert_key> misses(const pool_model& pool, const std::set<expert_key>& keys) {
    std::vector<expert_key> out;
    for (const auto k : keys)
      if (!pool.holds(k)) out.push_back(k);
    return out;
  }
  void check_plan(const std::set<expert_key>& u, const std::vector<expert_key>& wanted,
                  const std::vector<expert_key>& victims) {
    const auto& plan = walk_.plan;
    ASSERT_EQ(plan.experts().size(), u.size());
    std::set<slot_id> slots(plan.slots().begin(), plan.slots().end());
    ASSERT_EQ(slots.size(), u.size()) << "two experts share a slot";
    ASSERT_EQ(slots.count(no_slot), 0U);
    std::set<expert_key> filled;
    std::vector<expert_key> given_up;
    for (const auto& f : plan.fills()) {
      filled.insert(f.key);
      if (f.victim != no_key) given_up.push_back(f.victim);
      ASSERT_EQ(u.count(f.victim), 0U) << "a visit evicts its own expert";
      ASSERT_EQ(walk_.decisions.locate(f.key), no_slot);
    }
    ASSERT_EQ(filled, std::set<expert_key>(wanted.begin(), wanted.end()));
    ASSERT_EQ(given_up, victims);
    for (const auto v : victims)
      ASSERT_EQ(walk_.decisions.row(v.layer)[static_cast<std::size_t>(v.expert)], -1);
  }
  void abort() {
    std::vector<std::uint8_t> started;
    for (const auto& f : walk_.plan.fills()) {
      started.push_back(random_.one_in(3) ? 1 : 0);
      if (started.back() != 0 && f.victim != no_key) pool_of(f.victim.layer).drop(f.victim);
    }
    ASSERT_EQ(walk_.decisions.abort(walk_.plan, started), status::ok);
    check();
  }

  pool_layout layout_;
  support::random_source& random_;
  support::pager_walk<> walk_;
  std::vector<pool_model> pools_;
  std::vector<fill> copies_{};
  std::vector<expert_id> ids_{};
  /// Pool of a visit that an aborted group left with groups to come.
  const void* under_way_ = nullptr;
  layer_id layer_{};
  step_id step_ = 0;
};

TEST(pager_property, agrees_with_a_naive_model_after_every_operation) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    support::random_source random(seed);
    const geometry shape{.layers = 1 + random.id_below(3),
                         .experts = 5 + random.id_below(6),
                         .top_k = 1 + random.id_below(3),
                         .max_tokens_per_visit = 1 + random.id_below(5)};
    const auto slots = shape.top_k + random.id_below(6);
    const auto layout = random.one_in(2) ? pool_layout::shared(shape, slots).value()
                                         : pool_layout::per_layer(shape, slots).value();
    pager_model model(layout, random);
    for (int n = 0; n < 250; ++n) {
      switch (random.below(12)) {
        case 0: model.prefetch(); break;
        case 1: model.end_copy(); break;
        case 2: model.pin_or_unpin(); break;
        case 3: random.one_in(2) ? model.invalidate() : model.trim(); break;
        case 4: model.resize(); break;
        default: model.visit();
      }
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "after operation " << n;
    }
    model.fill_up();
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    EXPECT_GT(model.accesses, 0U);
  }
}

// The stack property: with visits that fit, what a smaller LRU holds, a larger one holds too.
TEST(pager_property, lru_misses_never_rise_with_more_slots) {
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const geometry shape{.layers = 3, .experts = 10, .top_k = 2, .max_tokens_per_visit = 3};
    std::uint64_t fewer = ~std::uint64_t{0};
    for (std::int64_t slots = 6; slots <= 30; ++slots) {
      support::random_source random(seed);
      support::pager_walk w({.layout = pool_layout::shared(shape, slots).value()});
      for (step_id step = 0; step < 25; ++step)
        for (const auto l : each<layer_id>(3)) {
          std::vector<std::int32_t> ids(2 * (1 + random.below(3)));
          for (auto& id : ids) id = random.id_below(1 + random.id_below(10));
          w.visit(step, l, ids);
        }
      ASSERT_EQ(w.stats().split_visits, 0U);
      ASSERT_LE(w.stats().misses, fewer) << slots << " slots";
      fewer = w.stats().misses;
    }
  }
}

}  // namespace
}  // namespace hotset::pager_model_test
