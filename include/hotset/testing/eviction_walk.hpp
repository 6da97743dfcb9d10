// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Random events for an eviction policy and the naive form of its rule, without a test framework: the rules that
/// eviction_suite.hpp and the C interface check. An entry is described in eviction_suite.hpp.
///
/// An entry's functions may use its members. `problem()`, if it has one, is called after each call of the policy: it
/// returns what went wrong inside, or an empty text.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/fill.hpp"
#include "hotset/core/forecast.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/core/visit_event.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/policy/policy_config.hpp"
#include "hotset/testing/naive_eviction.hpp"
#include "hotset/testing/random_source.hpp"

namespace hotset::suites {

/// A visit of the script. The script is fixed in advance so that belady knows future visits.
struct visit {
  layer_id layer{};
  step_id step = 0;
  request_class kind = request_class::decode;
  sequence_id sequence = 0;
  std::vector<expert_id> experts;
};
/// The visits of one test run.
using script = std::vector<visit>;

/// Creates random visits with steps, sequences and request classes.
inline script write_script(const geometry& shape, std::size_t visits, random_source& random) {
  script out;
  step_id step = 3;
  layer_id layer{};
  sequence_id sequence = 0;
  while (out.size() < visits) {
    visit v;
    v.sequence = sequence;
    v.layer = layer;
    v.step = step;
    v.kind = static_cast<request_class>(random.one_in(4) ? random.below(3) : 0);
    std::set<expert_id> chosen;
    while (chosen.size() < 1 + random.below(static_cast<std::uint64_t>(shape.top_k))) {
      // Skewed, so that some experts are hot.
      const auto limit = 1 + random.below(shape.expert_count());
      chosen.insert(static_cast<expert_id>(random.below(limit)));
    }
    for (const auto e : chosen)
      v.experts.insert(
          v.experts.begin() + static_cast<std::ptrdiff_t>(random.below(v.experts.size() + 1)), e);
    out.push_back(std::move(v));
    layer = layer + (random.one_in(8) ? 2 : 1);
    if (layer >= shape.layers) {
      layer = 0_layer;
      step += random.one_in(6) ? 1 + random.below(30) : 1;
      sequence += random.one_in(5) ? 1U : 0U;
    }
  }
  return out;
}

/// Entry for a policy without options.
template <class P>
struct plain {
  using policy = P;
  static typename P::config options(const geometry&, const script&) { return {}; }
  static void prepare(reference::state&, const geometry&, const script&) {}
};

/// Sends one script to a policy and its naive form, and compares them before every visit.
template <class Entry>
class eviction_walk {
 public:
  using P = typename Entry::policy;
  eviction_walk(const Entry& entry, const pool_layout& layout, std::uint64_t seed,
                std::size_t visits)
      : entry_(entry),
        random_(seed),
        layout_(layout),
        script_(write_script(layout.shape(), visits, random_)),
        policy_(layout, entry.options(layout.shape(), script_)),
        reference_(layout.shape(), rule()),
        eligible_(layout.slots()) {
    entry.prepare(reference_.parameters(), layout.shape(), script_);
    for (const auto s : each<slot_id>(layout.slots())) free_.push_back({s, layout.pool_of_slot(s)});
  }

  /// Returns the first rule that the policy broke, after which event, or an empty text.
  std::string run() {
    heed();
    for (ordinal_ = 0; ordinal_ < script_.size() && problem_.empty(); ++ordinal_)
      visit_once(script_[ordinal_]);
    expect(victims_ > script_.size() / 8 || !problem_.empty(),
           [] { return "the script puts no pressure on the slots"; });
    return problem_;
  }

 private:
  struct vacancy {
    slot_id slot;
    pool_id pool;
  };

  /// Notes the first problem. words(): the rule.
  template <class Words>
  void expect(bool holds, Words words) {
    if (!holds && problem_.empty()) problem_ = words() + std::string(after_);
  }
  /// Notes what the entry reports of the policy's last call.
  void heed() {
    if constexpr (requires { entry_.problem(); })
      if (std::string found = entry_.problem(); !found.empty())
        expect(false, [&] { return found; });
  }
  [[nodiscard]] std::string words_of(std::span<const slot_id> slots) const {
    constexpr std::size_t most = 8;
    std::string out = slots.empty() ? "nothing" : "";
    for (std::size_t i = 0; i < std::min(most, slots.size()); ++i) {
      out += (i == 0 ? "slot " : ", slot ") + std::to_string(number(slots[i]));
      if (const auto at = keys_.find(slots[i]); at != keys_.end())
        out += " (" + words_of(at->second) + ")";
    }
    return slots.size() > most ? out + ", ..." : out;
  }
  static std::string words_of(expert_key key) {
    return "expert " + std::to_string(number(key.expert)) + " of layer " +
           std::to_string(number(key.layer));
  }
  static std::string words_of(const visit& v) {
    std::string out = "a visit of layer " + std::to_string(number(v.layer)) + " by experts";
    for (const auto e : v.experts) out += " " + std::to_string(number(e));
    return out;
  }

