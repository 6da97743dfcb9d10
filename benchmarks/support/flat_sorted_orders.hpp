// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Hand-written orders of eviction for one small shared pool, as in an engine: those by scores of single slots, kept
/// sorted.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/eviction/belady.hpp"
#include "hotset/policy/policy_config.hpp"
#include "hotset/predict/history/view_tokens.hpp"
#include "hotset/trace/future_uses.hpp"
#include "support/flat_visit.hpp"

namespace benchmarks {

/// Slots in an array, lowest score first, ties to the least recent. Slots of the visit are removed and inserted
/// again, by copying the array in place: suited to pools of some hundred slots. Pre: fewer than 2^32 uses.
class sorted_slots {
 public:
  explicit sorted_slots(std::int32_t slots)
      : entries_(2 * static_cast<std::size_t>(slots) + most_of_a_visit) {}

  template <class Give>
  void choose(const flat_visit& visit, std::size_t count, Give give) const noexcept {
    const auto* next = entries_.data() + first_;
    for (; count != 0; --count) {
      while (visit.uses(next->slot)) ++next;
      give(next++->slot);
    }
  }
  /// Removes all slots that the visit uses, and its victims.
  void take_out(const flat_visit& visit) noexcept {
    auto left = visit.ids.size() - visit.fresh;
    for (; left != 0 && visit.uses(entries_[first_].slot); --left) ++first_;
    if (left != 0) {
      auto to = first_;
      for (auto n = first_; n < end_; ++n) {
        entries_[to] = entries_[n];
        to += visit.uses(entries_[n].slot) ? 0U : 1U;
      }
      end_ = to;
    }
    if (end_ + visit.ids.size() <= entries_.size()) return;
    std::copy(entries_.begin() + at(first_), entries_.begin() + at(end_), entries_.begin());
    end_ -= first_;
    first_ = 0;
  }
  /// Inserts a slot as the most recent one. Pre: it is not there.
  void put_in(std::uint32_t slot, double score) noexcept { insert({score, ++clock_, slot}); }
  /// Recomputes all scores.
  template <class ScoreOf>
  void rescore(ScoreOf score_of) noexcept {
    const auto end = end_;
    end_ = first_;
    for (auto n = first_; n < end; ++n) {
      const auto old = entries_[n];
      insert({score_of(old.slot), old.position, old.slot});
    }
  }

 private:
  static constexpr std::size_t most_of_a_visit = 64;

  struct entry {
    double score = 0;
    std::uint32_t position = 0;
    std::uint32_t slot = 0;
  };
  static std::ptrdiff_t at(std::size_t n) noexcept { return static_cast<std::ptrdiff_t>(n); }
  void insert(entry added) noexcept {
    auto to = end_++;
    for (; to > first_ && is_before(added, entries_[to - 1]); --to) entries_[to] = entries_[to - 1];
    entries_[to] = added;
  }
  static bool is_before(const entry& a, const entry& b) noexcept {
    return a.score < b.score || (a.score == b.score && a.position < b.position);
  }

  std::vector<entry> entries_;  ///< first_ to end_
  std::size_t first_ = 0, end_ = 0;
  std::uint32_t clock_ = 0;
};

namespace orders {

/// Furthest next use: keeps each key's place in the list of its uses.
class belady {
 public:
  using config = hotset::belady::config;

  belady(const hotset::geometry& shape, std::int32_t slots, const config& options)
      : uses_(shape.keys()), next_(shape.keys()), sorted_(slots) {
    const auto& future = *options.future;
    for (std::size_t n = 0; n < future.ordinals().size(); ++n)
      uses_[future.keys_in_order()[n]].push_back(future.ordinals()[n]);
    for (auto& of_key : uses_) of_key.push_back(hotset::future_uses::never);
  }
  template <class Give>
  void choose(const flat_visit& visit, std::size_t count, Give give) noexcept {
    sorted_.choose(visit, count, give);
  }
  void commit(const flat_visit& visit) noexcept {
    sorted_.take_out(visit);
    for (std::size_t i = 0; i < visit.ids.size(); ++i) {
      const auto& uses = uses_[visit.key(i)];
      auto& next = next_[visit.key(i)];
      while (uses[next] <= visit.view.ordinal) ++next;
      sorted_.put_in(visit.slot(i), -static_cast<double>(uses[next]));
    }
  }

 private:
  std::vector<std::vector<std::uint32_t>> uses_;  ///< [key] ordinals, then `never`
  std::vector<std::size_t> next_;                 ///< [key] place in uses_
  sorted_slots sorted_;
};

/// Lowest sum of gate weights, over a key's whole history.
class gate_score {
 public:
  using config = hotset::no_options;

