// SPDX-License-Identifier: Apache-2.0
// Every eviction policy joins here with one `entry`: what it is, how it is configured, and its rule's naive
// form. Random sequences of everything that may happen to a policy are told to both; they must always agree.

#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "hotset/eviction/any_eviction_policy.hpp"
#include "hotset/eviction/belady.hpp"
#include "hotset/eviction/fifo.hpp"
#include "hotset/eviction/furthest_layer.hpp"
#include "hotset/eviction/gate_score.hpp"
#include "hotset/eviction/least_stale.hpp"
#include "hotset/eviction/lfru.hpp"
#include "hotset/eviction/lfu.hpp"
#include "hotset/eviction/lhu.hpp"
#include "hotset/eviction/lru.hpp"
#include "hotset/eviction/popularity.hpp"
#include "hotset/eviction/protect_decode.hpp"
#include "hotset/eviction/protect_hot.hpp"
#include "random_source.hpp"
#include "reference_policies.hpp"

namespace hotset {
namespace {

using reference::ranking;
using support::random_source;

/// The visits to come, decided beforehand so that belady can know them.
struct visit {
  layer_id layer = 0;
  step_id step = 0;
  request_class kind = request_class::decode;
  std::vector<expert_id> experts;
};
using script = std::vector<visit>;

script write_script(const geometry& shape, std::size_t visits, random_source& random) {
  script out;
  step_id step = 3;
  layer_id layer = 0;
  while (out.size() < visits) {
    visit v;
    v.layer = layer;
    v.step = step;
    v.kind = static_cast<request_class>(random.one_in(4) ? random.below(3) : 0);
    std::set<expert_id> chosen;
    const auto width = static_cast<std::uint64_t>(shape.experts);
    while (chosen.size() < 1 + random.below(static_cast<std::uint64_t>(shape.top_k))) {
      // Skewed, so that something is hot.
      const auto limit = 1 + random.below(width);
      chosen.insert(static_cast<expert_id>(random.below(limit)));
    }
    for (const auto e : chosen)
      v.experts.insert(
          v.experts.begin() + static_cast<std::ptrdiff_t>(random.below(v.experts.size() + 1)), e);
    out.push_back(std::move(v));
    layer += static_cast<layer_id>(random.one_in(8) ? 2 : 1);
    if (layer >= shape.layers) {
      layer = 0;
      step += random.one_in(6) ? 1 + random.below(30) : 1;
    }
  }
  return out;
}

std::vector<double> profile_of(const geometry& shape) {
  std::vector<double> out(shape.keys());
  for (std::size_t k = 0; k < out.size(); ++k) out[k] = static_cast<double>(k * 7 % 5);
  return out;
}

std::shared_ptr<const future_uses> future_of(const geometry& shape, const script& visits) {
  std::vector<future_uses::event> events;
  for (std::size_t n = 0; n < visits.size(); ++n)
    for (const auto e : visits[n].experts) events.push_back({n, {visits[n].layer, e}});
  auto made = future_uses::create(shape, events);
  return std::make_shared<const future_uses>(*std::move(made));
}

// ---- entries

template <class P>
struct plain {
  using policy = P;
  static typename P::config options(const geometry&, const script&) { return {}; }
  static void prepare(reference::state&, const geometry&, const script&) {}
};
struct lru_entry : plain<lru> {
  static ranking rule() { return reference::by_recency(); }
};
struct fifo_entry : plain<fifo> {
  static ranking rule() { return reference::by_arrival(); }
};
struct lfu_entry : plain<lfu> {
  static ranking rule() { return reference::by_whole_count(); }
};
/// At one precision, lhu is lfu.
struct lhu_entry : plain<lhu> {
  static ranking rule() { return reference::by_whole_count(); }
};
struct lfu_resident_entry : plain<lfu> {
  static lfu::config options(const geometry&, const script&) {
    return {.history = lfu_history::resident};
  }
  static ranking rule() { return reference::by_resident_count(); }
};
struct lfu_ageing_entry : plain<lfu> {
  static lfu::config options(const geometry&, const script&) { return {.ageing_period = 17}; }
  static void prepare(reference::state& s, const geometry&, const script&) { s.ageing_period = 17; }
  static ranking rule() { return reference::by_whole_count(); }
};
struct lfu_resident_ageing_entry : plain<lfu> {
  static lfu::config options(const geometry&, const script&) {
    return {.history = lfu_history::resident, .ageing_period = 23};
  }
  static void prepare(reference::state& s, const geometry&, const script&) { s.ageing_period = 23; }
  static ranking rule() { return reference::by_resident_count(); }
};
struct lfru_entry : plain<lfru> {
  static ranking rule() { return reference::by_decayed_frequency(); }
};
struct lfru_fast_entry : plain<lfru> {
  static lfru::config options(const geometry&, const script&) { return {.decay = 0.75}; }
  static void prepare(reference::state& s, const geometry&, const script&) { s.decay = 0.75; }
  static ranking rule() { return reference::by_decayed_frequency(); }
};
struct gate_score_entry : plain<gate_score> {
  static ranking rule() { return reference::by_gate(); }
};
struct gate_score_ema_entry : plain<gate_score> {
  static gate_score::config options(const geometry&, const script&) {
    return {.accumulate = gate_accumulate::ema, .decay = 0.5};
  }
  static void prepare(reference::state& s, const geometry&, const script&) { s.ema = 0.5; }
  static ranking rule() { return reference::by_gate(); }
};
struct popularity_entry : plain<popularity> {
  static popularity::config options(const geometry& shape, const script&) {
    return {.profile = profile_of(shape), .source = "made up"};
  }
  static void prepare(reference::state& s, const geometry& shape, const script&) {
    const auto profile = profile_of(shape);
    for (std::size_t k = 0; k < profile.size(); ++k) s.profile[shape.key(k)] = profile[k];
  }
  static ranking rule() { return reference::by_profile(); }
};
struct furthest_layer_entry : plain<furthest_layer> {
  static ranking rule() { return reference::by_layer_distance(); }
};
struct least_stale_entry : plain<least_stale> {
  static ranking rule() { return reference::by_staleness(); }
};
struct least_stale_layer_entry : plain<least_stale> {
  static least_stale::config options(const geometry&, const script&) {
    return {.order = stale_order::layer};
  }
  static ranking rule() { return reference::by_staleness_and_layer(); }
};
struct least_stale_access_entry : plain<least_stale> {
  static least_stale::config options(const geometry&, const script&) {
    return {.order = stale_order::last_access};
  }
  static ranking rule() { return reference::by_epoch(); }
};
struct belady_entry : plain<belady> {
  static belady::config options(const geometry& shape, const script& visits) {
    return {.future = future_of(shape, visits)};
  }
  static void prepare(reference::state& s, const geometry&, const script& visits) {
    for (std::size_t n = 0; n < visits.size(); ++n)
      for (const auto e : visits[n].experts) s.future[{visits[n].layer, e}].insert(n);
  }
  static ranking rule() { return reference::by_next_use(); }
};

// Decorators, and one inside the other.
template <class Inner>
struct hot_entry : Inner {
  using policy = protect_hot<typename Inner::policy>;
  static typename policy::config options(const geometry& shape, const script& visits) {
    return {.uses = 3, .inner = Inner::options(shape, visits)};
  }
  static ranking rule() { return reference::sparing_hot(3, Inner::rule()); }
};
template <class Inner>
struct decode_entry : Inner {
  using policy = protect_decode<typename Inner::policy>;
  static typename policy::config options(const geometry& shape, const script& visits) {
    return {.window = 2, .inner = Inner::options(shape, visits)};
  }
  static ranking rule() { return reference::sparing_decode(2, Inner::rule()); }
};
// The eraser around any of them.
template <class Inner>
struct any_entry : Inner {
  using policy = any_eviction_policy;
  static any_eviction_policy::config options(const geometry& shape, const script& visits) {
    return any_eviction_policy::holding<typename Inner::policy>(Inner::options(shape, visits));
  }
};

template <class Entry>
class eviction_conformance : public testing::Test {};

using entries = testing::Types<
    lru_entry, fifo_entry, lfu_entry, lhu_entry, lfu_resident_entry, lfu_ageing_entry,
    lfu_resident_ageing_entry, lfru_entry, lfru_fast_entry, gate_score_entry, gate_score_ema_entry,
    popularity_entry, furthest_layer_entry, least_stale_entry, least_stale_layer_entry,
    least_stale_access_entry, belady_entry, hot_entry<lru_entry>, hot_entry<lfu_entry>,
    decode_entry<lru_entry>, decode_entry<least_stale_entry>, hot_entry<decode_entry<lru_entry>>,
    decode_entry<hot_entry<gate_score_entry>>, any_entry<lru_entry>, any_entry<least_stale_entry>,
    any_entry<belady_entry>, any_entry<hot_entry<decode_entry<lfru_entry>>>>;
TYPED_TEST_SUITE(eviction_conformance, entries);

struct options {
  bool prefetches = true;  // speculative fills and requests, for any step
};

/// A policy and its naive form through one script, compared before every visit.
template <class Entry>
class walk {
 public:
  using P = typename Entry::policy;
  walk(const pool_layout& layout, std::uint64_t seed, std::size_t visits)
      : random_(seed),
        layout_(layout),
        script_(write_script(layout.shape(), visits, random_)),
        policy_(layout, Entry::options(layout.shape(), script_)),
        reference_(layout.shape(), Entry::rule()),
        eligible_(layout.slots()) {
    Entry::prepare(reference_.parameters(), layout.shape(), script_);
    for (slot_id s = 0; s < static_cast<slot_id>(layout.slots()); ++s)
      free_.push_back({s, layout.pool_of_slot(s)});
  }

