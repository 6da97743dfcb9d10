// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts by the past and by each layer's known next visit: about the best that a forecast of one visit allows.
///
/// Rule: first evict keys that their layer's next visit does not use, by ascending r(key) * 0.6^((d + 1) / L). r is
///   the rate of two_rates, L the number of layers. d = (l' - l - 1) mod L is the number of layers until the key's
///   layer l' runs after the running layer l. Then evict the keys that it uses, greatest d first. Ties: recency
///   position. The running layer's next visit is the one after the running visit. Admission is forced.
/// Source: ours: a measure of what knowing the next visit gives, not a policy for engines.
/// Deviations: it is a heuristic, not the optimum for what it knows: uses beyond the next visit are judged by rates.
///   With token groups, a group is a visit. A visit without experts does not count.
/// Exact: yes (never changes what is computed). Offline: needs the trace beforehand.
/// Cost: O(1) per hit and fill, O(E) per visit; a choice scans the pool, O(S). Memory: 4 bytes per use, 12 per visit,
///   9 per key.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/eviction/order/layer_tournament.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/predict/history/two_rates.hpp"
#include "hotset/trace/future_uses.hpp"
#include "hotset/trace/policy_knowledge.hpp"

namespace hotset {

class next_visit_oracle {
 public:
  struct config {
    std::shared_ptr<const future_uses> future{};
    template <class From>
    static config read(From&, const policy_knowledge& known) {
      return {known.future};
    }
    [[nodiscard]] validation validate() const { return check_future(name, future.get()); }
    /// Also refuses a future with another shape.
    [[nodiscard]] validation validate(const geometry& shape) const {
      return check_future(name, future.get(), &shape);
    }
  };
  static constexpr std::string_view name = "next_visit_oracle";
  static constexpr eviction_traits traits{
      .wants_routes = true, .needs_future = true, .moves_by_itself = true, .most_precisions = 1};

  next_visit_oracle(const pool_layout& layout, const config& options)
      : layers_(layout.shape().layers),
        rates_(layout.shape(), {}),
        unique_(experts_of(layout), experts_of(layout)),
        routed_(experts_of(layout), no_expert),
        residents_(layout) {
    worth_.reserve(static_cast<std::size_t>(layers_));
    for (std::int32_t d = 0; d < layers_; ++d)
      worth_.push_back(static_cast<float>(std::pow(per_step, (d + 1.0) / layers_)));
    // validate() refuses another shape; without a future no visit uses anything.
    if (options.future && options.future->keys() == layout.shape().keys())
      coming_ = next_visits(layout.shape(), *options.future);
  }

  /// Staged until the visit is committed: its victims are chosen by rates that include it.
  void on_routed(const routing_view& view) noexcept {
    staged_layer_ = before_layers;
    if (view.layer < 0 || view.layer >= layers_) return;
    routed_count_ = unique_.collect(view.experts, routed_.data());
    staged_layer_ = view.layer;
    staged_step_ = view.step;
  }
  void on_visit(const visit_event& e) noexcept {
    if (is_staged(e.context.step, e.context.layer)) rates_.visit(e.context.layer, routed());
    staged_layer_ = before_layers;
    if (!e.used.empty() || !e.bypassed.empty())
      next_ordinal_ = std::max(next_ordinal_, e.context.ordinal + 1);
    residents_.bring(e.fills);
    residents_.use(e.used);
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    residents_.fill(e.slot, e.key, e.precision);
  }
  void on_evict(slot_id slot, expert_key) noexcept { residents_.vacate(slot); }
  void on_move(slot_id from, slot_id to) noexcept { residents_.move(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    // A prefetch belongs to no visit and may have no ordinal, so the visits that have passed are counted here.
    const auto running = context.ordinal + (context.speculative ? 0U : 1U);
    const auto from = std::max(running, next_ordinal_);
    const bool is_fresh = is_staged(context.step, context.layer);
    residents_.rescore_all();
    return residents_.select(
        context.pool, eligible, out,
        scores{*this, context.layer, from, is_fresh,
               is_fresh ? rates_.after(context.layer, routed()) : two_rates::rates{}});
  }

 private:
  static constexpr double per_step = 0.6;  ///< factor for a rate that must wait for a whole step
  /// Above all products: rates exceed 1 only by rounding.
  static constexpr double used_next = 2;

  struct scores {
    next_visit_oracle& of;
    layer_id running{};
    std::uint64_t from = 0;  ///< the first visit that is not committed
    bool is_fresh = false;   ///< the running layer's rates are `after`, which include its visit
    two_rates::rates after;

    void write(const layer_residents& residents, std::span<double> to) const noexcept {
      const auto layer = residents.layer;
      const auto ahead = of.distance(running, layer);
      const double worth{of.worth_[static_cast<std::size_t>(ahead)]};
      const auto rates = is_fresh && layer == running
                             ? after
                             : two_rates::rates{of.rates_.fast(layer), of.rates_.slow(layer)};
      for (std::size_t i = 0; i < to.size(); ++i) {
        const auto e = index_of(residents.experts[i]);
        to[i] = of.coming_.uses({layer, residents.experts[i]}, from)
                    ? used_next + static_cast<double>(of.layers_ - ahead)
                    : double{of.rates_.rate(rates.fast[e], rates.slow[e])} * worth;
      }
    }
  };

  static std::size_t experts_of(const pool_layout& layout) { return layout.shape().expert_count(); }
  [[nodiscard]] bool is_staged(step_id step, layer_id layer) const noexcept {
    return staged_layer_ >= 0 && staged_layer_ == layer && staged_step_ == step;
  }
  /// Layers between the running one and the key's; 0 if the key's layer runs next.
  [[nodiscard]] std::int32_t distance(layer_id running, layer_id key) const noexcept {
    const auto ahead = key - running - 1;
    return ahead < 0 ? ahead + layers_ : ahead;
  }
  [[nodiscard]] id_view<expert_id> routed() const noexcept {
    return std::span(routed_).first(routed_count_);
  }

  std::int32_t layers_;
  two_rates rates_;
  layer_id staged_layer_ = before_layers;
  step_id staged_step_ = 0;
  unique_ids unique_;
  std::vector<expert_id> routed_;  // distinct experts of the staged visit
  std::size_t routed_count_ = 0;
  std::vector<float> worth_;  // [distance]
  next_visits coming_;
  std::uint64_t next_ordinal_ = 0;  // ordinal after all committed visits
  layer_tournament residents_;
};

static_assert(is_eviction_policy<next_visit_oracle>());

}  // namespace hotset
