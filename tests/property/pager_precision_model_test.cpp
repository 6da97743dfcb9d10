// SPDX-License-Identifier: Apache-2.0
// Random operations on a pager of several precisions with a miss policy, under several eviction policies: every plan
// is recomputed from the pager's visible state.

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/eviction/fifo.hpp"
#include "hotset/eviction/furthest_layer.hpp"
#include "hotset/eviction/gate_score.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lfru.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lhu.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/popularity.hpp"
#include "hotset/eviction/protect_hot.hpp"
#include "naive_groups.hpp"
#include "pager_walk.hpp"
#include "random_source.hpp"
#include "scripted_miss.hpp"

namespace hotset::pager_precision_model_test {
namespace {

using support::random_source;
using support::scripted_miss;

/// A ladder of one to three precisions, shared by the layers or per layer.
pool_layout random_layout(random_source& random) {
  const auto precisions = 1 + random.below(3);
  const bool shared = random.one_in(2);
  geometry shape{.layers = 1 + random.id_below(shared ? 3 : 2),
                 .experts = 12 + random.id_below(3),
                 .top_k = 1 + random.id_below(3),
                 .max_tokens_per_visit = 1 + random.id_below(4),
                 .expert_bytes = {100},
                 .lower_precisions = {}};
  for (std::size_t p = 1; p < precisions; ++p) shape.lower_precisions.push_back({100 - 30 * p});
  std::vector<std::int64_t> slots;
  for (std::size_t p = 0; p < precisions; ++p)
    slots.push_back(1 + static_cast<std::int64_t>(random.below(3)));
  while (std::accumulate(slots.begin(), slots.end(), std::int64_t{0}) < shape.top_k) ++slots[0];
  return shared ? pool_layout::shared_by_precision(shape, slots).value()
                : pool_layout::per_layer_by_precision(shape, slots).value();
}

template <class Eviction>
class precision_model {
 public:
  using pager_type = pager<Eviction, always, scripted_miss>;

  /// `ordered`: the policy's order depends on neither layer nor step.
  precision_model(const pool_layout& layout, typename Eviction::config eviction, bool ordered,
                  random_source& random)
      : layout_(layout),
        ordered_(ordered),
        random_(random),
        walk_({.layout = layout,
               .eviction = eviction,
               .miss = {&script_},
               .guard = static_cast<prefetch_guard>(random.below(3))}) {}

  void visit() {
    choose_visit();
    const auto before = look();
    choose_decisions(before);
    script_.asked.clear();
    script_.observed.clear();
    const auto routed = effective();
    const auto planned =
        walk_.decisions.plan(walk_.view(step_, layer_, ids_, weights_), walk_.plan);
    ASSERT_NO_FATAL_FAILURE(check_question(before));
    const auto whole = predict(before, routed, true);
    if (whole.fits) {
      ASSERT_EQ(planned, status::ok) << describe(planned);
      ASSERT_EQ(walk_.plan.groups(), 1U);
      ASSERT_NO_FATAL_FAILURE(check_plan(before, whole));
      if (random_.one_in(6)) return abort(before);
      ASSERT_NO_FATAL_FAILURE(commit(before));
      count_visit(before, routed);
      for (const auto& f : whole.fills) upgrades_ += before.at(f.expert) != no_slot ? 1U : 0U;
    } else {
      const auto groups = support::naive_groups(
          routed, static_cast<std::size_t>(shape().top_k), room_of_all(before), [&](expert_id e) {
            return e >= 0 && !on_host(e) &&
                   (before.at(e) == no_slot || before.may_go(before.at(e)));
          });
      ASSERT_EQ(planned, groups.empty() ? status::no_victim : status::ok) << describe(planned);
      if (groups.empty()) return check_unchanged(before);
      ASSERT_EQ(walk_.plan.groups(), groups.size());
      if (random_.one_in(6)) return abort(before);
      ASSERT_NO_FATAL_FAILURE(visit_groups(before, routed, groups));
      count_visit(before, routed);
    }
    ASSERT_EQ(script_.observed.size(), 1U);
    ASSERT_EQ(script_.observed[0], weights_);
    check();
  }

