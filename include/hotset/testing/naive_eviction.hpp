// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Naive forms of eviction rules, with std::map and sort. Policies under test must agree with them.
///
/// A rule is a `ranking`: it appends numbers to a list. The resident with the smaller list is evicted first.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "hotset/core/forecast.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/core/visit_event.hpp"

namespace hotset::reference {

/// State of one resident key that rules read.
struct resident {
  expert_key key;
  pool_id pool{};
  double position = 0;  // recency
  double arrival = 0;
  double uses = 0;        // visits since the fill
  double since_fill = 1;  // counts every fill, demand or prefetch, as a use
  step_id epoch = 0;
  bool unused = false;             // prefetched and not used yet
  std::optional<step_id> decoded;  // last decode use
};

/// Forecast for one layer.
struct expectation {
  step_id step = 0;
  std::vector<double> mean;  // over tokens
  std::vector<double> most;
};

/// A visit that the naive form may read in advance.
struct planned_visit {
  step_id step = 0;
  layer_id layer{};
  std::set<expert_id> experts;
};

/// The state that all naive forms read.
struct state {
  geometry shape;
  std::map<slot_id, resident> residents;
  double clock = 0;
  std::uint64_t visits = 0;
  std::map<expert_key, double> counts;  // lfu: whole counts
  std::map<expert_key, double> gates;
  std::map<expert_key, std::pair<double, step_id>> heat;           // lfru: f, last
  std::map<layer_id, std::vector<std::vector<expert_id>>> routed;  // tokens, oldest first
  std::map<layer_id, expectation> expected;
  std::map<layer_id, expectation> expected_of_request;  // dropped when another request starts
  /// Experts routed for each request, layer by layer.
  std::map<std::pair<sequence_id, layer_id>, std::vector<expert_id>> activated;
  std::vector<sequence_id>
      asking;  // sequences of the last view, each once, in order of their first token
  std::set<sequence_id> running;
  step_id running_step = ~step_id{0};
  /// The experts of each visit of a layer, oldest first; and those of the planned visit.
  std::map<layer_id, std::vector<std::set<expert_id>>> visited;
  std::optional<planned_visit> planned;
  /// By layer: a number of tokens and the last sum of their uses.
  mutable std::map<layer_id, std::pair<std::size_t, std::vector<double>>> recent_uses;
  // parameters
  std::uint64_t ageing_period = 0;
  double ema = -1;  // decay; negative: sum
  double decay = 0.999;
  std::map<expert_key, double> profile;
  std::map<expert_key, std::set<std::uint64_t>> future;
  std::map<layer_id, std::set<std::uint64_t>> visits_to_come;
};

/// Appends the sort key of a rule: the smaller is evicted first. Rules compose by appending in sequence.
using ranking =
    std::function<void(const state&, const resident&, const visit_context&, std::vector<double>&)>;

/// base to the power of n, by repeated multiplication.
inline double power(double base, std::uint64_t n) {
  double p = 1.0;
  while (n-- > 0) p *= base;
  return p;
}
/// Evicts the resident with the smallest score(state, resident, context); ties: the least recently used.
template <class Score>
ranking by_score(Score score) {
  return [=](const state& s, const resident& r, const visit_context& c, std::vector<double>& out) {
    out.push_back(score(s, r, c));
    out.push_back(r.position);
  };
}

/// Evicts the least recently used resident.
inline ranking by_recency() {
  return [](const state&, const resident& r, const visit_context&, std::vector<double>& out) {
    out.push_back(r.position);
  };
}
/// Evicts the resident that arrived first.
inline ranking by_arrival() {
  return [](const state&, const resident& r, const visit_context&, std::vector<double>& out) {
    out.push_back(r.arrival);
  };
}

/// Receives the events of a policy.
class policy {
 public:
  policy(const geometry& shape, ranking rank) : rank_(std::move(rank)) { state_.shape = shape; }

  state& parameters() { return state_; }

