// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Hand-written orders of eviction for one small shared pool, as in an engine: those whose scores change for whole
/// layers. Policies with a predictor use its real class, because its cost is measured elsewhere. The order on top is
/// hand-written: a score per slot, and a scan of all slots at every choice.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/eviction/similar_steps.hpp"
#include "hotset/eviction/two_rate.hpp"
#include "hotset/policy/policy_config.hpp"
#include "hotset/predict/history/live_sequences.hpp"
#include "hotset/predict/history/next_use_values.hpp"
#include "hotset/predict/history/view_tokens.hpp"
#include "hotset/predict/hotness.hpp"
#include "support/flat_visit.hpp"

namespace benchmarks {

/// Each slot's key and score; scores of changed layers are recomputed.
class scored_slots {
 public:
  scored_slots(const hotset::geometry& shape, std::int32_t slots)
      : slots_(static_cast<std::size_t>(slots)),
        scores_((slots_.size() + lanes - 1) / lanes * lanes, never),
        near_(slots_.size() + 1),
        has_changed_(shape.layer_count(), 1) {}

  void change(std::uint32_t layer) noexcept { has_changed_[layer] = 1; }
  void change_all() noexcept { std::ranges::fill(has_changed_, std::uint8_t{1}); }
  /// Selects the lowest scores of slots that the visit does not use, ties to the least recent; score(layer, key)
  /// computes one.
  template <class Give, class ScoreOf>
  void choose(const flat_visit& visit, std::size_t count, Give give, ScoreOf score) noexcept {
    if (count == 0) return;
    for (std::size_t s = 0; s < visit.held; ++s)
      if (has_changed_[slots_[s].layer] != 0) scores_[s] = score(slots_[s].layer, slots_[s].key);
    std::ranges::fill(has_changed_, std::uint8_t{0});
    for (const auto slot : visit.slots)
      if (slot >= 0) scores_[static_cast<std::size_t>(slot)] = never;
    change(visit.layer);  // the layer's slots have no scores now
    const auto limit = bound(visit.held, count);
    std::size_t near = 0;
    for (std::uint32_t s = 0; s < visit.held; ++s) {
      near_[near] = s;
      near += scores_[s] <= limit ? 1U : 0U;
    }
    for (std::size_t n = 0; n < near; ++n) {
      const auto slot = near_[n];
      if (n >= count && !is_before(slot, near_[count - 1])) continue;
      auto to = std::min(n, count - 1);
      for (; to > 0 && is_before(slot, near_[to - 1]); --to) near_[to] = near_[to - 1];
      near_[to] = slot;
    }
    for (std::size_t n = 0; n < count; ++n) give(near_[n]);
  }
  /// Calls left(layer, key) for each victim.
  template <class Left>
  void commit(const flat_visit& visit, Left left) noexcept {
    for (std::size_t m = 0; m < visit.missed.size(); ++m) {
      auto& at = slots_[visit.slot(visit.missed[m])];
      if (m >= visit.fresh) left(at.layer, at.key);
      at.layer = visit.layer;
      at.key = visit.key(visit.missed[m]);
    }
    for (std::size_t i = 0; i < visit.ids.size(); ++i) slots_[visit.slot(i)].position = ++clock_;
    change(visit.layer);
  }

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();
  static constexpr std::size_t lanes = 8;

  struct holder {
    std::uint32_t key = 0;
    std::uint32_t layer = 0;
    std::uint64_t position = 0;
  };
  /// Returns a bound that at least `count` scores do not exceed: the greatest of the minima of `count` parts of the
  /// slots.
  [[nodiscard]] double bound(std::size_t held, std::size_t count) const noexcept {
    if (count > lanes) return never;
    double least[lanes];
    std::fill_n(least, lanes, never);
    for (std::size_t s = 0; s < held; s += lanes)
      for (std::size_t n = 0; n < lanes; ++n)
        least[n] = scores_[s + n] < least[n] ? scores_[s + n] : least[n];
    return *std::max_element(least, least + lanes);
  }
  [[nodiscard]] bool is_before(std::uint32_t a, std::uint32_t b) const noexcept {
    return scores_[a] < scores_[b] ||
           (scores_[a] == scores_[b] && slots_[a].position < slots_[b].position);
  }

  std::vector<holder> slots_;
  std::vector<double> scores_;             ///< [slot, rounded up]
  std::vector<std::uint32_t> near_;        ///< slots, scratch
  std::vector<std::uint8_t> has_changed_;  ///< [layer]
  std::uint64_t clock_ = 0;
};

namespace orders {

/// Lowest value by the distance of the layer, with the real next_use_values.
template <class Policy>
class next_use {
 public:
  using config = typename Policy::config;

  next_use(const hotset::geometry& shape, std::int32_t slots, const config& options)
      : experts_(shape.expert_count()),
        layers_(shape.layer_count()),
        predicted_(shape, options.values()),
        values_(shape.keys(), 0.0F),
        slots_(shape, slots) {
    for (std::size_t l = 0; l < 2 * layers_; ++l)
      factors_.push_back(double{static_cast<float>(
          std::pow(options.values().discount,
                   static_cast<double>(l % layers_ + 1) / static_cast<double>(layers_)))});
  }
  template <class Give>
  void choose(const flat_visit& visit, std::size_t count, Give give) noexcept {
    predicted_.stage(visit.view);
    if (predicted_.is_staged(visit.view.layer, visit.view.step))
      std::copy_n(predicted_.values().data(), experts_, values_.data() + visit.first_key);
    slots_.change_all();  // each layer has come nearer
    const auto* const factors = factors_.data() + (layers_ - visit.layer - 1);
    slots_.choose(visit, count, give, [&](std::uint32_t layer, std::uint32_t key) {
      return double{values_[key]} * factors[layer];
    });
  }
  void commit(const flat_visit& visit) noexcept {
    predicted_.keep();
    slots_.commit(visit, [](std::uint32_t, std::uint32_t) {});
  }