  void run(options what) {
    for (ordinal_ = 0; ordinal_ < script_.size(); ++ordinal_) {
      visit_once(script_[ordinal_], what);
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_GT(victims_, script_.size() / 8) << "the script puts no pressure on the slots";
  }

 private:
  struct vacancy {
    slot_id slot;
    pool_id pool;
  };

  access about(expert_key key, slot_id slot, const visit& v) {
    access a;
    a.key = key;
    a.slot = slot;
    a.pool = layout_.pool_of_layer(key.layer);
    a.step = v.step;
    a.ordinal = ordinal_;
    a.kind = v.kind;
    a.weight = static_cast<double>(random_.below(1000)) / 1000.0;
    return a;
  }
  void evict(slot_id slot) {
    const auto key = keys_.at(slot);
    policy_.on_evict(slot, key);
    reference_.on_evict(slot, key);
    free_.push_back({slot, layout_.pool_of_layer(key.layer)});
    where_.erase(key);
    keys_.erase(slot);
  }
  void fill(const access& a) {
    where_[a.key] = a.slot;
    keys_[a.slot] = a.key;
    policy_.on_fill(a);
    reference_.on_fill(a);
  }
  /// A free slot of the pool, or none.
  slot_id take_free(pool_id pool) {
    for (std::size_t n = 0; n < free_.size(); ++n)
      if (free_[n].pool == pool) {
        const auto slot = free_[n].slot;
        free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(n));
        return slot;
      }
    return no_slot;
  }

