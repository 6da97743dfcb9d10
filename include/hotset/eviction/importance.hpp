// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the expert with the lowest mix of recent use and expected use.
///
/// Rule: order by s(e) = alpha * h(e) + (1 - alpha) * p(e), then recency position. h is the hotness u(e) divided by
///   the sum over the layer's residents (0 if that is 0). p is the mean over tokens of this step's last forecast for
///   e. A layer without a forecast has alpha = 1.
/// Source: ActiveEvict 3.2, equations 8 to 13.
/// Deviations: equation 13 mixes the hotness of one layer with the prediction of the next; here both belong to the
///   layer whose residents are ranked. Equation 12's T is read as the visit's tokens. In a pool of several layers
///   each expert counts as in its own layer; the paper's pools have one layer. gamma = 0 is LRU by token; alpha = 1
///   is not.
/// Exact: yes (never changes what is computed).
/// Cost: O(K) per visit. A choice costs O(R) for each changed layer; a victim costs O(R + L). R is the residents of a
///   layer. Scores are compared by estimates. If estimates cannot separate two scores, their two layers cost O(window
///   K + E).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/eviction/order/layer_tournament.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/predict/hotness.hpp"
#include "hotset/predict/kernels/value_kernels.hpp"

namespace hotset {

class importance {
 public:
  struct config {
    double alpha = 0.6;  ///< weight of past use; the forecast has the rest
    double gamma = hotness::config{}.gamma;
    std::int32_t window = hotness::config{}.window;

    /// Parameters by name, as in `importance:alpha=0.6:gamma=0.98:window=256`.
    template <class From>
    static config read(From& from) {
      return {.alpha = from.real("alpha", config{}.alpha),
              .gamma = from.real("gamma", config{}.gamma),
              .window = from.number("window", config{}.window)};
    }
    [[nodiscard]] validation validate() const {
      if (!(alpha >= 0.0 && alpha <= 1.0))
        return refusal("importance alpha = ", alpha, ", accepted: 0..1");
      return hotness::config{gamma, window}.validate();
    }
  };
  static constexpr std::string_view name = "importance";
  static constexpr eviction_traits traits{
      .wants_routes = true, .wants_forecasts = true, .moves_by_itself = true};

  importance(const pool_layout& layout, const config& options)
      : alpha_(options.alpha),
        experts_(layout.shape().expert_count()),
        heat_(layout.shape(), {options.gamma, options.window}),
        expected_(layout.shape(), 0.0),
        forecast_of_(layout.shape().layer_count(), never),
        resident_(forecast_of_.size() * words(), 0),
        resident_heat_(forecast_of_.size(), unknown),
        residents_(layout),
        counts_once_(layout.precisions() == 1),
        error_(std::min(8.0 * heat_.estimate_error(), worst_error)) {
    pending_.reserve(layout.shape().ids_per_visit());
    if (error_ == worst_error) beside_share_ = 1.0;  // any score may be the lowest
  }