  void prefetch() {
    std::vector<prefetch_request> requests(
        1 + random_.below(std::min<std::size_t>(3, walk_.plan.capacity())));
    for (auto& r : requests)
      r = {random_key(), step_ + random_.below(3), static_cast<float>(random_.below(4)) / 4.0F};
    script_.prefetched = static_cast<precision_id>(random_.below(4));
    const visit_context context{.layer = layer_id{random_.id_below(shape().layers)}, .step = step_};
    std::vector<float> scores(2 * static_cast<std::size_t>(shape().experts) *
                              (1 + random_.below(2)));
    for (auto& x : scores) x = static_cast<float>(random_.below(4)) / 4.0F;
    walk_.decisions.expect(context, {.probabilities = scores, .depth = 2});
    const auto before = look();
    auto& p = walk_.decisions;
    const auto most = random_.one_in(4) ? random_.below(2) : 9;
    ASSERT_EQ(p.plan_prefetch(context, requests, walk_.plan, most), status::ok);
    const std::size_t planned = walk_.plan.fills().size();
    ASSERT_LE(planned, most);
    std::set<std::uint32_t> answered(walk_.plan.deferred().begin(), walk_.plan.deferred().end());
    for (std::size_t i = 0; i < planned; ++i) {
      const auto& f = walk_.plan.fills()[i];
      ASSERT_EQ(f.key, requests[walk_.plan.request_of(i)].key);
      ASSERT_TRUE(answered.insert(walk_.plan.request_of(i)).second);
      ASSERT_EQ(before.where[shape().index(f.key)], no_slot);
      ASSERT_EQ(f.precision, std::min(index_of(script_.prefetched), layout_.precisions() - 1));
      ASSERT_EQ(p.precision_of(f.slot), f.precision);
      if (f.victim != no_key) {
        ASSERT_EQ(before.where[shape().index(f.victim)], f.slot);
        ASSERT_TRUE(before.may_go(f.slot));
      }
    }
    for (std::size_t i = 0; i < requests.size(); ++i)
      if (answered.count(static_cast<std::uint32_t>(i)) == 0) {
        bool earlier = before.where[shape().index(requests[i].key)] != no_slot;
        for (std::size_t j = 0; j < i; ++j) earlier = earlier || requests[j].key == requests[i].key;
        ASSERT_TRUE(earlier) << "a request has neither a copy nor a place in the list";
      }
    if (random_.one_in(5)) return abort(before);
    if (random_.one_in(4)) {
      p.keep_first(walk_.plan, random_.below(planned + 1));
      ASSERT_LE(walk_.plan.deferred().size(), requests.size());
      ASSERT_TRUE(std::ranges::is_sorted(walk_.plan.deferred()));
    }
    const std::vector<fill> made(walk_.plan.fills().begin(), walk_.plan.fills().end());
    ASSERT_EQ(p.commit(walk_.plan), status::ok);
    ASSERT_NO_FATAL_FAILURE(check_places(before, made));
    for (const auto& f : made) {
      prefetched_ += bytes_of(f);
      copies_.push_back(f);
    }
    if (!made.empty()) check_room_for_demand(made.back().key.layer);
    check();
  }
  /// A copy ends or fails; its slot may have been reused long ago.
  void end_copy() {
    if (copies_.empty()) return;
    const auto n = random_.below(copies_.size());
    const auto f = copies_[n];
    copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(n));
    auto& p = walk_.decisions;
    auto expected = look().where;
    const auto entry = p.slot(f.slot);
    const bool same = entry.generation == f.generation && entry.state != slot_state::free;
    switch (random_.below(3)) {
      case 0:
        p.failed(f.slot, f.generation);
        if (same) {
          expected[shape().index(f.key)] = no_slot;
          pinned_.erase(f.slot);
        }
        break;
      case 1:
        p.cancelled(f.slot, f.generation);
        if (same && entry.state == slot_state::filling) {
          expected[shape().index(f.key)] = no_slot;
          cancelled_ += bytes_of(f);
        }
        break;
      default: p.arrived(f.slot, f.generation);
    }
    ASSERT_EQ(look().where, expected);
    check();
  }
  void pin_or_unpin() {
    auto& p = walk_.decisions;
    if (!pinned_.empty() && random_.one_in(2)) {
      support::unpin(p, *pinned_.begin());
      pinned_.erase(pinned_.begin());
    } else if (const auto slot = p.locate(random_key());
               slot != no_slot && pinned_.size() < 3 &&
               p.slot(slot).state == slot_state::resident && pinned_.insert(slot).second) {
      p.pin(slot);
    }
    check();
  }
  void invalidate() {
    auto expected = look();
    const auto key = random_key();
    const bool whole_layer = random_.one_in(4);
    bool busy = false;
    std::vector<std::size_t> gone;
    for (const auto e : each<expert_id>(shape().experts)) {
      const expert_key k{key.layer, e};
      const auto slot = expected.where[shape().index(k)];
      if (slot == no_slot || (!whole_layer && k != key)) continue;
      busy = busy || !expected.may_go(slot);
      gone.push_back(shape().index(k));
    }
    const auto got =
        whole_layer ? walk_.decisions.invalidate(key.layer) : walk_.decisions.invalidate(key);
    ASSERT_EQ(got, busy ? status::busy : status::ok);
    if (!busy)
      for (const auto k : gone) expected.where[k] = no_slot;
    ASSERT_EQ(look().where, expected.where);
    check();
  }
  void trim() {
    const auto p = static_cast<pool_id>(random_.below(layout_.pools()));
    const visit_context context{.layer = layout_.at(p).layers.front(), .pool = p, .step = step_};
    const auto before = look();
    const auto of_pool = keys_in(context.pool, before);
    const auto keep = random_.below(of_pool.size() + 1);
    const auto& pool = layout_.at(context.pool);
    const auto one = shape().bytes_of(pool.layers.front(), pool.precision);
    const auto may_go = before.order[static_cast<std::size_t>(context.pool)].size();
    ASSERT_EQ(walk_.decisions.trim(context, keep * one, {}),
              std::min(may_go, of_pool.size() - keep));
    const auto after = look();
    for (std::size_t k = 0; k < shape().keys(); ++k)
      if (std::ranges::find(of_pool, shape().key(k)) == of_pool.end()) {
        ASSERT_EQ(after.where[k], before.where[k]) << "another pool was trimmed";
      }
    check();
  }
  void resize() {
    const layer_id layer{random_.id_below(shape().layers)};
    const auto pool = layout_.pool_of_layer(layer);
    const auto to = shape().top_k + random_.id_below(4);
    const auto before = look();
    const auto free = quota(pool) - keys_in(pool, before).size();
    const auto old = quota(pool);
    const auto target = static_cast<std::size_t>(to);
    std::size_t unclaimed = 0;  // slots of the class minus its quotas
    for (const auto p : each<pool_id>(layout_.pools()))
      if (layout_.at(p).size_class == layout_.at(pool).size_class)
        unclaimed += static_cast<std::size_t>(layout_.at(p).slots) - quota(p);
    const auto got = walk_.decisions.set_quota(layer, to);
    if (target > old) {
      ASSERT_EQ(got, target - old <= unclaimed ? status::ok : status::exceeds_memory);
    } else {
      const auto may_go = before.order[static_cast<std::size_t>(pool)].size();
      ASSERT_EQ(got, old - target <= free + may_go ? status::ok : status::busy);
    }
    ASSERT_EQ(quota(pool), got == status::ok ? target : old);
    const auto after = look();
    for (std::size_t k = 0; k < shape().keys(); ++k)
      if (after.where[k] != before.where[k]) {
        ASSERT_EQ(after.where[k], no_slot);
        ASSERT_EQ(pool_of(shape().key(k), before.where[k]), pool);
      }
    check();
  }
  void warm() {
    std::vector<expert_key> keys(1 + random_.below(3));
    for (auto& k : keys) k = random_key();
    const auto before = look();
    ASSERT_EQ(walk_.decisions.plan_warm(keys, walk_.plan).code, status::ok);
    const std::vector<fill> made(walk_.plan.fills().begin(), walk_.plan.fills().end());
    for (const auto& f : made) {
      ASSERT_EQ(f.victim, no_key);
      ASSERT_EQ(f.precision, 0);
    }
    ASSERT_EQ(walk_.decisions.commit(walk_.plan), status::ok);
    ASSERT_NO_FATAL_FAILURE(check_places(before, made));
    for (const auto& f : made) {
      warm_ += bytes_of(f);
      walk_.decisions.arrived(f.slot, f.generation);
    }
    check();
  }
  /// Every slot of every quota can be used: none is lost, none has two owners.
  void fill_up() {
    for (const auto slot : pinned_) support::unpin(walk_.decisions, slot);
    pinned_.clear();
    for (const auto& f : copies_) walk_.decisions.arrived(f.slot, f.generation);
    copies_.clear();
    const auto evictions = walk_.stats().evictions;
    for (const auto p : each<pool_id>(layout_.pools()))
      for (const auto l : layout_.at(p).layers)
        for (expert_id e{}; e < shape().experts && keys_in(p, look()).size() < quota(p); ++e) {
          if (walk_.decisions.locate({l, e}) != no_slot) continue;
          script_.decisions = {{e, support::fetch_at(layout_.at(p).precision)}};
          walk_.visit(step_, l, std::vector<expert_id>(static_cast<std::size_t>(shape().top_k), e));
        }
    for (const auto p : each<pool_id>(layout_.pools()))
      ASSERT_EQ(keys_in(p, look()).size(), quota(p)) << "pool " << p;
    ASSERT_EQ(walk_.stats().evictions, evictions);
    support::expect_consistent(walk_.decisions);
  }