  /// Asks for the first n in every way that must give the same answer.
  std::vector<slot_id> ask(const visit_context& context, std::size_t n) {
    const auto expected = reference_.order(context, eligible_);
    std::vector<slot_id> all(layout_.slots() + 2, no_slot);
    const auto choose = [&](std::size_t wanted) {
      std::fill(all.begin(), all.end(), no_slot);
      const auto count = policy_.select_victims(context, eligible_, std::span(all).first(wanted));
      EXPECT_LE(count, wanted);
      for (std::size_t i = count; i < all.size(); ++i) EXPECT_EQ(all[i], no_slot) << "wrote past";
      return std::vector<slot_id>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
    };
    const auto prefix = [&](std::size_t wanted) {
      return std::vector<slot_id>(
          expected.begin(),
          expected.begin() + static_cast<std::ptrdiff_t>(std::min(wanted, expected.size())));
    };
    for (const auto wanted : {n, std::size_t{1}, random_.below(expected.size() + 2), n,
                              std::size_t{0}, random_.one_in(4) ? all.size() : n}) {
      const auto got = choose(wanted);
      EXPECT_EQ(got, prefix(wanted)) << "visit " << ordinal_ << ", asked for " << wanted;
      if (got != prefix(wanted)) failed_ = true;
    }
    return prefix(n);
  }