  gate_score(const hotset::geometry& shape, std::int32_t slots, const config&)
      : sum_(shape.keys(), 0.0), of_visit_(shape.expert_count(), 0.0), sorted_(slots) {}
  template <class Give>
  void choose(const flat_visit& visit, std::size_t count, Give give) noexcept {
    sorted_.choose(visit, count, give);
  }
  void commit(const flat_visit& visit) noexcept {
    const auto& view = visit.view;
    for (std::size_t i = 0; i < view.weights.size(); ++i)
      if (is_within(view.experts[i], of_visit_.size()))
        of_visit_[index_of(view.experts[i])] += double{view.weights[i]};
    sorted_.take_out(visit);
    for (std::size_t i = 0; i < visit.ids.size(); ++i) {
      auto& sum = sum_[visit.key(i)];
      sum += of_visit_[visit.ids[i]];
      of_visit_[visit.ids[i]] = 0.0;
      sorted_.put_in(visit.slot(i), sum);
    }
  }

 private:
  std::vector<double> sum_;       ///< [key]
  std::vector<double> of_visit_;  ///< [expert] 0 between visits
  sorted_slots sorted_;
};

/// Lowest decayed frequency by age: sorted again in each step. Pre: no key is unused for 65,536 steps.
class lfru {
 public:
  using config = hotset::no_options;

  lfru(const hotset::geometry& shape, std::int32_t slots, const config&)
      : power_(65536), heat_(shape.keys()), sorted_(slots) {
    double p = 1.0;
    for (auto& power : power_) {
      power = p;
      p *= 0.999;
    }
  }
  template <class Give>
  void choose(const flat_visit& visit, std::size_t count, Give give) noexcept {
    if (step_ != visit.view.step) enter(visit);
    sorted_.choose(visit, count, give);
  }
  void commit(const flat_visit& visit) noexcept {
    sorted_.take_out(visit);
    for (std::size_t i = 0; i < visit.ids.size(); ++i) {
      auto& heat = heat_[visit.key(i)];
      heat.frequency = heat.frequency * power_[step_ - heat.last] + 1.0;
      heat.last = step_;
      sorted_.put_in(visit.slot(i), heat.frequency);  // its age is 0
    }
  }

 private:
  struct heat_record {
    double frequency = 0.0;
    std::uint64_t last = 0;
  };
  void enter(const flat_visit& visit) noexcept {
    step_ = visit.view.step;
    sorted_.rescore([&](std::uint32_t slot) {
      const auto& of = heat_[visit.held_key(slot)];
      const auto age = step_ - of.last;
      return of.frequency * power_[age] / static_cast<double>(age + 1);
    });
  }

  std::vector<double> power_;      ///< [n] of the decay
  std::vector<heat_record> heat_;  ///< [key]
  std::uint64_t step_ = 0;
  sorted_slots sorted_;
};

/// Lowest product of an expert's probability and its uses. It gets no forecast: probabilities stay at a request's
/// initial ones.
class expert_map_priority {
 public:
  using config = hotset::no_options;

  expert_map_priority(const hotset::geometry& shape, std::int32_t slots, const config&)
      : starts_(shape),
        at_first_(1.0F / static_cast<float>(shape.experts)),
        expected_(shape.keys(), at_first_),
        uses_(shape.keys(), 0),
        sorted_(slots) {}
  template <class Give>
  void choose(const flat_visit& visit, std::size_t count, Give give) noexcept {
    if (starts_.begins(visit.view)) begin_request(visit);
    sorted_.choose(visit, count, give);
  }
  void commit(const flat_visit& visit) noexcept {
    sorted_.take_out(visit);
    for (std::size_t i = 0; i < visit.ids.size(); ++i) {
      const auto key = visit.key(i);
      ++uses_[key];
      sorted_.put_in(visit.slot(i), score(key));
    }
  }

 private:
  [[nodiscard]] double score(std::size_t key) const noexcept {
    return double{expected_[key]} * static_cast<double>(uses_[key]);
  }
  void begin_request(const flat_visit& visit) noexcept {
    std::ranges::fill(expected_, at_first_);
    sorted_.rescore([&](std::uint32_t slot) { return score(visit.held_key(slot)); });
  }

  hotset::request_starts starts_;
  float at_first_;
  std::vector<float> expected_;      ///< [key]
  std::vector<std::uint64_t> uses_;  ///< [key]
  sorted_slots sorted_;
};

}  // namespace orders
}  // namespace benchmarks
