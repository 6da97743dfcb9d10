// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The rules of the library's eviction policies without optimisation.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "hotset/core/visit_event.hpp"
#include "hotset/testing/naive_eviction.hpp"

namespace hotset::reference {

/// A map's value for a key, or 0.
inline double value_of(const std::map<expert_key, double>& values, expert_key key) {
  const auto found = values.find(key);
  return found == values.end() ? 0.0 : found->second;
}
/// How many layers after the context's layer the key's layer runs.
inline std::int32_t layers_ahead(const state& s, expert_key key, const visit_context& c) {
  return ((key.layer - c.layer - 1) % s.shape.layers + s.shape.layers) % s.shape.layers;
}
/// Naive form of lfu.
inline ranking by_whole_count() {
  return by_score(
      [](const state& s, const resident& r, const auto&) { return value_of(s.counts, r.key); });
}
/// Naive form of lfu that counts residents alone.
inline ranking by_resident_count() {
  return by_score([](const state&, const resident& r, const auto&) { return r.uses; });
}
/// Naive form of gate_score.
inline ranking by_gate() {
  return by_score(
      [](const state& s, const resident& r, const auto&) { return value_of(s.gates, r.key); });
}
/// Naive form of popularity.
inline ranking by_profile() {
  return by_score(
      [](const state& s, const resident& r, const auto&) { return value_of(s.profile, r.key); });
}
/// Naive form of lfru.
inline ranking by_decayed_frequency() {
  return by_score([](const state& s, const resident& r, const visit_context& c) {
    const auto found = s.heat.find(r.key);
    if (found == s.heat.end()) return 0.0;
    const auto [f, last] = found->second;
    const auto age = c.step - last;
    return f * power(s.decay, age) / static_cast<double>(age + 1);
  });
}
/// Naive form of furthest_layer.
inline ranking by_layer_distance() {
  return by_score([](const state& s, const resident& r, const visit_context& c) {
    return -static_cast<double>(layers_ahead(s, r.key, c));
  });
}
/// 0 stale, 1 current, 2 used by a later layer.
inline double staleness(const resident& r, const visit_context& c) {
  return r.epoch < c.step ? 0.0 : r.epoch == c.step ? 1.0 : 2.0;
}
/// Naive form of least_stale with order `left`, or `stale`.
inline ranking by_staleness(bool stale_first = false) {
  return [=](const state&, const resident& r, const visit_context& c, std::vector<double>& out) {
    const bool left = r.key.layer <= c.layer;
    const auto group = static_cast<std::size_t>(staleness(r, c));
    // Rank by stale, current, later; for layers to the left and to the right.
    const double by_left[3][2] = {{0, 2}, {1, 3}, {4, 5}};
    const double by_stale[3][2] = {{0, 1}, {2, 3}, {4, 5}};
    out.push_back((stale_first ? by_stale : by_left)[group][left ? 0 : 1]);
    out.push_back(left ? number(r.key.layer) : -number(r.key.layer));
    out.push_back(r.arrival);
  };
}
/// Naive form of least_stale ordered by layers.
inline ranking by_staleness_and_layer() {
  return [](const state&, const resident& r, const visit_context& c, std::vector<double>& out) {
    out.insert(out.end(), {staleness(r, c), static_cast<double>(r.key.layer), r.arrival});
  };
}
/// Naive form of least_stale by epochs.
inline ranking by_epoch() {
  return [](const state&, const resident& r, const visit_context&, std::vector<double>& out) {
    out.insert(out.end(),
               {static_cast<double>(r.epoch), static_cast<double>(r.key.layer), r.position});
  };
}
/// Naive form of belady.
inline ranking by_next_use() {
  return by_score([](const state& s, const resident& r, const visit_context& c) {
    const auto found = s.future.find(r.key);
    if (found == s.future.end()) return -1e300;
    // A policy is asked before the visit is recorded, so this visit's experts count as used now.
    const auto use = found->second.lower_bound(c.ordinal);
    return use == found->second.end() ? -1e300 : -static_cast<double>(*use);
  });
}
/// Rate as in two_rates, from the first visit on; includes the planned visit if it asks.
inline float recent_rate(const state& s, expert_key key, const visit_context& c) {
  float fast = 0;
  float slow = 0;
  float seen = 0;
  const auto see = [&](const std::set<expert_id>& used) {
    ++seen;
    const auto move = [&](float& rate, double half_life) {
      const auto least = static_cast<float>(1 - std::exp2(-1 / half_life));
      const auto step = std::max(least, 1.0F / (seen + 1.0F));
      rate = std::fma(-step, rate, rate);
      if (used.contains(key.expert)) rate += step;
    };
    move(fast, 2);
    move(slow, 128);
  };
  const auto found = s.visited.find(key.layer);
  if (found != s.visited.end())
    for (const auto& used : found->second) see(used);
  if (s.planned && s.planned->layer == key.layer && c.layer == key.layer &&
      s.planned->step == c.step)
    see(s.planned->experts);
  const auto blend = static_cast<float>(0.4);
  return std::fma(blend, fast, (1.0F - blend) * slow);
}
/// Whether the next visit of the key's layer uses it.
inline bool in_next_visit(const state& s, expert_key key, const visit_context& c) {
  const auto visits = s.visits_to_come.find(key.layer);
  if (visits == s.visits_to_come.end()) return false;
  const auto from = c.speculative ? c.ordinal : c.ordinal + 1;
  const auto next = visits->second.lower_bound(from);
  const auto uses = s.future.find(key);
  return next != visits->second.end() && uses != s.future.end() && uses->second.contains(*next);
}
/// Only the next visit of each layer is known.
inline ranking by_next_visit() {
  return [](const state& s, const resident& r, const visit_context& c, std::vector<double>& out) {
    const auto ahead = layers_ahead(s, r.key, c);
    const bool wanted = in_next_visit(s, r.key, c);
    const auto worth = static_cast<float>(std::pow(0.6, (ahead + 1.0) / s.shape.layers));
    out.push_back(wanted ? 1 : 0);
    out.push_back(wanted ? -static_cast<double>(ahead)
                         : double{recent_rate(s, r.key, c)} * double{worth});
    out.push_back(r.position);
  };
}
/// Uses of each expert of a layer by its last tokens, weighted by age.
inline const std::vector<double>& recent_uses(const state& s, layer_id layer, double gamma,
                                              std::size_t window) {
  const auto found = s.routed.find(layer);
  const auto count = found == s.routed.end() ? 0 : found->second.size();
  auto& [of_tokens, uses] = s.recent_uses[layer];
  if (of_tokens == count && !uses.empty()) return uses;
  of_tokens = count;
  uses.assign(static_cast<std::size_t>(s.shape.experts), 0);
  double worth = 1;
  for (std::size_t age = 0; age < std::min(window, count); ++age, worth *= gamma) {
    const auto& token = found->second[count - 1 - age];
    for (const auto e : std::set<expert_id>(token.begin(), token.end()))
      if (e >= 0) uses[index_of(e)] += worth;
  }
  return uses;
}
/// Naive form of ActiveEvict's importance, equations 8 to 13.
inline ranking by_importance(double alpha, double gamma, std::size_t window) {
  return by_score([=](const state& s, const resident& r, const visit_context& c) {
    const auto& uses = recent_uses(s, r.key.layer, gamma, window);
    std::set<expert_id> there;
    for (const auto& [slot, other] : s.residents)
      if (other.key.layer == r.key.layer) there.insert(other.key.expert);
    double all = 0;
    for (const auto e : there) all += uses[index_of(e)];
    const double own = uses[index_of(r.key.expert)];
    const double h = all > 0 ? own / all : 0;
    const auto told = s.expected.find(r.key.layer);
    if (told == s.expected.end() || told->second.step != c.step) return h;
    return alpha * h + (1 - alpha) * told->second.mean[index_of(r.key.expert)];
  });
}
/// Naive form of fMoE's rule: expected probability times uses.
inline ranking by_expected_uses(bool since_fill) {
  return by_score([=](const state& s, const resident& r, const auto&) {
    const auto told = s.expected_of_request.find(r.key.layer);
    const double p = told == s.expected_of_request.end()
                         ? double{1.0F / static_cast<float>(s.shape.experts)}
                         : told->second.most[index_of(r.key.expert)];
    return p * (since_fill ? r.since_fill : value_of(s.counts, r.key));
  });
}
/// Naive form of MoE-Infinity's rule: the key's share of the running requests' routing in its layer.
inline ranking by_activation_ratio() {
  return by_score([](const state& s, const resident& r, const auto&) {
    double mean = 0;
    for (const auto request : s.asking) {
      const auto found = s.activated.find({request, r.key.layer});
      if (found == s.activated.end()) continue;
      const auto& ids = found->second;
      const auto all = std::ranges::count_if(ids, [](expert_id e) { return e >= 0; });
      const auto own = std::ranges::count(ids, r.key.expert);
      if (all > 0) mean += static_cast<double>(own) / static_cast<double>(all);
    }
    return s.asking.empty() ? 0.0 : mean / static_cast<double>(s.asking.size());
  });
}
/// Naive form of protect_hot.
inline ranking sparing_hot(double uses, ranking inner) {
  return [=](const state& s, const resident& r, const visit_context& c, std::vector<double>& out) {
    out.push_back(r.uses >= uses ? 1.0 : 0.0);
    inner(s, r, c, out);
  };
}
/// Naive form of protect_decode.
inline ranking sparing_decode(step_id window, ranking inner) {
  return [=](const state& s, const resident& r, const visit_context& c, std::vector<double>& out) {
    const bool spared =
        c.kind == request_class::prefill && r.decoded && c.step - *r.decoded <= window;
    out.push_back(spared ? 1.0 : 0.0);
    inner(s, r, c, out);
  };
}

/// Reserves a share of a pool's residents for prefetched experts that are still unused.
inline ranking reserving(double share, ranking inner) {
  return [=](const state& s, const resident& r, const visit_context& c, std::vector<double>& out) {
    const auto key_of = [&](const resident& one) {
      std::vector<double> key;
      inner(s, one, c, key);
      return key;
    };
    const auto own = key_of(r);
    double held = 0;
    double unused = 0;
    double sooner = 0;  // unused ones that the inner rule evicts before this one
    for (const auto& [slot, other] : s.residents) {
      if (other.pool != r.pool) continue;
      ++held;
      if (!other.unused) continue;
      ++unused;
      if (r.unused && key_of(other) < own) ++sooner;
    }
    const auto reserved = std::min(std::max(std::floor(share * held + 0.5), 1.0), held - 1);
    if (c.speculative)
      out.push_back(r.unused == (unused >= reserved) ? 0.0 : 1.0);
    else
      out.push_back(!r.unused ? 1.0 : sooner < unused - reserved ? 0.0 : 2.0);
    out.insert(out.end(), own.begin(), own.end());
  };
}

}  // namespace hotset::reference
