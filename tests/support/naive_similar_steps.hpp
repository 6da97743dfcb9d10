// SPDX-License-Identifier: Apache-2.0
#pragma once
/// `similar_steps` again, from its rule alone: lists of ids, every row that ever was, and sorting. A whole cache, for visits that fit.

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
#include "hotset/predict/next_use_values.hpp"

namespace hotset::support {

struct naive_token {
  sequence_id sequence = 0;
  std::vector<expert_id> ids;
};

class naive_similar_steps {
 public:
  using config = next_use_values::config;

  /// Slots of each layer's pool, or of the one pool of all.
  naive_similar_steps(const geometry& shape, const config& options, std::size_t slots, bool shared)
      : shape_(shape), options_(options), slots_(slots), shared_(shared) {
    const auto experts = static_cast<std::size_t>(shape.experts);
    for (layer_id l = 0; l < shape.layers; ++l) {
      fast_[l].assign(experts, 0.0F);
      slow_[l].assign(experts, 0.0F);
      value_[l].assign(experts, 0.0F);
    }
  }

  /// Returns the misses. Pre: the visit fits, and no layer is visited twice in a step.
  std::size_t visit(step_id step, layer_id layer, const std::vector<naive_token>& tokens) {
    const auto used = distinct(tokens);
    update_rates(layer, used);
    const auto streams = options_.history ? stage(step, layer, tokens) : std::vector<stream>{};
    auto worth = values(layer, streams);
    const auto missed = serve(layer, tokens, used, worth);
    keep(step, layer, tokens, streams);
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
  struct token_row {
    sequence_id sequence = 0;
    step_id step = 0;
    std::map<layer_id, std::set<expert_id>> sets{};
    int before = -1;
    int after = -1;
  };
  struct stream {
    sequence_id sequence = 0;
    std::set<expert_id> last;
    std::size_t tokens = 0;
    std::vector<std::uint32_t> similar;  // [row]
  };

  [[nodiscard]] std::set<expert_id> valid(const std::vector<expert_id>& ids) const {
    std::set<expert_id> out;
    for (const auto id : ids)
      if (id >= 0 && id < shape_.experts) out.insert(id);
    return out;
  }
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

  [[nodiscard]] int first_row() const {
    const auto kept = static_cast<std::size_t>(history_.rows);
    return rows_.size() > kept ? static_cast<int>(rows_.size() - kept) : 0;
  }
  [[nodiscard]] bool is_kept(int r) const { return r >= first_row(); }
  [[nodiscard]] const token_row& at(int r) const { return rows_[static_cast<std::size_t>(r)]; }

  std::vector<stream> stage(step_id step, layer_id layer, const std::vector<naive_token>& tokens) {
    std::vector<stream> out;
    for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) {
      auto found = std::ranges::find(out, token->sequence, &stream::sequence);
      if (found == out.end())
        found = out.insert(out.end(), {token->sequence, valid(token->ids), 0, {}});
      ++found->tokens;
    }
    const auto decay = static_cast<std::uint32_t>(
        std::clamp(history_.reach / shape_.layers * 65536, 1.0, 65535.0));
    for (auto& of : out) {
      of.similar.assign(rows_.size(), 0);
      const auto known = similar_.find(of.sequence);
      const bool goes_on = known != similar_.end() && of.tokens == 1;
      for (int r = first_row(); r < static_cast<int>(rows_.size()); ++r) {
        auto& s = of.similar[static_cast<std::size_t>(r)];
        if (goes_on && step == step_) s = known->second[static_cast<std::size_t>(r)];
        if (goes_on && step != step_ && at(r).before >= 0 && is_kept(at(r).before))
          s = known->second[static_cast<std::size_t>(at(r).before)];
        std::uint32_t matches = 0;
        if (const auto set = at(r).sets.find(layer); set != at(r).sets.end())
          for (const auto e : of.last) matches += static_cast<std::uint32_t>(set->second.count(e));
        s -= s * decay / 65536;
        if (!of.last.empty()) s += decay / 2 / static_cast<std::uint32_t>(of.last.size()) * matches;
      }
    }
    staged_step_ = step;
    return out;
  }
  /// A row that has a successor whose step has ended.
  [[nodiscard]] int successor(int r) const {
    const auto next = at(r).after;
    if (next < 0) return -1;
    return staged_step_ == step_ && at(next).step == step_ ? -1 : next;
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
      const float rest = left + static_cast<float>(options_.doubt);
      const float scale = 1.0F / (total + static_cast<float>(options_.doubt));
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
    std::vector<std::pair<std::uint32_t, int>> best;  // similarity, row: of equals the latest first
    for (int r = first_row(); r < static_cast<int>(rows_.size()); ++r)
      if (of.similar[static_cast<std::size_t>(r)] > 0 && successor(r) >= 0)
        best.emplace_back(of.similar[static_cast<std::size_t>(r)], r);
    std::sort(best.rbegin(), best.rend());
    if (best.size() > static_cast<std::size_t>(options_.matches))
      best.resize(static_cast<std::size_t>(options_.matches));
    std::vector<float> votes(static_cast<std::size_t>(shape_.experts), 0.0F);
    for (const auto& [similarity, r] : best) {
      const auto weight = static_cast<float>(std::exp(
          options_.weights.sharpness * ((similarity / 16 + 0.5) / 2048 - options_.weights.middle)));
      total += weight;
      std::set<expert_id> seen;
      int h = 0;
      const auto now = [&] {
        return weight * static_cast<float>(std::pow(options_.discount, static_cast<double>(h)));
      };
      for (int next = successor(r); h < options_.horizon && next >= 0; next = successor(next), ++h)
        if (const auto set = at(next).sets.find(layer); set != at(next).sets.end())
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

  void keep(step_id step, layer_id layer, const std::vector<naive_token>& tokens,
            const std::vector<stream>& streams) {
    if (step != step_) {
      step_ = step;
      running_.clear();
      for (const auto& token : tokens) {
        const auto r = static_cast<int>(rows_.size());
        rows_.push_back({token.sequence, step, {}, -1, -1});
        if (const auto last = last_.find(token.sequence);
            last != last_.end() && is_kept(last->second)) {
          rows_.back().before = last->second;
          rows_[static_cast<std::size_t>(last->second)].after = r;
        }
        last_[token.sequence] = r;
        running_.push_back(r);
      }
    }
    for (const auto& of : streams) similar_[of.sequence] = of.similar;
    for (auto& [sequence, all] : similar_) all.resize(rows_.size(), 0);
    for (std::size_t t = 0; t < tokens.size(); ++t)
      rows_[static_cast<std::size_t>(running_[t])].sets[layer] = valid(tokens[t].ids);
  }

  geometry shape_;
  config options_;
  routing_history::config history_ = options_.history.value_or(routing_history::config{});
  std::size_t slots_;
  bool shared_;
  std::map<layer_id, std::vector<float>> fast_;
  std::map<layer_id, std::vector<float>> slow_;
  std::map<layer_id, std::vector<float>> value_;
  std::map<layer_id, int> visits_;
  std::vector<token_row> rows_;
  std::vector<int> running_;  // rows of this step, by token
  std::map<sequence_id, int> last_;
  std::map<sequence_id, std::vector<std::uint32_t>> similar_;
  step_id step_ = ~step_id{0};
  step_id staged_step_ = 0;
  std::map<pair_key, std::uint64_t> resident_;
  std::uint64_t clock_ = 0;
};

}  // namespace hotset::support