 private:
  std::size_t experts_;
  std::size_t layers_;
  hotset::next_use_values predicted_;
  std::vector<double> factors_;  ///< [distance - 1], twice
  std::vector<float> values_;    ///< [key]
  scored_slots slots_;
};
using two_rate = next_use<hotset::two_rate>;
using similar_steps = next_use<hotset::similar_steps>;

/// Lowest share of the hotness of the layer's residents, with the real hotness. It gets no forecast.
class importance {
 public:
  using config = hotset::no_options;

  importance(const hotset::geometry& shape, std::int32_t slots, const config&)
      : experts_(shape.expert_count()),
        words_((experts_ + 63) / 64),
        heat_(shape, {}),
        resident_(shape.layer_count() * words_, 0),
        total_(shape.layer_count(), unknown),
        slots_(shape, slots) {}
  template <class Give>
  void choose(const flat_visit& visit, std::size_t count, Give give) noexcept {
    slots_.choose(visit, count, give, [this](std::uint32_t layer, std::uint32_t key) {
      const auto heat = heat_.of(hotset::layer_id{static_cast<std::int32_t>(layer)});
      auto& total = total_[layer];
      if (total == unknown) total = sum_of_residents(layer, heat);
      return total > 0.0 ? heat[key - layer * experts_] / total : 0.0;
    });
  }
  void commit(const flat_visit& visit) noexcept {
    heat_.observe(visit.view.layer, visit.view.chosen());
    slots_.commit(visit, [this](std::uint32_t layer, std::uint32_t key) {
      flip(layer, key);
      slots_.change(layer);
    });
    for (const auto i : visit.missed) flip(visit.layer, visit.key(i));
    total_[visit.layer] = unknown;
  }

 private:
  static constexpr double unknown = -1.0;

  void flip(std::uint32_t layer, std::uint32_t key) noexcept {
    const auto e = key - layer * experts_;
    resident_[layer * words_ + e / 64] ^= std::uint64_t{1} << e % 64;
    total_[layer] = unknown;
  }
  /// Sums in the order of ids.
  [[nodiscard]] double sum_of_residents(std::size_t layer,
                                        std::span<const double> heat) const noexcept {
    double total = 0.0;
    for (std::size_t w = 0; w < words_; ++w)
      for (auto left = resident_[layer * words_ + w]; left != 0; left &= left - 1)
        total += heat[w * 64 + static_cast<std::size_t>(std::countr_zero(left))];
    return total;
  }

  std::size_t experts_;
  std::size_t words_;
  hotset::hotness heat_;
  std::vector<std::uint64_t> resident_;  ///< [layer, words] one bit per expert
  std::vector<double> total_;            ///< [layer] hotness of its residents
  scored_slots slots_;
};

/// Lowest share of the request's routing in the layer, with the real live_sequences. Pre: a visit has one request.
class activation_ratio {
 public:
  using config = hotset::no_options;

  activation_ratio(const hotset::geometry& shape, std::int32_t slots, const config&)
      : experts_(shape.expert_count()),
        layers_(shape.layer_count()),
        live_(32),
        counts_(live_.rows() * shape.keys(), 0),
        totals_(live_.rows() * layers_, 0),
        slots_(shape, slots) {}
  template <class Give>
  void choose(const flat_visit& visit, std::size_t count, Give give) noexcept {
    ask_for(live_.find(sequence_of(visit.view, 0)));
    slots_.choose(visit, count, give, [this](std::uint32_t layer, std::uint32_t key) {
      if (asking_ == none || totals_[asking_ * layers_ + layer] == 0) return 0.0;
      return static_cast<double>(counts_[asking_ * layers_ * experts_ + key]) /
             static_cast<double>(totals_[asking_ * layers_ + layer]);
    });
  }
  void commit(const flat_visit& visit) noexcept {
    const auto row = live_.enter(
        sequence_of(visit.view, 0), visit.view.step, [this](std::size_t old) { forget(old); },
        [](std::size_t) {});
    ask_for(row);
    for (const auto id : visit.view.chosen()) {
      if (!is_within(id, experts_)) continue;
      ++counts_[row * layers_ * experts_ + visit.first_key + index_of(id)];
      ++totals_[row * layers_ + visit.layer];
    }
    slots_.commit(visit, [](std::uint32_t, std::uint32_t) {});
  }

 private:
  static constexpr auto none = hotset::live_sequences::none;

  void ask_for(std::size_t row) noexcept {
    if (row != asking_) slots_.change_all();
    asking_ = row;
  }
  void forget(std::size_t row) noexcept {
    std::fill_n(counts_.data() + row * layers_ * experts_, layers_ * experts_, 0U);
    std::fill_n(totals_.data() + row * layers_, layers_, 0U);
    slots_.change_all();
  }

  std::size_t experts_;
  std::size_t layers_;
  hotset::live_sequences live_;
  std::vector<std::uint64_t> counts_;  ///< [request, key]
  std::vector<std::uint64_t> totals_;  ///< [request, layer] sums of counts_
  std::size_t asking_ = none;          ///< request that scores are computed for
  scored_slots slots_;
};

}  // namespace orders
}  // namespace benchmarks