  /// Counts of visits, upgrades, low fills, split visits, dropped misses, bypasses, late and wasted prefetches.
  using tally = std::array<std::uint64_t, 8>;
  [[nodiscard]] tally seen() const {
    const auto s = walk_.stats();
    return {s.visits,         upgrades_,  low_fills_,        s.split_visits,
            s.dropped_misses, s.bypasses, s.late_prefetches, s.wasted_prefetches};
  }

 private:
  /// The visible state of a pager.
  struct picture {
    std::vector<slot_id> where{};                  ///< by key
    std::vector<slot_entry> slots{};               ///< by slot
    std::vector<std::vector<expert_key>> order{};  ///< by pool: evictable keys, in order
    layer_id layer{};
    std::size_t experts = 0;

    [[nodiscard]] slot_id at(expert_id e) const {
      return where[static_cast<std::size_t>(layer) * experts + static_cast<std::size_t>(e)];
    }
    [[nodiscard]] bool may_go(slot_id slot) const {
      const auto& entry = slots[static_cast<std::size_t>(slot)];
      return entry.state == slot_state::resident && entry.pins == 0;
    }
  };
  struct wanted_fill {
    expert_id expert = no_expert;
    precision_id wanted{};
    std::size_t end = 0;  ///< precisions from here on are not good enough
    float weight = 1.0F;
    std::size_t given = 0;
  };
  struct prediction {
    std::vector<expert_id> experts{};
    std::vector<service> services{};
    std::vector<wanted_fill> fills{};
    bool fits = false;
  };

