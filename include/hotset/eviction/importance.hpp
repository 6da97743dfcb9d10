// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the expert that was least used of late and is least expected.
///
/// Rule: order by s(e) = alpha * h(e) + (1 - alpha) * p(e), then recency position. h is the hotness u(e) of e over the sum
///       of its layer's residents (0 where that is 0); p the mean over tokens of what the last forecast of this step gave
///       e; a layer without one: alpha = 1.
/// Source: ActiveEvict 3.2, equations 8 to 13.
/// Deviations: equation 13 mixes the hotness of one layer with the prediction of the next; here both are of the layer whose
///       residents are ranked. Equation 12's T is read as the visit's tokens. In a pool of several layers each expert
///       counts as in its own; the paper's pools are of one layer. gamma = 0 is LRU by token; alpha = 1 is not.
/// Exact: yes (never changes what is computed).
/// Cost: scores move by themselves: O(S + window K) at the first choice after a visit, O(S) at each. O(K) per visit.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/order/scanned_slots.hpp"
#include "hotset/predict/hotness.hpp"

namespace hotset::inline v0 {

class importance {
 public:
  struct config {
    double alpha = 0.6;  ///< of the past; the rest is the forecast's
    double gamma = hotness::config{}.gamma;
    std::int32_t window = hotness::config{}.window;

    /// Parameters by name, as in `importance:alpha=0.6:gamma=0.98:window=256`.
    template <class From>
    static config read(From& from) {
      config out;
      out.alpha = from.real("alpha", out.alpha);
      out.gamma = from.real("gamma", out.gamma);
      out.window = from.number("window", out.window);
      return out;
    }
    [[nodiscard]] validation validate() const {
      if (!(alpha >= 0.0 && alpha <= 1.0))
        return error{"importance alpha = " + std::to_string(alpha) + ", accepted: 0..1"};
      return hotness::config{gamma, window}.validate();
    }
  };
  static constexpr std::string_view name = "importance";
  static constexpr eviction_traits traits{
      .hears_steps = true, .hears_routes = true, .hears_forecasts = true, .moves_by_itself = true};

  explicit importance(const pool_layout& layout) : importance(layout, config{}) {}
  importance(const pool_layout& layout, const config& options)
      : alpha_(options.alpha),
        experts_(layout.shape().expert_count()),
        heat_(layout.shape(), {options.gamma, options.window}),
        expected_(layout.shape(), 0.0),
        forecast_of_(layout.shape().layer_count(), never),
        resident_(layout.shape()),
        resident_heat_(forecast_of_.size(), unknown),
        slots_(layout) {
    pending_.reserve(layout.shape().ids_per_visit());
  }

  /// Kept until the visit takes place: its victims are chosen by what was before it.
  void on_routed(const routing_view& view) noexcept {
    pending_.clear();
    if (view.layer < 0 || view.chosen().size() > pending_.capacity()) return;
    pending_.assign(view.chosen().begin(), view.chosen().end());
  }
  void on_step(step_id, layer_id layer) noexcept {
    heat_.observe(layer, pending_);
    changed(layer);
    pending_.clear();  // a later group of the visit brings nothing new
  }
  void on_forecast(const visit_context& context, const forecast& expected) noexcept {
    const auto tokens = expected.tokens(experts_);
    if (tokens == 0) return;
    const auto layers = static_cast<layer_id>(forecast_of_.size());
    for (std::int32_t ahead = 0; ahead < expected.depth; ++ahead) {
      const auto layer = context.layer + 1 + ahead;
      if (layer >= layers) return;
      const auto mean = expected_.row(layer);
      std::ranges::fill(mean, 0.0);
      for (std::size_t t = 0; t < tokens; ++t) {
        const auto row = expected.row(t, ahead, experts_);
        for (std::size_t e = 0; e < experts_; ++e) mean[e] += double{row[e]};
      }
      for (auto& p : mean) p /= static_cast<double>(tokens);
      forecast_of_[layer] = context.step;
    }
  }
  void on_hit(const access& a) noexcept { slots_.use(a.slot); }
  void on_fill(const access& a) noexcept {
    slots_.fill(a.pool, a.slot, a.key);
    set_resident(a.key, true);
  }
  void on_evict(slot_id slot, expert_key key) noexcept {
    slots_.vacate(slot);
    set_resident(key, false);
  }
  void on_move(slot_id from, slot_id to) noexcept { slots_.move(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return slots_.select(context.pool, eligible, out,
                         [&](expert_key key) { return score(key, context.step); });
  }

 private:
  static constexpr step_id never = std::numeric_limits<step_id>::max();

  static constexpr double unknown = -1.0;

  void changed(layer_id layer) noexcept { resident_heat_[layer] = unknown; }
  void set_resident(expert_key key, bool resident) noexcept {
    resident_[key] = resident ? 1 : 0;
    changed(key.layer);
  }
  /// Added up in the order of ids, wherever the residents are.
  [[nodiscard]] double total_of(layer_id layer) noexcept {
    auto& total = resident_heat_[layer];
    if (total != unknown) return total;
    total = 0.0;
    const auto heat = heat_.of(layer);
    const auto is_resident = resident_.row(layer);
    for (std::size_t e = 0; e < experts_; ++e)
      if (is_resident[e] != 0) total += heat[e];
    return total;
  }
  [[nodiscard]] double score(expert_key key, step_id step) noexcept {
    const auto all = total_of(key.layer);
    const auto heat = heat_.of(key.layer)[index_of(key.expert)];
    const auto h = all > 0.0 ? heat / all : 0.0;
    if (forecast_of_[key.layer] != step) return h;
    return alpha_ * h + (1.0 - alpha_) * expected_[key];
  }

  double alpha_;
  std::size_t experts_;
  hotness heat_;
  std::vector<expert_id> pending_;   // of the visit that is planned: [tokens * top_k]
  per_key<double> expected_;         // [layers, experts] means over tokens
  per_layer<step_id> forecast_of_;   // [layers] the step that they are of
  per_key<std::uint8_t> resident_;   // [layers, experts]
  per_layer<double> resident_heat_;  // [layers] sums over residents, or `unknown`
  scanned_slots slots_;
};

static_assert(is_eviction_policy<importance>());

}  // namespace hotset::inline v0