  static constexpr bool has_rule = requires { Entry::rule(); };
  static reference::ranking rule() {
    if constexpr (has_rule)
      return Entry::rule();
    else
      return reference::by_recency();  // never called
  }
  /// All eligible slots in eviction order: by the rule, or by the policy itself.
  std::vector<slot_id> order(const visit_context& context) {
    auto naive = reference_.order(context, eligible_);
    if constexpr (has_rule) return naive;
    auto all = order_of_choice(context);
    auto sorted = all;
    std::ranges::sort(sorted);
    std::ranges::sort(naive);
    expect(sorted == naive, [&] {
      return "select_victims named " + words_of(all) +
             " of all eligible slots, accepted: " + words_of(naive) + ", each once";
    });
    return all;
  }
  std::vector<slot_id> order_of_choice(const visit_context& context) {
    std::vector<slot_id> all(layout_.slots(), no_slot);
    all.resize(std::min(all.size(), policy_.select_victims(context, eligible_, all)));
    heed();
    return all;
  }

  expert_use about(expert_key key, slot_id slot, const visit& v) {
    return {.key = key,
            .slot = slot,
            .pool = layout_.pool_of_layer(key.layer),
            .step = v.step,
            .ordinal = ordinal_,
            .weight = static_cast<double>(random_.below(1000)) / 1000.0,
            .kind = v.kind};
  }
  [[nodiscard]] slot_id slot_of(expert_key key) const {
    const auto at = std::ranges::find(keys_, key, &std::pair<const slot_id, expert_key>::second);
    return at == keys_.end() ? no_slot : at->first;
  }
  [[nodiscard]] std::pair<slot_id, expert_key> random_resident() {
    return *std::next(keys_.begin(), static_cast<std::ptrdiff_t>(random_.below(keys_.size())));
  }
  void evict(slot_id slot) {
    const auto key = keys_.at(slot);
    policy_.on_evict(slot, key);
    after_ = ", after " + words_of(key) + " lost slot " + std::to_string(number(slot));
    heed();
    reference_.on_evict(slot, key);
    free_.push_back({slot, layout_.pool_of_layer(key.layer)});
    keys_.erase(slot);
  }
  /// A visit collected for the policy. The naive form receives each use at once.
  struct gathered {
    std::vector<slot_id> used;
    std::vector<hotset::fill> fills;
    std::vector<expert_id> experts;
    std::vector<double> weights;
    std::vector<bypassed_use> bypassed;
  };
  /// Adds a use: of a resident, of a copy into a free or a victim's slot, or without a slot.
  void use(gathered& visit, const expert_use& a, bool is_resident, expert_key victim = no_key) {
    if (a.slot == no_slot) {
      reference_.on_bypass(a);
      visit.bypassed.push_back({a.key.expert, a.weight});
      return;
    }
    if (is_resident) {
      reference_.on_hit(a);
    } else {
      if (victim != no_key) reference_.on_evict(a.slot, victim);
      keep(a);
      visit.fills.push_back({.key = a.key, .slot = a.slot, .victim = victim});
    }
    visit.used.push_back(a.slot);
    visit.experts.push_back(a.key.expert);
    visit.weights.push_back(a.weight);
  }
  void keep(const expert_use& a) {
    keys_[a.slot] = a.key;
    reference_.on_fill(a);
  }
  void tell(const visit& v, const gathered& visit, std::span<const std::uint8_t> counted) {
    const visit_context context{v.layer, layout_.pool_of_layer(v.layer), v.step, ordinal_, v.kind};
    const bool weighed = facts_of(policy_).needs_weights;
    policy_.on_visit({.context = context,
                      .used = visit.used,
                      .fills = visit.fills,
                      .experts = visit.experts,
                      .weights = std::span(visit.weights).first(weighed ? visit.used.size() : 0),
                      .bypassed = visit.bypassed,
                      .counted = counted});
    after_ = ", after " + words_of(v) + ", of which " + std::to_string(visit.used.size()) +
             " have slots and " + std::to_string(visit.fills.size()) + " were copied";
    heed();
  }
  /// Takes a free slot of the pool, or returns no_slot.
  slot_id take_free(pool_id pool) {
    const auto at = std::ranges::find(free_, pool, &vacancy::pool);
    if (at == free_.end()) return no_slot;
    const auto slot = at->slot;
    free_.erase(at);
    return slot;
  }