  [[nodiscard]] const geometry& shape() const { return layout_.shape(); }
  [[nodiscard]] expert_key random_key() {
    return {layer_id{random_.id_below(shape().layers)},
            expert_id{random_.id_below(shape().experts)}};
  }
  [[nodiscard]] std::size_t quota(pool_id p) const {
    const auto& pool = layout_.at(p);
    return static_cast<std::size_t>(pool.precision == 0 ? walk_.decisions.quota(pool.layers.front())
                                                        : pool.slots);
  }
  [[nodiscard]] pool_id pool_of(expert_key k, slot_id slot) const {
    return layout_.pool_of(k.layer, walk_.decisions.precision_of(slot));
  }
  [[nodiscard]] std::uint64_t bytes_of(const fill& f) const {
    return shape().bytes_of(f.key.layer, f.precision);
  }
  [[nodiscard]] std::vector<expert_key> keys_in(pool_id pool, const picture& seen) const {
    std::vector<expert_key> out;
    for (std::size_t k = 0; k < shape().keys(); ++k)
      if (seen.where[k] != no_slot && pool_of(shape().key(k), seen.where[k]) == pool)
        out.push_back(shape().key(k));
    return out;
  }
  /// Slots with a pending copy can serve no miss: enough others remain for one token.
  void check_room_for_demand(layer_id layer) {
    const auto seen = look();
    auto needed = static_cast<std::size_t>(shape().top_k);
    std::size_t slots = 0;
    for (std::size_t q = 0; q < layout_.precisions(); ++q) {
      const auto pool = layout_.pool_of(layer, static_cast<precision_id>(q));
      slots += quota(pool);
      for (const auto k : keys_in(pool, seen))
        needed += walk_.decisions.slot(walk_.decisions.locate(k)).state == slot_state::filling;
    }
    ASSERT_LE(needed, slots);
  }
  picture look() {
    picture out;
    out.layer = layer_;
    out.experts = static_cast<std::size_t>(shape().experts);
    out.order.resize(layout_.pools());
    for (std::size_t k = 0; k < shape().keys(); ++k)
      out.where.push_back(walk_.decisions.locate(shape().key(k)));
    for (std::size_t s = 0; s < layout_.slots(); ++s)
      out.slots.push_back(walk_.decisions.slot(static_cast<slot_id>(s)));
    for (const auto k : walk_.decisions.residents())
      out.order[static_cast<std::size_t>(pool_of(k, walk_.decisions.locate(k)))].push_back(k);
    return out;
  }