  /// Stores the routed experts; they count when the visit takes place.
  void on_routed(const routing_view& view) {
    planned_.clear();
    const auto k = static_cast<std::size_t>(state_.shape.top_k);
    for (std::size_t t = 0; t + k <= view.chosen().size(); t += k) {
      const auto row = view.chosen().subspan(t, k);
      planned_.emplace_back(row.begin(), row.end());
    }
    const auto& routed = view.experts;
    state_.planned = planned_visit{view.step, view.layer, {routed.begin(), routed.end()}};
    planned_of_.assign(view.sequences.begin(), view.sequences.end());
    if (planned_of_.empty()) planned_of_.assign(std::max<std::size_t>(1, planned_.size()), 0);
    state_.asking.clear();
    for (const auto s : planned_of_)
      if (std::ranges::find(state_.asking, s) == state_.asking.end()) state_.asking.push_back(s);
    if (view.step == state_.running_step) return;
    state_.running_step = view.step;
    const std::set<sequence_id> named(view.sequences.begin(), view.sequences.end());
    bool goes_on = false;
    for (const auto s : named) goes_on = goes_on || state_.running.contains(s);
    if (!goes_on) state_.expected_of_request.clear();
    state_.running = named;
  }
  void on_forecast(const visit_context& context, const forecast& expected) {
    const auto width = static_cast<std::size_t>(state_.shape.experts);
    const auto depth = static_cast<std::size_t>(expected.depth);
    const auto tokens = expected.probabilities.size() / width / depth;
    for (std::size_t d = 0; d < depth; ++d) {
      const auto layer = context.layer + 1 + static_cast<std::int32_t>(d);
      if (layer >= state_.shape.layers) break;
      expectation one{context.step, std::vector<double>(width, 0), std::vector<double>(width, 0)};
      for (std::size_t e = 0; e < width; ++e) {
        for (std::size_t t = 0; t < tokens; ++t) {
          const double p = expected.probabilities[(t * depth + d) * width + e];
          one.mean[e] += p;
          one.most[e] = std::max(one.most[e], p);
        }
        one.mean[e] /= static_cast<double>(tokens);
      }
      state_.expected[layer] = one;
      state_.expected_of_request[layer] = one;
    }
  }
  void on_step(step_id, layer_id layer) {
    for (std::size_t t = 0; t < planned_.size(); ++t) {
      auto& ids = state_.activated[{planned_of_[t], layer}];
      ids.insert(ids.end(), planned_[t].begin(), planned_[t].end());
    }
    for (auto& token : planned_) state_.routed[layer].push_back(std::move(token));
    planned_.clear();
    if (state_.planned) state_.visited[layer].push_back(std::move(state_.planned->experts));
    state_.planned.reset();
    if (state_.ageing_period == 0) return;
    if (state_.visits == state_.ageing_period) {
      for (auto& [key, count] : state_.counts) count = halved(count);
      for (auto& [slot, r] : state_.residents) r.uses = halved(r.uses);
      state_.visits = 0;
    }
    ++state_.visits;
  }
  void on_hit(const expert_use& a) {
    auto& r = state_.residents.at(a.slot);
    r.position = ++state_.clock;
    if (!a.repeated) ++r.uses;
    if (!a.repeated) ++r.since_fill;
    r.epoch = std::max(r.epoch, a.step);
    r.unused = false;
    if (a.kind != request_class::prefill) r.decoded = a.step;
    use(a);
  }
  void on_fill(const expert_use& a) {
    resident r;
    r.key = a.key;
    r.pool = a.pool;
    r.position = ++state_.clock;
    r.arrival = state_.clock;
    r.uses = a.speculative ? 0 : 1;
    r.epoch = a.step;
    r.unused = a.speculative;
    if (!a.speculative && a.kind != request_class::prefill) r.decoded = a.step;
    state_.residents[a.slot] = r;
    if (!a.speculative) use(a);
  }
  void on_bypass(const expert_use& a) { use(a); }
  void on_request(const expert_use& a) {
    auto& r = state_.residents.at(a.slot);
    r.epoch = std::max(r.epoch, a.step);
  }
  void on_evict(slot_id slot, expert_key) { state_.residents.erase(slot); }
  void on_move(slot_id from, slot_id to) {
    state_.residents[to] = state_.residents.at(from);
    state_.residents.erase(from);
  }

  [[nodiscard]] std::vector<slot_id> order(const visit_context& context,
                                           const slot_mask& eligible) const {
    std::vector<std::pair<std::vector<double>, slot_id>> ranked;
    for (const auto& [slot, r] : state_.residents) {
      if (r.pool != context.pool || !eligible.test(slot)) continue;
      std::vector<double> key;
      rank_(state_, r, context, key);
      ranked.emplace_back(std::move(key), slot);
    }
    std::sort(ranked.begin(), ranked.end());
    std::vector<slot_id> out;
    out.reserve(ranked.size());
    for (const auto& [key, slot] : ranked) out.push_back(slot);
    return out;
  }

 private:
  static double halved(double count) { return std::floor(count / 2); }
  void use(const expert_use& a) {
    auto& gate = state_.gates[a.key];
    if (state_.ema < 0)
      gate += a.weight;
    else
      gate = (a.repeated ? gate : state_.ema * gate) + (1.0 - state_.ema) * a.weight;
    if (a.repeated) return;
    ++state_.counts[a.key];
    auto& [f, last] = state_.heat[a.key];
    f = f * power(state_.decay, a.step - last) + 1.0;
    last = a.step;
  }

  state state_;
  ranking rank_;
  std::vector<std::vector<expert_id>> planned_;
  std::vector<sequence_id> planned_of_;  // sequences of its tokens
};

}  // namespace hotset::reference