  static std::vector<slot_id> first_of(const std::vector<slot_id>& slots, std::size_t n) {
    return {slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(std::min(n, slots.size()))};
  }
  /// Requests the first n victims in every way that must give the same answer.
  std::vector<slot_id> ask(const visit_context& context, std::size_t n) {
    const auto expected = order(context);
    constexpr slot_id unwritten{-7};
    std::vector<slot_id> all(layout_.slots() + 2);
    const auto choose = [&](std::size_t wanted) {
      std::fill(all.begin(), all.end(), unwritten);
      const auto count = policy_.select_victims(context, eligible_, std::span(all).first(wanted));
      heed();
      expect(count <= wanted, [&] {
        return "select_victims named " + std::to_string(count) + " slots, accepted: at most " +
               std::to_string(wanted);
      });
      const auto beyond = std::span(all).subspan(wanted);
      expect(static_cast<std::size_t>(std::ranges::count(beyond, unwritten)) == beyond.size(),
             [] { return "select_victims wrote beyond the array of its answer"; });
      return first_of(all, std::min(count, wanted));
    };
    for (const auto wanted : {n, std::size_t{1}, random_.below(expected.size() + 2), n,
                              std::size_t{0}, random_.one_in(4) ? all.size() : n}) {
      if (!problem_.empty()) break;
      const auto got = choose(wanted);
      expect(got == first_of(expected, wanted), [&] {
        return "select_victims named " + words_of(got) + " for " + std::to_string(wanted) +
               " victims, accepted: " + words_of(first_of(expected, wanted)) +
               (has_rule ? ", by the naive form"
                         : ", as a request for all named: a repeated request names the same "
                           "victims, and a smaller one the first of them");
      });
    }
    return first_of(expected, n);
  }

  /// Reports the routing as a pager's plan does. Sometimes an aborted plan of the same visit precedes it.
  void notify_of_routing(const visit& v) {
    std::vector<expert_id> ids(v.experts);
    ids.resize(static_cast<std::size_t>(layout_.shape().top_k), no_expert);
    const auto visit_both = [&] {
      const routing_view view{.layer = v.layer,
                              .step = v.step,
                              .kind = v.kind,
                              .experts = ids,
                              .sequences = std::span(&v.sequence, 1)};
      notify_routed(policy_, view);
      reference_.on_routed(view);
    };
    if (random_.one_in(10)) {
      const auto planned = ids;
      std::swap(ids.front(), ids.back());
      ids.front() = expert_id{random_.id_below(layout_.shape().experts)};
      visit_both();
      ids = planned;
    }
    visit_both();
  }
  /// Sends a forecast of one or two tokens, one or two layers ahead.
  void notify_of_forecast(const visit& v) {
    const auto depth = 1 + random_.below(2);
    const auto tokens = 1 + random_.below(2);
    std::vector<float> rows(tokens * depth * layout_.shape().expert_count());
    for (auto& p : rows) p = static_cast<float>(random_.below(9)) / 16.0F;
    forecast expected;
    expected.probabilities = rows;
    expected.depth = static_cast<std::int32_t>(depth);
    const visit_context context{v.layer, 0_pool, v.step, ordinal_, v.kind};
    notify_forecast(policy_, context, expected);
    reference_.on_forecast(context, expected);
  }