  void choose_visit() {
    layer_ = layer_id{random_.id_below(shape().layers)};
    if (random_.one_in(3)) ++step_;
    const auto k = static_cast<std::size_t>(shape().top_k);
    ids_.resize(k * (1 + random_.below(static_cast<std::uint64_t>(shape().max_tokens_per_visit))));
    for (auto& id : ids_)
      id = random_.one_in(12) ? no_expert : expert_id{random_.id_below(shape().experts)};
    weights_.clear();
    if (!random_.one_in(4))
      for (std::size_t i = 0; i < ids_.size(); ++i)
        weights_.push_back(static_cast<float>(1 + random_.below(4)) / 4.0F);
  }
  void choose_decisions(const picture& before) {
    script_.decisions.clear();
    script_.stand_ins.clear();
    std::vector<expert_id> stand_ins;
    for (const auto e : each<expert_id>(shape().experts))
      if (before.at(e) != no_slot && (walk_.decisions.precision_of(before.at(e)) == 0 ||
                                      std::ranges::find(ids_, e) == ids_.end()))
        stand_ins.push_back(e);
    for (const auto e : each<expert_id>(shape().experts)) {
      const auto slot = before.at(e);
      const auto held = slot == no_slot ? miss::absent : walk_.decisions.precision_of(slot);
      if (held == 0) continue;
      auto& decision = script_.decisions[e];
      switch (random_.below(10)) {
        case 0: decision = support::dropped; break;
        case 1: decision = support::on_host; break;
        case 2:
          if (stand_ins.empty()) break;
          decision = support::substituted;
          script_.stand_ins[e] = stand_ins[random_.below(stand_ins.size())];
          break;
        case 3:
        case 4:
        case 5:
          if (held == miss::absent) break;
          decision = support::keep_low;
          break;
        default:
          decision = support::fetch_at(static_cast<precision_id>(
              random_.below(held == miss::absent ? layout_.precisions() : index_of(held))));
      }
    }
  }
  [[nodiscard]] bool decided(expert_id e, miss_action action) const {
    const auto found = script_.decisions.find(e);
    return found != script_.decisions.end() && found->second.action == action;
  }
  /// Only for routed experts: a substitute is used as it is.
  [[nodiscard]] bool on_host(expert_id e) const {
    return decided(e, miss_action::host) && std::ranges::find(ids_, e) != ids_.end();
  }
  [[nodiscard]] std::vector<expert_id> effective() const {
    auto out = ids_;
    for (auto& id : out) {
      if (decided(id, miss_action::drop)) id = no_expert;
      if (decided(id, miss_action::substitute)) id = script_.stand_ins.at(id);
    }
    return out;
  }
  [[nodiscard]] float weight_of(expert_id e) const {
    if (weights_.empty()) return 1.0F;
    float most = 0.0F;
    for (std::size_t i = 0; i < ids_.size(); ++i)
      if (ids_[i] == e) most = std::max(most, weights_[i]);
    return most;
  }
  [[nodiscard]] static std::vector<expert_id> distinct(const std::vector<expert_id>& ids) {
    std::vector<expert_id> out;
    for (const auto id : ids)
      if (id >= 0 && std::ranges::find(out, id) == out.end()) out.push_back(id);
    return out;
  }
  void check_question(const picture& before) {
    std::vector<miss> expected;
    for (const auto e : distinct(ids_)) {
      const auto slot = before.at(e);
      miss m;
      m.expert = e;
      m.held = slot == no_slot ? miss::absent : walk_.decisions.precision_of(slot);
      if (m.held == 0) continue;
      m.rank = 99;
      m.weight = weight_of(e);
      for (std::size_t i = 0; i < ids_.size(); ++i)
        if (ids_[i] == e) {
          ++m.uses;
          m.rank = std::min(
              m.rank, static_cast<std::uint16_t>(i % static_cast<std::size_t>(shape().top_k)));
        }
      expected.push_back(m);
    }
    ASSERT_EQ(script_.asked.size(), expected.empty() ? 0U : 1U);
    if (expected.empty()) return;
    ASSERT_TRUE(std::ranges::equal(script_.asked[0], expected, [](const miss& a, const miss& b) {
      return a.expert == b.expert && a.held == b.held && a.rank == b.rank && a.uses == b.uses &&
             a.weight == b.weight;
    }));
  }

  [[nodiscard]] std::size_t room_of_all(const picture& before) const {
    std::size_t room = 0;
    for (std::size_t p = 0; p < layout_.precisions(); ++p) {
      const auto pool = layout_.pool_of(layer_, static_cast<precision_id>(p));
      room += quota(pool) - keys_in(pool, before).size() +
              before.order[static_cast<std::size_t>(pool)].size();
    }
    return room;
  }
  /// The plan of these ids if all of it fits.
  [[nodiscard]] prediction predict(const picture& before, const std::vector<expert_id>& ids,
                                   bool upgrading) const {
    prediction out;
    const auto precisions = layout_.precisions();
    std::vector<std::size_t> room(precisions);
    for (std::size_t p = 0; p < precisions; ++p) {
      const auto pool = layout_.pool_of(layer_, static_cast<precision_id>(p));
      room[p] = quota(pool) - keys_in(pool, before).size() +
                before.order[static_cast<std::size_t>(pool)].size();
    }
    out.experts = distinct(ids);
    for (const auto e : out.experts) {
      const auto slot = before.at(e);
      const bool fetched = decided(e, miss_action::fetch) && std::ranges::count(ids_, e) != 0;
      const auto wanted = fetched ? script_.decisions.at(e).precision : 0_precision;
      if (on_host(e)) {
        out.services.push_back(service::host);
        continue;
      }
      const float weight =
          std::ranges::count(ids_, e) != 0 && script_.decisions.count(e) != 0 ? weight_of(e) : 1.0F;
      if (slot == no_slot) {
        out.services.push_back(service::fill);
        out.fills.push_back({e, wanted, precisions, weight, 0});
        continue;
      }
      const auto held = walk_.decisions.precision_of(slot);
      if (before.may_go(slot)) --room[index_of(held)];
      const bool upgrade = upgrading && fetched && wanted < held && before.may_go(slot);
      out.services.push_back(upgrade ? service::fill : service::hit);
      if (upgrade) out.fills.push_back({e, wanted, index_of(held), weight, 0});
    }
    if (out.fills.size() > std::accumulate(room.begin(), room.end(), std::size_t{0}))
      return upgrading ? predict(before, ids, false) : out;
    out.fits = true;
    assign(out, room);
    return out;
  }
  /// The heaviest first: down from the requested precision, then up.
  static void assign(prediction& out, std::vector<std::size_t>& room) {
    std::vector<wanted_fill*> order;
    for (auto& f : out.fills) order.push_back(&f);
    std::ranges::stable_sort(order,
                             [](const auto* a, const auto* b) { return a->weight > b->weight; });
    for (auto* f : order) {
      std::vector<std::size_t> choices;
      for (std::size_t p = index_of(f->wanted); p < f->end; ++p) choices.push_back(p);
      for (std::size_t p = index_of(f->wanted); p-- > 0;) choices.push_back(p);
      f->given = f->end;
      for (const auto p : choices)
        if (room[p] != 0) {
          f->given = p;
          --room[p];
          break;
        }
    }
    for (std::size_t i = 0; i < out.experts.size(); ++i)
      for (const auto& f : out.fills)
        if (f.expert == out.experts[i] && f.given == f.end) out.services[i] = service::hit;
    std::erase_if(out.fills, [](const wanted_fill& f) { return f.given == f.end; });
  }