  /// Kept until the visit is committed, because its victims depend on earlier visits only.
  void on_routed(const routing_view& view) noexcept {
    pending_.clear();
    if (view.layer < 0 || view.chosen().size() > pending_.capacity()) return;
    pending_.assign(view.chosen().begin(), view.chosen().end());
  }
  void on_forecast(const visit_context& context, const forecast& expected) noexcept {
    const auto layers = forecast_of_.size();
    expected.each_layer(context.layer, layers, experts_, [&](layer_id layer, std::int32_t ahead) {
      const auto tokens = expected.tokens(experts_);
      const auto mean = expected_.row(layer);
      std::ranges::fill(mean, 0.0);
      for (std::size_t t = 0; t < tokens; ++t) {
        const auto row = expected.row(t, ahead, experts_);
        for (std::size_t e = 0; e < experts_; ++e) mean[e] += double{row[e]};
      }
      for (auto& p : mean) p /= static_cast<double>(tokens);
      forecast_of_[layer] = context.step;
      residents_.rescore(layer);
      beside_share_ = 1.0;
    });
  }
  void on_visit(const visit_event& e) noexcept {
    if (e.begins) observe(e.context.layer);
    residents_.bring(e.fills);
    residents_.use(e.used);
    for (const auto& f : e.fills) {
      if (f.victim != no_key) set_resident(f.victim, false);
      set_resident(f.key, true);
    }
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    residents_.fill(e.slot, e.key, e.precision);
    set_resident(e.key, true);
  }
  void on_evict(slot_id slot, expert_key key) noexcept {
    residents_.vacate(slot);
    set_resident(key, false);
  }
  void on_move(slot_id from, slot_id to) noexcept { residents_.move(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    enter(context.step);
    return residents_.select(context.pool, eligible, out, scores{*this});
  }

 private:
  static constexpr step_id never = std::numeric_limits<step_id>::max();

  static constexpr double unknown = -1.0;
  static constexpr double worst_error = std::numeric_limits<double>::max() / 4;

  /// Estimates of this step's scores.
  struct scores {
    importance& of;

    void write(const layer_residents& residents, std::span<double> to) const noexcept {
      const auto heat = of.heat_.estimates(residents.layer);
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = heat[index_of(residents.experts[i])];
      if (of.orders_by_heat(residents.layer)) return;
      const auto all = of.counts_once_ ? detail::sum(to.data(), to.size())
                                       : of.sum_of_residents(residents.layer, heat);
      for (auto& h : to) h *= all > 0.0 ? 1.0 / all : 0.0;
      if (!of.is_expected(residents.layer)) return;
      const auto expected = of.expected_.row(residents.layer);
      for (std::size_t i = 0; i < to.size(); ++i)
        to[i] = as_number(of.alpha_ * to[i] +
                          (1.0 - of.alpha_) * expected[index_of(residents.experts[i])]);
    }
    [[nodiscard]] double factor(layer_id layer, std::span<const double> written) const noexcept {
      const auto all = of.orders_by_heat(layer) ? detail::sum(written.data(), written.size()) : 1.0;
      return all > 0.0 ? 1.0 / all : 1.0;
    }
    /// Two compared scores may both be off, by the errors of their heat and of the sum. A share is at most 1, so the
    /// added term is at most the score plus 1.
    [[nodiscard]] double bound(double least) const noexcept {
      return std::min(least + of.error_ * (std::abs(least) + of.beside_share_),
                      std::numeric_limits<double>::max());
    }
    [[nodiscard]] double exact(expert_key key) const noexcept {
      const auto h = of.heat_.is_used(key) ? of.share_of(key) : 0.0;
      if (!of.is_expected(key.layer)) return h;
      return of.alpha_ * h + (1.0 - of.alpha_) * of.expected_[key];
    }
  };

  /// Counts the tokens kept by `on_routed`. The first group of a visit counts all of them.
  void observe(layer_id layer) noexcept {
    heat_.observe(layer, pending_);
    resident_heat_[layer] = unknown;
    residents_.rescore(layer);
    pending_.clear();
  }
  /// Scores belong to a step. A layer is rescored if its forecast stops applying, or applies again.
  void enter(step_id step) noexcept {
    if (step == step_) return;
    for (const auto layer : forecast_of_.ids())
      if (is_expected(layer) != (forecast_of_[layer] == step)) residents_.rescore(layer);
    step_ = step;
  }
  [[nodiscard]] bool is_expected(layer_id layer) const noexcept {
    return forecast_of_[layer] == step_;
  }
  void set_resident(expert_key key, bool resident) noexcept {
    const auto bit = std::uint64_t{1} << index_of(key.expert) % 64;
    auto& word = residents_of(key.layer)[index_of(key.expert) / 64];
    word = resident ? word | bit : word & ~bit;
    resident_heat_[key.layer] = unknown;
    orders_by_heat(key.layer) ? residents_.rescale(key.layer) : residents_.rescore(key.layer);
  }
  /// Returns whether the layer's scores are heat times one factor, 1 over the sum of what is written. Not with
  /// several precisions: an expert counts as evicted when one of its copies is.
  [[nodiscard]] bool orders_by_heat(layer_id layer) const noexcept {
    return counts_once_ && !is_expected(layer);
  }
  /// Adds in the order of ids, so that the sum does not depend on slots.
  [[nodiscard]] double total_of(layer_id layer) noexcept {
    auto& total = resident_heat_[layer];
    if (total != unknown) return total;
    return total = sum_of_residents(layer, heat_.of(layer));
  }
  [[nodiscard]] double sum_of_residents(layer_id layer,
                                        std::span<const double> heat) const noexcept {
    double total = 0.0;
    each_member(residents_of(layer), [&](std::size_t e) { total += heat[e]; });
    return total;
  }
  [[nodiscard]] std::size_t words() const noexcept { return words_for(experts_); }
  /// One bit for each expert.
  [[nodiscard]] std::span<std::uint64_t> residents_of(layer_id layer) noexcept {
    return std::span(resident_).subspan(index_of(layer) * words(), words());
  }
  [[nodiscard]] std::span<const std::uint64_t> residents_of(layer_id layer) const noexcept {
    return std::span(resident_).subspan(index_of(layer) * words(), words());
  }
  [[nodiscard]] double share_of(expert_key key) noexcept {
    const auto all = total_of(key.layer);
    const auto heat = heat_.of(key.layer)[index_of(key.expert)];
    return all > 0.0 ? heat / all : 0.0;
  }

  double alpha_;
  std::size_t experts_;
  hotness heat_;
  std::vector<expert_id> pending_;       // [tokens * top_k] of the planned visit
  per_key<double> expected_;             // [layers, experts] means over tokens
  per_layer<step_id> forecast_of_;       // [layers] step of the forecast
  std::vector<std::uint64_t> resident_;  // [layers, words] one bit per expert
  per_layer<double> resident_heat_;      // [layers] sums over residents, or `unknown`
  layer_tournament residents_;
  bool counts_once_;           // each expert has at most one slot
  double error_;               // relative error of estimates
  double beside_share_ = 0.0;  // term added to the score in bound(): 1 after a forecast
  step_id step_ = never;       // step of the scores
};

static_assert(is_eviction_policy<importance>());

}  // namespace hotset