  void visit_once(const visit& v, options what) {
    const auto pool = layout_.pool_of_layer(v.layer);
    eligible_.clear();
    for (const auto& [slot, key] : keys_) {
      const bool used = key.layer == v.layer && std::find(v.experts.begin(), v.experts.end(),
                                                          key.expert) != v.experts.end();
      eligible_.assign(slot, !used && !random_.one_in(12));
    }
    // Free slots of its pool first, as a pager does; then victims.
    std::vector<expert_key> missing;
    for (const auto e : v.experts)
      if (!where_.contains({v.layer, e})) missing.push_back({v.layer, e});
    std::size_t vacant = 0;
    for (const auto& f : free_) vacant += f.pool == pool ? 1U : 0U;
    const auto need = missing.size() > vacant ? missing.size() - vacant : 0;
    const auto victims = ask({v.layer, pool, v.step, ordinal_, v.kind}, need);
    ASSERT_FALSE(failed_);
    victims_ += victims.size();

    policy_.on_step(v.step, v.layer);
    reference_.on_step(v.step, v.layer);
    const bool at_once = detail::takes_visits(policy_) && random_.one_in(2);
    std::vector<slot_id> used;
    std::size_t next_victim = 0;
    for (const auto e : v.experts) {
      const expert_key key{v.layer, e};
      const auto found = where_.find(key);
      if (found != where_.end()) {
        const auto a = about(key, found->second, v);
        if (!at_once) policy_.on_hit(a);
        reference_.on_hit(a);
        used.push_back(a.slot);
        if (!at_once && random_.one_in(5)) {
          auto again = about(key, found->second, v);  // a later token group of the visit
          again.repeated = true;
          policy_.on_hit(again);
          reference_.on_hit(again);
        }
        continue;
      }
      auto slot = random_.one_in(9) ? no_slot : take_free(pool);
      if (slot == no_slot && next_victim < victims.size()) {
        evict(victims[next_victim++]);
        slot = take_free(pool);
      }
      if (slot == no_slot) {
        const auto a = about(key, no_slot, v);
        policy_.on_bypass(a);
        reference_.on_bypass(a);
        if (random_.one_in(3)) {
          auto again = about(key, no_slot, v);
          again.repeated = true;
          policy_.on_bypass(again);
          reference_.on_bypass(again);
        }
        continue;
      }
      fill(about(key, slot, v));
      used.push_back(slot);
      if (!at_once && random_.one_in(10)) {  // a later group refills what this one brought
        evict(slot);
        slot = take_free(pool);
        auto again = about(key, slot, v);
        again.repeated = true;
        fill(again);
      }
    }
    if constexpr (detail::told_of_visits<P>)
      if (at_once) policy_.on_visit({v.layer, pool, v.step, ordinal_, v.kind}, used);
    between(v, what);
  }

  /// Prefetches, requests, invalidations and quota changes.
  void between(const visit& v, options what) {
    if (what.prefetches && random_.one_in(3)) {
      const auto layer =
          static_cast<layer_id>(random_.below(static_cast<std::uint64_t>(layout_.shape().layers)));
      const expert_key key{layer, static_cast<expert_id>(random_.below(
                                      static_cast<std::uint64_t>(layout_.shape().experts)))};
      const auto meant_for = v.step + random_.below(4) - (random_.one_in(5) ? 2U : 0U);
      const auto found = where_.find(key);
      if (found != where_.end()) {
        auto a = about(key, found->second, v);
        a.speculative = true;
        a.step = meant_for;
        if constexpr (requires { policy_.on_request(a); }) policy_.on_request(a);
        reference_.on_request(a);
      } else {
        const auto pool = layout_.pool_of_layer(layer);
        auto slot = take_free(pool);
        if (slot == no_slot) {
          eligible_.clear();
          for (const auto& [s, k] : keys_) eligible_.set(s);
          const auto victims = ask({v.layer, pool, v.step, ordinal_ + 1, v.kind}, 1);
          ASSERT_FALSE(failed_);
          if (!victims.empty()) {
            evict(victims.front());
            slot = take_free(pool);
          }
        }
        if (slot != no_slot) {
          auto a = about(key, slot, v);
          a.speculative = true;
          a.step = meant_for;
          fill(a);
        }
      }
    }
    if (random_.one_in(15) && !keys_.empty()) {
      auto at = keys_.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(random_.below(keys_.size())));
      evict(at->first);
    }
    if (random_.one_in(10) && !free_.empty()) {  // a free slot changes pool
      auto& moved = free_[random_.below(free_.size())];
      const auto to = static_cast<pool_id>(random_.below(layout_.pools()));
      std::size_t held = 0;
      for (const auto& f : free_) held += f.pool == to ? 1U : 0U;
      for (const auto& [s, k] : keys_) held += layout_.pool_of_layer(k.layer) == to ? 1U : 0U;
      if (held < layout_.most_slots(to) &&
          layout_.at(to).size_class == layout_.at(moved.pool).size_class)
        moved.pool = to;
    }
  }