  void check_plan(const picture& before, const prediction& expected) {
    const auto& plan = walk_.plan;
    ASSERT_TRUE(std::ranges::equal(plan.experts(), expected.experts));
    ASSERT_TRUE(std::ranges::equal(plan.services(), expected.services));
    ASSERT_EQ(plan.host_count(),
              static_cast<std::size_t>(std::ranges::count(expected.services, service::host)));
    ASSERT_EQ(plan.all_hits(), std::ranges::count(expected.services, service::hit) ==
                                   static_cast<std::ptrdiff_t>(expected.services.size()));
    ASSERT_EQ(plan.fills().size(), expected.fills.size());
    std::set<slot_id> used;
    for (std::size_t i = 0; i < plan.experts().size(); ++i) {
      if (expected.services[i] == service::host) {
        ASSERT_EQ(plan.slots()[i], no_slot);
      } else {
        ASSERT_TRUE(used.insert(plan.slots()[i]).second) << "two experts share a slot";
      }
      if (expected.services[i] == service::hit) {
        ASSERT_EQ(plan.slots()[i], before.at(plan.experts()[i]));
      }
    }
    std::map<pool_id, std::vector<expert_key>> victims;
    std::map<pool_id, std::size_t> free;
    for (std::size_t j = 0; j < plan.fills().size(); ++j) {
      const auto& f = plan.fills()[j];
      ASSERT_EQ(f.key, (expert_key{layer_, expected.fills[j].expert}));
      ASSERT_EQ(f.precision, expected.fills[j].given);
      ASSERT_EQ(walk_.decisions.precision_of(f.slot), f.precision);
      const auto pool = layout_.pool_of(layer_, f.precision);
      if (f.victim == no_key) {
        ++free[pool];
        ASSERT_EQ(before.slots[static_cast<std::size_t>(f.slot)].state, slot_state::free);
      } else {
        victims[pool].push_back(f.victim);
        ASSERT_EQ(before.where[shape().index(f.victim)], f.slot);
        ASSERT_TRUE(before.may_go(f.slot));
        ASSERT_EQ(pool_of(f.victim, f.slot), pool);
      }
    }
    for (const auto& [pool, gone] : victims) {
      ASSERT_EQ(free[pool], quota(pool) - keys_in(pool, before).size()) << "free slots come first";
      if (!ordered_) continue;
      std::vector<expert_key> order;
      for (const auto k : before.order[static_cast<std::size_t>(pool)]) {
        const auto at = std::ranges::find(expected.experts, k.expert);
        const bool own =
            k.layer == layer_ && at != expected.experts.end() &&
            expected.services[static_cast<std::size_t>(at - expected.experts.begin())] !=
                service::host;
        if (!own && order.size() < gone.size()) order.push_back(k);
      }
      ASSERT_EQ(gone, order);
    }
    const std::vector<expert_id> routed(plan.routed().begin(), plan.routed().end());
    ASSERT_EQ(routed, effective());
    ASSERT_EQ(plan.edited(), routed != ids_);
  }
  void check_places(const picture& before, const std::vector<fill>& fills) {
    auto expected = before.where;
    for (const auto& f : fills)
      if (f.victim != no_key) expected[shape().index(f.victim)] = no_slot;
    for (const auto& f : fills) expected[shape().index(f.key)] = f.slot;
    ASSERT_EQ(look().where, expected);
  }
  void commit(const picture& before) {
    const std::vector<fill> made(walk_.plan.fills().begin(), walk_.plan.fills().end());
    for (std::size_t i = 0; i < walk_.plan.experts().size(); ++i) {
      if (walk_.plan.services()[i] != service::hit) continue;
      const auto slot = walk_.plan.slots()[i];
      if (!before.slots[static_cast<std::size_t>(slot)].unused_prefetch) continue;
      ++prefetch_hits_;
      used_ += shape().bytes_of(layer_, walk_.decisions.precision_of(slot));
    }
    ASSERT_EQ(walk_.decisions.commit(walk_.plan), status::ok);
    ASSERT_NO_FATAL_FAILURE(check_places(before, made));
    for (const auto& f : made) {
      demand_ += bytes_of(f);
      low_fills_ += f.precision != 0 ? 1U : 0U;
      if (random_.one_in(4)) copies_.push_back(f);
    }
    fills_ += made.size();
    for (const auto slot : walk_.plan.slots())
      if (slot != no_slot) {
        ASSERT_EQ(walk_.decisions.slot(slot).state, slot_state::resident);
      }
    support::expect_consistent(walk_.decisions);
  }
  void visit_groups(picture before, const std::vector<expert_id>& routed,
                    const support::token_lists& groups) {
    const auto k = static_cast<std::size_t>(shape().top_k);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      std::vector<expert_id> ids;
      for (const std::size_t t : groups[g])
        ids.insert(ids.end(), routed.begin() + static_cast<std::ptrdiff_t>(t * k),
                   routed.begin() + static_cast<std::ptrdiff_t>(t * k + k));
      for (bool aborted = g != 0; aborted;) {
        before = look();
        ASSERT_EQ(walk_.decisions.plan_next(walk_.plan), status::ok);
        aborted = random_.one_in(5);
        if (!aborted) break;
        ASSERT_EQ(walk_.decisions.abort(walk_.plan, started()), status::ok);
        support::expect_consistent(walk_.decisions);
      }
      ASSERT_EQ(walk_.plan.group(), g);
      ASSERT_TRUE(std::ranges::equal(walk_.plan.tokens(), groups[g]));
      const auto expected = predict(before, ids, false);
      ASSERT_TRUE(expected.fits);
      ASSERT_NO_FATAL_FAILURE(check_plan(before, expected));
      ASSERT_NO_FATAL_FAILURE(commit(before));
    }
  }
  std::vector<std::uint8_t> started() {
    std::vector<std::uint8_t> out;
    for (std::size_t i = 0; i < walk_.plan.fills().size(); ++i)
      out.push_back(random_.one_in(3) ? 1 : 0);
    if (random_.one_in(2)) out.clear();
    return out;
  }
  void abort(const picture& before) {
    const auto flags = started();
    auto expected = before.where;
    bool lost = false;
    for (std::size_t i = 0; i < flags.size(); ++i) {
      const auto& f = walk_.plan.fills()[i];
      if (flags[i] == 0 || f.victim == no_key) continue;
      expected[shape().index(f.victim)] = no_slot;
      lost = true;
    }
    ASSERT_EQ(walk_.decisions.abort(walk_.plan, flags), status::ok);
    const auto after = look();
    ASSERT_EQ(after.where, expected);
    if (!lost) {
      ASSERT_EQ(after.order, before.order);
    }
    check();
  }
  void check_unchanged(const picture& before) {
    ASSERT_EQ(look().where, before.where);
    ASSERT_EQ(look().order, before.order);
    check();
  }