  void visit_once(const visit& v) {
    notify_of_routing(v);
    const auto pool = layout_.pool_of_layer(v.layer);
    eligible_.clear();
    for (const auto& [slot, key] : keys_) {
      const bool used = key.layer == v.layer && std::ranges::count(v.experts, key.expert) != 0;
      eligible_.assign(slot, !used && !random_.one_in(12));
    }
    // Takes free slots of the pool first, as a pager does; then victims.
    std::size_t need = 0;
    for (const auto e : v.experts) need += slot_of({v.layer, e}) == no_slot ? 1U : 0U;
    need -=
        std::min(need, static_cast<std::size_t>(std::ranges::count(free_, pool, &vacancy::pool)));
    const auto victims = ask({v.layer, pool, v.step, ordinal_, v.kind}, need);
    if (!problem_.empty()) return;
    victims_ += victims.size();

    reference_.on_step(v.step, v.layer);
    gathered now;
    std::size_t next_victim = 0;
    for (const auto e : v.experts) {
      const expert_key key{v.layer, e};
      if (const auto held = slot_of(key); held != no_slot) {
        use(now, about(key, held, v), true);
        continue;
      }
      auto slot = random_.one_in(9) ? no_slot : take_free(pool);
      auto victim = no_key;
      if (slot == no_slot && next_victim < victims.size()) {
        slot = victims[next_victim++];
        victim = keys_.at(slot);
      }
      use(now, about(key, slot, v), false, victim);
    }
    tell(v, now, {});
    if (random_.one_in(3)) visit_again(v);
    between(v);
  }
  /// Simulates a later group of the visit: it uses some experts again and restores evicted ones.
  void visit_again(const visit& v) {
    if (random_.one_in(2)) lose_one_of(v);
    std::vector<std::uint8_t> counted(layout_.shape().expert_count(), 0);
    for (const auto e : v.experts) counted[index_of(e)] = 1;
    reference_.on_step(v.step, v.layer);
    const auto pool = layout_.pool_of_layer(v.layer);
    gathered now;
    for (const auto e : v.experts) {
      if (random_.one_in(2)) continue;
      const expert_key key{v.layer, e};
      const auto held = slot_of(key);
      auto a = about(key, held != no_slot ? held : take_free(pool), v);
      a.repeated = true;
      use(now, a, held != no_slot);
    }
    tell(v, now, counted);
  }
  void lose_one_of(const visit& v) {
    const auto slot = slot_of({v.layer, v.experts[random_.below(v.experts.size())]});
    if (slot != no_slot) evict(slot);
  }

  /// Moves a resident like a compaction.
  void move_one() {
    if (keys_.empty()) return;
    const auto [from, key] = random_resident();
    const auto pool = layout_.pool_of_layer(key.layer);
    const auto to = take_free(pool);
    if (to == no_slot) return;
    policy_.on_move(from, to);
    after_ = ", after " + words_of(key) + " moved to slot " + std::to_string(number(to));
    heed();
    reference_.on_move(from, to);
    keys_.erase(from);
    keys_[to] = key;
    free_.push_back({from, pool});
  }
  /// Without an event, an order that does not move by itself must be equal for every context.
  void ask_elsewhere(const visit& v) {
    if (facts_of(policy_).moves_by_itself) return;
    eligible_.clear();
    for (const auto& [slot, key] : keys_) eligible_.set(slot);
    const auto pool = layout_.pool_of_layer(v.layer);
    const auto here = order_of_choice({v.layer, pool, v.step, ordinal_ + 1, v.kind});
    const auto layers = layout_.at(pool).layers;
    const auto other = layers[random_.below(layers.size())];
    const auto there =
        order_of_choice({other, pool, v.step + 1, ordinal_ + 2, request_class::prefill, true});
    expect(here == there, [&] {
      return "select_victims named " + words_of(here) + ", and " + words_of(there) +
             " for another layer and step, accepted: the same, or traits with moves_by_itself";
    });
  }

  static prefetch_event prefetch_of(const expert_use& a) {
    return {.key = a.key, .slot = a.slot, .pool = a.pool, .step = a.step, .ordinal = a.ordinal};
  }
  /// Sends random forecasts, prefetches, requests, invalidations, moves and quota changes.
  void between(const visit& v) {
    if (!problem_.empty()) return;
    if (random_.one_in(3)) notify_of_forecast(v);
    if (random_.one_in(3)) prefetch(v);
    if (random_.one_in(15) && !keys_.empty()) evict(random_resident().first);
    if (random_.one_in(6)) move_one();
    if (random_.one_in(8)) ask_elsewhere(v);
    if (random_.one_in(10) && !free_.empty()) change_pool(free_[random_.below(free_.size())]);
  }
  void prefetch(const visit& v) {
    const auto& shape = layout_.shape();
    const expert_key key{layer_id{random_.id_below(shape.layers)},
                         expert_id{random_.id_below(shape.experts)}};
    const auto meant_for = v.step + random_.below(4) - (random_.one_in(5) ? 2U : 0U);
    if (const auto held = slot_of(key); held != no_slot) {
      auto a = about(key, held, v);
      a.step = meant_for;
      notify_request(policy_, prefetch_of(a));
      reference_.on_request(a);
      return;
    }
    const auto pool = layout_.pool_of_layer(key.layer);
    auto slot = take_free(pool);
    if (slot == no_slot) {
      eligible_.clear();
      for (const auto& [s, k] : keys_) eligible_.set(s);
      const auto running = random_.one_in(6) ? before_layers : v.layer;
      const auto victims = ask({running, pool, v.step, ordinal_ + 1, v.kind, true}, 1);
      if (!problem_.empty() || victims.empty()) return;
      evict(victims.front());
      slot = take_free(pool);
    }
    auto a = about(key, slot, v);
    a.speculative = true;
    a.step = meant_for;
    policy_.on_prefetch(prefetch_of(a));
    after_ =
        ", after a prefetch of " + words_of(key) + " into slot " + std::to_string(number(slot));
    heed();
    keep(a);
  }
  /// Moves a free slot to another pool if that pool may have one more.
  void change_pool(vacancy& moved) {
    const auto to = static_cast<pool_id>(random_.below(layout_.pools()));
    auto held = static_cast<std::size_t>(std::ranges::count(free_, to, &vacancy::pool));
    for (const auto& [s, k] : keys_) held += layout_.pool_of_layer(k.layer) == to ? 1U : 0U;
    if (held < layout_.most_slots(to) &&
        layout_.at(to).size_class == layout_.at(moved.pool).size_class)
      moved.pool = to;
  }