  random_source random_;
  pool_layout layout_;
  script script_;
  P policy_;
  reference::policy reference_;
  slot_mask eligible_;
  std::map<expert_key, slot_id> where_;
  std::map<slot_id, expert_key> keys_;
  std::vector<vacancy> free_;
  std::uint64_t ordinal_ = 0;
  std::size_t victims_ = 0;
  bool failed_ = false;
};

std::vector<std::pair<std::string, pool_layout>> layouts() {
  std::vector<std::pair<std::string, pool_layout>> out;
  const geometry small{.layers = 5, .experts = 8, .top_k = 3};
  out.emplace_back("shared, 12 slots", pool_layout::shared(small, 12).value());
  out.emplace_back("per layer, 4 slots", pool_layout::per_layer(small, 4).value());
  const std::vector<std::int64_t> quotas{3, 5, 4, 8, 3};
  out.emplace_back("per layer, unequal", pool_layout::per_layer(small, quotas).value());
  const geometry mixed{.layers = 4, .experts = 9, .top_k = 3, .expert_bytes = {10, 20, 10, 20}};
  const std::vector<std::int64_t> classes{9, 7};
  out.emplace_back("size classes", pool_layout::shared_by_size_class(mixed, classes).value());
  const geometry deep{.layers = 70, .experts = 8, .top_k = 3};
  out.emplace_back("shared, 70 layers", pool_layout::shared(deep, 150).value());
  // Wide enough for the ordered form of indexed_heap, one pool and several.
  const geometry wide{.layers = 4, .experts = 96, .top_k = 24};
  out.emplace_back("shared, 170 slots", pool_layout::shared(wide, 170).value());
  out.emplace_back("per layer, 60 slots", pool_layout::per_layer(wide, 60).value());
  return out;
}

TYPED_TEST(eviction_conformance, agrees_with_the_naive_form) {
  for (const auto& [name, layout] : layouts()) {
    const bool large = layout.slots() > 100;
    for (std::uint64_t seed = 1; seed <= (large ? 3U : 12U); ++seed) {
      SCOPED_TRACE(name + ", seed " + std::to_string(seed));
      walk<TypeParam>(layout, seed, large ? 250 : 400).run({});
      if (this->HasFailure()) return;
    }
  }
}

TYPED_TEST(eviction_conformance, is_deterministic_and_survives_a_move) {
  const auto layout = layouts()[2].second;
  const script none;
  const auto options = TypeParam::options(layout.shape(), none);
  using P = typename TypeParam::policy;
  const auto play = [&](bool move) {
    auto policy = std::make_unique<P>(layout, options);
    slot_mask eligible(layout.slots());
    for (slot_id s = 0; s < 3; ++s) {
      access a;
      a.key = {0, s + 1};
      a.slot = s;
      policy->on_fill(a);
      eligible.set(s);
    }
    if (move) policy = std::make_unique<P>(std::move(*policy));
    std::vector<slot_id> out(4, no_slot);
    out.resize(policy->select_victims({}, eligible, out));
    return out;
  };
  EXPECT_EQ(play(false).size(), 3U);
  EXPECT_EQ(play(false), play(false));
  EXPECT_EQ(play(false), play(true));
}

TYPED_TEST(eviction_conformance, offers_nothing_where_nothing_is_eligible) {
  const auto layout = layouts()[0].second;
  typename TypeParam::policy policy(layout, TypeParam::options(layout.shape(), {}));
  slot_mask eligible(layout.slots());
  std::vector<slot_id> out(3, no_slot);
  EXPECT_EQ(policy.select_victims({}, eligible, out), 0U);
  access a;
  a.key = {0, 1};
  a.slot = 5;
  policy.on_fill(a);
  EXPECT_EQ(policy.select_victims({}, eligible, out), 0U);
  eligible.set(5);
  EXPECT_EQ(policy.select_victims({}, eligible, std::span<slot_id>()), 0U);
  EXPECT_EQ(policy.select_victims({}, eligible, out), 1U);
  EXPECT_EQ(out[0], 5);
}

}  // namespace
}  // namespace hotset