  void count_visit(const picture& before, const std::vector<expert_id>& routed) {
    const auto all = distinct(ids_);
    accesses_ += all.size();
    for (const auto e : all) {
      const bool absent = before.at(e) == no_slot;
      dropped_ += decided(e, miss_action::drop) ? 1U : 0U;
      substituted_ += decided(e, miss_action::substitute) ? 1U : 0U;
      const bool unused =
          on_host(e) || decided(e, miss_action::drop) || decided(e, miss_action::substitute);
      misses_ += absent || unused ? 1U : 0U;
      precision_misses_ += !absent && unused ? 1U : 0U;
    }
    for (const auto e : distinct(routed)) {
      bypasses_ += on_host(e) ? 1U : 0U;
      filled_ += before.at(e) == no_slot && !on_host(e) ? 1U : 0U;
    }
  }
  void check() {
    ASSERT_NO_FATAL_FAILURE(support::expect_consistent(walk_.decisions));
    // residents() goes pool by pool and names exactly the evictable keys of each.
    const auto seen = look();
    std::vector<expert_key> in_pools;
    for (const auto& of_pool : seen.order)
      in_pools.insert(in_pools.end(), of_pool.begin(), of_pool.end());
    ASSERT_EQ(walk_.decisions.residents(), in_pools);
    for (std::size_t k = 0; k < shape().keys(); ++k) {
      if (seen.where[k] == no_slot) continue;
      const auto key = shape().key(k);
      const auto& order = seen.order[static_cast<std::size_t>(pool_of(key, seen.where[k]))];
      ASSERT_EQ(std::ranges::find(order, key) != order.end(), seen.may_go(seen.where[k]));
    }
    std::uint64_t pending = 0;
    for (std::size_t k = 0; k < shape().keys(); ++k)
      if (seen.where[k] != no_slot &&
          seen.slots[static_cast<std::size_t>(seen.where[k])].unused_prefetch)
        pending +=
            shape().bytes_of(shape().key(k).layer, walk_.decisions.precision_of(seen.where[k]));
    const auto s = walk_.stats();
    ASSERT_EQ(s.accesses, accesses_);
    ASSERT_EQ(s.dropped_misses, dropped_);
    ASSERT_EQ(s.substituted_misses, substituted_);
    ASSERT_EQ(s.bypasses, bypasses_);
    ASSERT_EQ(s.fills, fills_);
    ASSERT_EQ(s.prefetch_hits, prefetch_hits_);
    ASSERT_EQ(s.hits, s.reuse_hits() + prefetch_hits_);
    ASSERT_EQ(s.bytes_demand, demand_);
    ASSERT_EQ(s.bytes_warm, warm_);
    ASSERT_EQ(s.bytes_prefetched, prefetched_);
    ASSERT_EQ(s.bytes_prefetch_used, used_);
    ASSERT_EQ(s.bytes_prefetch_cancelled, cancelled_);
    ASSERT_EQ(s.bytes_prefetch_wasted, prefetched_ - used_ - cancelled_ - pending);
    ASSERT_EQ(s.bytes_filled, demand_ + prefetched_ + warm_ - s.bytes_prefetch_cancelled);
    ASSERT_EQ(s.misses, misses_ + upgrades_);
    ASSERT_EQ(s.precision_misses, precision_misses_ + upgrades_);
    ASSERT_EQ(s.misses, filled_ + upgrades_ + bypasses_ + dropped_ + substituted_);
    ASSERT_LE(s.compulsory_misses + s.collision_misses + s.precision_misses, s.misses);
  }