  const Entry& entry_;
  random_source random_;
  pool_layout layout_;
  script script_;
  P policy_;
  reference::policy reference_;
  slot_mask eligible_;
  std::map<slot_id, expert_key> keys_;
  std::vector<vacancy> free_;
  std::uint64_t ordinal_ = 0;
  std::size_t victims_ = 0;
  std::string after_;    ///< the last event, for messages
  std::string problem_;  ///< the first one
};

/// The layouts of the suite: pools for one layer and for all, with one size class and with several.
inline std::vector<std::pair<std::string, pool_layout>> eviction_layouts() {
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
  const geometry wide{.layers = 4, .experts = 96, .top_k = 24};
  out.emplace_back("shared, 170 slots", pool_layout::shared(wide, 170).value());
  out.emplace_back("per layer, 60 slots", pool_layout::per_layer(wide, 60).value());
  return out;
}

/// Walks through every layout with this many seeds, and fewer for large layouts. Returns the first problem.
template <class Entry>
std::string problem_in_walks(const Entry& entry, std::uint64_t seeds) {
  for (const auto& [name, layout] : eviction_layouts()) {
    const bool large = layout.slots() > 100;
    for (std::uint64_t seed = 1; seed <= (large ? seeds / 4 : seeds); ++seed) {
      const auto problem = eviction_walk<Entry>(entry, layout, seed, large ? 250 : 400).run();
      if (!problem.empty()) return problem + " (" + name + ", seed " + std::to_string(seed) + ")";
    }
  }
  return {};
}

/// Returns whether two policies with the same events differ, or a policy and a moved one.
template <class Entry>
std::string problem_of_determinism(const Entry& entry) {
  const auto layout = eviction_layouts()[2].second;
  const auto options = entry.options(layout.shape(), {});
  using P = typename Entry::policy;
  const auto play = [&](bool move) {
    auto policy = std::make_unique<P>(layout, options);
    slot_mask eligible(layout.slots());
    for (const auto s : each<slot_id>(3)) {
      policy->on_prefetch({.key = {0_layer, expert_id{number(s) + 1}}, .slot = s});
      eligible.set(s);
    }
    if (move) policy = std::make_unique<P>(std::move(*policy));
    std::vector<slot_id> out(4, no_slot);
    out.resize(std::min(out.size(), policy->select_victims({}, eligible, out)));
    return out;
  };
  const auto first = play(false);
  if (first.size() != 3) return "select_victims named fewer victims than 3 eligible slots";
  if (first != play(false)) return "two policies with the same events named other victims";
  if (first != play(true)) return "a policy that was moved named other victims";
  return {};
}

/// Returns whether a policy names victims if no slot is eligible or none is requested.
template <class Entry>
std::string problem_with_nothing(const Entry& entry) {
  const auto layout = eviction_layouts()[0].second;
  typename Entry::policy policy(layout, entry.options(layout.shape(), {}));
  slot_mask eligible(layout.slots());
  std::vector<slot_id> out(3, no_slot);
  const auto chosen = [&](std::span<slot_id> into) {
    return policy.select_victims({}, eligible, into);
  };
  if (chosen(out) != 0) return "select_victims named victims before the first event";
  policy.on_prefetch({.key = {0_layer, 1_expert}, .slot = 5_slot});
  if (chosen(out) != 0) return "select_victims named victims, and no slot is eligible";
  eligible.set(5_slot);
  if (chosen({}) != 0) return "select_victims named victims, and none was requested";
  if (chosen(out) != 1 || out[0] != 5)
    return "select_victims did not name slot 5, the only eligible one";
  return {};
}

}  // namespace hotset::suites
