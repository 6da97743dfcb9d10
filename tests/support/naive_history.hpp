// SPDX-License-Identifier: Apache-2.0
#pragma once
/// routing_history without optimisation, from its rule: lists of ids and all rows ever written.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/predict/history/routing_history.hpp"

namespace hotset::support {

struct naive_token {
  sequence_id sequence = 0;
  std::vector<expert_id> ids;
};

class naive_history {
 public:
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
    std::vector<std::uint32_t> of_step;  // [row] from the step's visits alone
  };

  naive_history(const geometry& shape, const routing_history::config& options)
      : shape_(shape), history_(options) {}

  /// The similarities after a visit. Pre: no layer is visited twice in a step.
  std::vector<stream> stage(step_id step, layer_id layer, const std::vector<naive_token>& tokens) {
    std::vector<stream> out;
    for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) {
      auto found = std::ranges::find(out, token->sequence, &stream::sequence);
      if (found == out.end())
        found = out.insert(out.end(), {token->sequence, valid(token->ids), 0, {}, {}});
      ++found->tokens;
    }
    const auto decay = static_cast<std::uint32_t>(
        std::clamp(history_.reach / shape_.layers * 65536, 1.0, 65535.0));
    // If no similarity is requested during the ending step, rows reused by the next step pass nothing on.
    const auto first_passing = [&](bool asked) {
      const auto rows = static_cast<int>(rows_.size() + (asked ? 0 : tokens.size()));
      return std::max(0, rows - history_.rows);
    };
    for (auto& of : out) {
      of.similar.assign(rows_.size(), 0);
      of.of_step.assign(rows_.size(), 0);
      const bool goes_on = similar_.contains(of.sequence) && of.tokens == 1;
      const bool asked = asked_.contains(of.sequence);
      for (int r = first_row(); r < static_cast<int>(rows_.size()); ++r) {
        const auto i = static_cast<std::size_t>(r);
        auto& s = of.similar[i];
        if (goes_on && step == step_) {
          s = similar_.at(of.sequence)[i];
          of.of_step[i] = of_step_.at(of.sequence)[i];
        } else if (goes_on && at(r).before >= first_passing(asked)) {
          const auto& from = asked ? similar_ : of_step_;
          s = from.at(of.sequence)[static_cast<std::size_t>(at(r).before)];
        }
        std::uint32_t matches = 0;
        if (const auto set = at(r).sets.find(layer); set != at(r).sets.end())
          for (const auto e : of.last) matches += static_cast<std::uint32_t>(set->second.count(e));
        for (auto* moved : {&s, &of.of_step[i]}) {
          *moved -= *moved * decay / 65536;
          if (!of.last.empty())
            *moved += decay / 2 / static_cast<std::uint32_t>(of.last.size()) * matches;
        }
      }
    }
    staged_step_ = step;
    return out;
  }
  /// A row whose successor's step has ended.
  [[nodiscard]] int successor(int r) const {
    const auto next = at(r).after;
    if (next < 0) return -1;
    return has_ended(at(next).step) ? next : -1;
  }

  /// `asked`: whether the similarities of the sequences were requested.
  void keep(step_id step, layer_id layer, const std::vector<naive_token>& tokens,
            const std::vector<stream>& streams, bool asked = true) {
    if (step != step_) {
      for (const auto& of : streams) asked_.insert(of.sequence);  // stage() has handled them
      forget_what_nobody_asked_for();
      for (const auto& of : streams) asked_.erase(of.sequence);
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
    for (const auto& of : streams) {
      similar_[of.sequence] = of.similar;
      of_step_[of.sequence] = of.of_step;
      if (asked) asked_.insert(of.sequence);
    }
    for (auto* all_of : {&similar_, &of_step_})
      for (auto& [sequence, all] : *all_of) all.resize(rows_.size(), 0);
    for (std::size_t t = 0; t < tokens.size(); ++t)
      rows_[static_cast<std::size_t>(running_[t])].sets[layer] = valid(tokens[t].ids);
  }

  void end(sequence_id sequence) {
    last_.erase(sequence);
    similar_.erase(sequence);
    of_step_.erase(sequence);
    asked_.erase(sequence);
  }
  /// The similarity of the sequence's last token is requested.
  void ask(sequence_id sequence) {
    if (similar_.contains(sequence)) asked_.insert(sequence);
  }

  /// Rows most similar to the sequence's token in the running step, best first, ties by the latest. Rows must have a
  /// successor whose step has ended, or belong to an ended step themselves.
  [[nodiscard]] std::vector<std::pair<std::uint32_t, int>> best(
      const std::vector<std::uint32_t>& similar, bool successors, std::size_t most) const {
    std::vector<std::pair<std::uint32_t, int>> out;
    for (int r = first_row(); r < static_cast<int>(similar.size()); ++r)
      if (similar[static_cast<std::size_t>(r)] > 0 &&
          (successors ? successor(r) >= 0 : has_ended(at(r).step)))
        out.emplace_back(similar[static_cast<std::size_t>(r)], r);
    std::sort(out.rbegin(), out.rend());
    if (out.size() > most) out.resize(most);
    return out;
  }
  [[nodiscard]] const std::vector<std::uint32_t>* similar(sequence_id sequence) const {
    const auto found = similar_.find(sequence);
    return found == similar_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] int first_row() const {
    const auto kept = static_cast<std::size_t>(history_.rows);
    return rows_.size() > kept ? static_cast<int>(rows_.size() - kept) : 0;
  }
  [[nodiscard]] const token_row& at(int r) const { return rows_[static_cast<std::size_t>(r)]; }

 private:
  void forget_what_nobody_asked_for() {
    for (auto* all_of : {&similar_, &of_step_})
      for (auto& [sequence, all] : *all_of)
        if (!asked_.contains(sequence)) std::ranges::fill(all, 0U);
  }
  [[nodiscard]] bool is_kept(int r) const { return r >= first_row(); }
  [[nodiscard]] bool has_ended(step_id step) const {
    return staged_step_ != step_ || step != step_;
  }
  [[nodiscard]] std::set<expert_id> valid(const std::vector<expert_id>& ids) const {
    std::set<expert_id> out;
    for (const auto id : ids)
      if (id >= 0 && id < shape_.experts) out.insert(id);
    return out;
  }

  geometry shape_;
  routing_history::config history_;
  std::vector<token_row> rows_;
  std::vector<int> running_;  // rows of this step, by token
  std::map<sequence_id, int> last_;
  std::map<sequence_id, std::vector<std::uint32_t>> similar_;
  std::map<sequence_id, std::vector<std::uint32_t>> of_step_;
  std::set<sequence_id> asked_;  // requested since the sequence's last step began
  step_id step_ = ~step_id{0};
  step_id staged_step_ = 0;
};

}  // namespace hotset::support