  pool_layout layout_;
  bool ordered_;
  random_source& random_;
  scripted_miss::script script_{};
  support::pager_walk<pager_type> walk_;
  std::vector<fill> copies_{};
  std::set<slot_id> pinned_{};
  std::vector<expert_id> ids_{};
  std::vector<float> weights_{};
  layer_id layer_{};
  step_id step_ = 0;
  std::uint64_t accesses_ = 0, misses_ = 0, precision_misses_ = 0, upgrades_ = 0;
  std::uint64_t dropped_ = 0, substituted_ = 0, bypasses_ = 0, fills_ = 0, filled_ = 0,
                low_fills_ = 0;
  std::uint64_t prefetch_hits_ = 0, demand_ = 0, warm_ = 0, prefetched_ = 0, used_ = 0;
  std::uint64_t cancelled_ = 0;
};

template <class Eviction>
void agrees_with_what_can_be_seen(typename Eviction::config eviction, bool ordered) {
  typename precision_model<Eviction>::tally seen{};
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_source random(seed);
    precision_model<Eviction> model(random_layout(random), eviction, ordered, random);
    for (int n = 0; n < 120; ++n) {
      switch (random.below(14)) {
        case 0:
        case 1: model.prefetch(); break;
        case 2:
        case 3: model.end_copy(); break;
        case 4: model.pin_or_unpin(); break;
        case 5: random.one_in(2) ? model.invalidate() : model.trim(); break;
        case 6: random.one_in(2) ? model.resize() : model.warm(); break;
        default: model.visit();
      }
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "after operation " << n;
    }
    model.fill_up();
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    std::ranges::transform(seen, model.seen(), seen.begin(), std::plus());
  }
  // Minimum counts: a case that never occurs is not tested.
  constexpr typename precision_model<Eviction>::tally least{1000, 20, 100, 20, 20, 20, 5, 5};
  for (std::size_t n = 0; n < seen.size(); ++n) EXPECT_GT(seen[n], least[n]) << "case " << n;
}

TEST(pager_precision_property, lru) { agrees_with_what_can_be_seen<lru>({}, true); }
TEST(pager_precision_property, fifo) { agrees_with_what_can_be_seen<fifo>({}, true); }
TEST(pager_precision_property, lfu) {
  agrees_with_what_can_be_seen<lfu>({}, true);
  agrees_with_what_can_be_seen<lfu>({.history = lfu_history::resident, .ageing_period = 7}, true);
}
TEST(pager_precision_property, lhu) { agrees_with_what_can_be_seen<lhu>({}, true); }
TEST(pager_precision_property, furthest_layer) {
  agrees_with_what_can_be_seen<furthest_layer>({}, false);
}
TEST(pager_precision_property, least_stale_by_layer) {
  agrees_with_what_can_be_seen<least_stale>({.order = stale_order::layer}, false);
}
TEST(pager_precision_property, least_stale_by_last_access) {
  agrees_with_what_can_be_seen<least_stale>({.order = stale_order::last_access}, false);
}
TEST(pager_precision_property, lfru) { agrees_with_what_can_be_seen<lfru>({}, false); }
TEST(pager_precision_property, gate_score) { agrees_with_what_can_be_seen<gate_score>({}, false); }
TEST(pager_precision_property, popularity) { agrees_with_what_can_be_seen<popularity>({}, false); }
TEST(pager_precision_property, protect_hot) {
  agrees_with_what_can_be_seen<protect_hot<lru>>({}, false);
}

}  // namespace
}  // namespace hotset::pager_precision_model_test
