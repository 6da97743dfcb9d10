// SPDX-License-Identifier: Apache-2.0
#pragma once
/// similar_steps without optimisation, from its rule: lists of ids, all rows ever written, and sorting. A complete
/// cache for visits that fit.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/predict/history/next_use_values.hpp"
#include "naive_history.hpp"

namespace hotset::support {

class naive_similar_steps {
 public:
  using config = next_use_values::config;

  /// Slots of each layer's pool, or of the shared pool.
  naive_similar_steps(const geometry& shape, const config& options, std::size_t slots, bool shared)
      : shape_(shape),
        options_(options),
        history_(shape, options.history.value_or(routing_history::config{})),
        slots_(slots),
        shared_(shared) {
    const auto experts = static_cast<std::size_t>(shape.experts);
    for (const auto l : each<layer_id>(shape.layers)) {
      fast_[l].assign(experts, 0.0F);
      slow_[l].assign(experts, 0.0F);
      value_[l].assign(experts, 0.0F);
    }
  }

  /// Returns the misses. Pre: the visit fits, and no layer is visited twice in a step.
  std::size_t visit(step_id step, layer_id layer, const std::vector<naive_token>& tokens) {
    const auto used = distinct(tokens);
    update_rates(layer, used);
    const auto streams =
        options_.history ? history_.stage(step, layer, tokens) : std::vector<stream>{};
    auto worth = values(layer, streams);
    const auto missed = serve(layer, tokens, used, worth);
    history_.keep(step, layer, tokens, streams, shared_ || evicted_);
    value_[layer] = worth;
    return missed;
  }

  [[nodiscard]] std::set<std::pair<layer_id, expert_id>> residents() const {
    std::set<std::pair<layer_id, expert_id>> out;
    for (const auto& [key, position] : resident_) out.insert(key);
    return out;
  }

 private:
  using pair_key = std::pair<layer_id, expert_id>;
  using stream = naive_history::stream;
  [[nodiscard]] std::vector<expert_id> distinct(const std::vector<naive_token>& tokens) const {
    std::vector<expert_id> out;
    for (const auto& token : tokens)
      for (const auto id : token.ids)
        if (id >= 0 && id < shape_.experts && std::ranges::find(out, id) == out.end())
          out.push_back(id);
    return out;
  }

  void update_rates(layer_id layer, const std::vector<expert_id>& used) {
    const auto step_of = [&](double half_life) {
      const auto least = static_cast<float>(1 - std::exp2(-1 / half_life));
      return std::max(least, 1.0F / (static_cast<float>(visits_[layer] + 1) + 1.0F));
    };
    const auto move = [&](std::vector<float>& rates, float by) {
      for (auto& rate : rates) rate = std::fma(-by, rate, rate);
      for (const auto e : used) rates[static_cast<std::size_t>(e)] += by;
    };
    move(fast_[layer], step_of(options_.rates.fast_half_life));
    move(slow_[layer], step_of(options_.rates.slow_half_life));
    ++visits_[layer];
  }

  std::vector<float> values(layer_id layer, const std::vector<stream>& streams) const {
    const auto experts = static_cast<std::size_t>(shape_.experts);
    const float of_each = 1.0F / static_cast<float>(std::max<std::size_t>(streams.size(), 1));
    const float blend = static_cast<float>(options_.rates.blend);
    std::vector<float> unused(experts, 1.0F);
    std::vector<float> last(experts, 0.0F);
    for (const auto& of : streams) {
      float total = 0;
      float left = 0;
      const auto votes = vote(layer, of, total, left);
      const float rest = left + next_use_values::doubt;
      const float scale = 1.0F / (total + next_use_values::doubt);
      for (std::size_t e = 0; e < experts; ++e) {
        const float rate = std::fma(blend * of_each, fast_.at(layer)[e],
                                    (1.0F - blend) * of_each * slow_.at(layer)[e]);
        last[e] = std::fma(rest, rate, votes[e]) * scale;
        unused[e] *= 1.0F - std::min(last[e], 1.0F);
      }
    }
    std::vector<float> out(experts);
    for (std::size_t e = 0; e < experts; ++e) {
      float likely = streams.size() == 1 ? last[e] : 1.0F - unused[e];
      if (streams.empty())
        likely = std::fma(blend, fast_.at(layer)[e], (1.0F - blend) * slow_.at(layer)[e]);
      out[e] = std::fma(static_cast<float>(options_.lately), fast_.at(layer)[e], likely);
    }
    return out;
  }
  std::vector<float> vote(layer_id layer, const stream& of, float& total, float& left) const {
    const auto best = history_.best(of.similar, true, static_cast<std::size_t>(options_.matches));
    std::vector<float> votes(static_cast<std::size_t>(shape_.experts), 0.0F);
    for (const auto& [similarity, r] : best) {
      const auto weight =
          static_cast<float>(std::exp(options_.sharpness * ((similarity / 16 + 0.5) / 2048 - 0.7)));
      total += weight;
      std::set<expert_id> seen;
      int h = 0;
      const auto now = [&] {
        return weight * static_cast<float>(std::pow(options_.discount, static_cast<double>(h)));
      };
      for (int next = history_.successor(r); h < options_.horizon && next >= 0;
           next = history_.successor(next), ++h)
        if (const auto set = history_.at(next).sets.find(layer);
            set != history_.at(next).sets.end())
          for (const auto e : set->second)
            if (seen.insert(e).second) votes[static_cast<std::size_t>(e)] += now();
      left += now();
    }
    return votes;
  }

  std::size_t serve(layer_id layer, const std::vector<naive_token>& tokens,
                    const std::vector<expert_id>& used, const std::vector<float>& worth) {
    std::size_t missed = 0;
    for (const auto e : used) missed += 1 - resident_.count({layer, e});
    std::vector<std::tuple<double, std::uint64_t, pair_key>> others;
    std::size_t held = 0;
    for (const auto& [k, position] : resident_) {
      if (!shared_ && k.first != layer) continue;
      ++held;
      if (k.first == layer && std::ranges::find(used, k.second) != used.end()) continue;
      const auto distance = (k.first - layer - 1 + shape_.layers) % shape_.layers + 1;
      const auto factor = static_cast<float>(std::pow(
          options_.discount, static_cast<double>(distance) / static_cast<double>(shape_.layers)));
      const auto& row = k.first == layer ? worth : value_.at(k.first);
      others.emplace_back(double{row[static_cast<std::size_t>(k.second)]} * double{factor},
                          position, k);
    }
    std::ranges::sort(others);
    evicted_ = held + missed > slots_;  // otherwise only a shared pool needs the values
    for (std::size_t n = 0; held + missed > slots_ + n; ++n)
      resident_.erase(std::get<pair_key>(others[n]));
    // Recency follows the last appearance.
    std::vector<expert_id> order;
    for (const auto& token : tokens)
      for (const auto id : token.ids) {
        if (id < 0 || id >= shape_.experts) continue;
        std::erase(order, id);
        order.push_back(id);
      }
    for (const auto e : order) resident_[{layer, e}] = ++clock_;
    return missed;
  }

  geometry shape_;
  config options_;
  naive_history history_;
  std::size_t slots_;
  bool shared_;
  bool evicted_ = false;  // at the last visit
  std::map<layer_id, std::vector<float>> fast_;
  std::map<layer_id, std::vector<float>> slow_;
  std::map<layer_id, std::vector<float>> value_;
  std::map<layer_id, int> visits_;
  std::map<pair_key, std::uint64_t> resident_;
  std::uint64_t clock_ = 0;
};

}  // namespace hotset::support
