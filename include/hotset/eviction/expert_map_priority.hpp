// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the expert whose expected probability times its uses is smallest.
///
/// Rule: order by p(e) * freq(e), then recency position: fMoE evicts the greatest 1 / (p * freq). freq counts the visits
///       that used the key in its whole history; a prefetch does not count. p is 1 / E for all when a request starts;
///       each forecast of a layer overwrites that layer's, with the greatest over its tokens.
/// Source: fMoE, cache management.
/// Deviations: the product is a double; one public revision truncates it to an integer, so that the order is arbitrary.
///       `freq=resident` counts since the fill, as revisions did. With one-hot maps most p are 0: recency decides.
///       A request starts where a step's sequences were none of the step before's.
/// Exact: yes (never changes what is computed).
/// Cost: O(1) per hit and fill; a forecast O(tokens E) per layer; a choice O(R) for each layer that was used or forecast since the
///       last one, and a victim O(R + L), R the residents of a layer.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/core/fill.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/order/scored_residents.hpp"
#include "hotset/predict/history/request_starts.hpp"

namespace hotset::inline v0 {

/// What expert_map_priority counts.
enum class use_history : std::uint8_t { whole, resident };

class expert_map_priority {
 public:
  struct config {
    use_history freq = use_history::whole;
    /// Parameters by name, as in `expert_map_priority:freq=resident`.
    template <class From>
    static config read(From& from) {
      return {static_cast<use_history>(from.choice("freq", {"whole", "resident"}, 0))};
    }
    [[nodiscard]] validation validate() const {
      if (freq != use_history::whole && freq != use_history::resident)
        return error{"expert_map_priority freq = " + std::to_string(static_cast<int>(freq)) +
                     ", accepted: 0 (whole), 1 (resident)"};
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "expert_map_priority";
  static constexpr eviction_traits traits{.hears_steps = true,
                                          .hears_bypasses = true,
                                          .hears_visits = true,
                                          .hears_replacements = true,
                                          .hears_routes = true,
                                          .hears_forecasts = true};

  explicit expert_map_priority(const pool_layout& layout) : expert_map_priority(layout, config{}) {}
  expert_map_priority(const pool_layout& layout, const config& options)
      : from_fill_(options.freq == use_history::resident),
        layers_(layout.shape().layers),
        experts_(layout.shape().expert_count()),
        starts_(layout.shape()),
        expected_(layout.shape()),
        uses_(layout.shape()),
        residents_(layout) {
    forget_forecasts();
  }

  void on_routed(const routing_view& view) noexcept {
    if (starts_.begins(view)) forget_forecasts();
  }
  void on_forecast(const visit_context& context, const forecast& expected) noexcept {
    const auto tokens = expected.tokens(experts_);
    if (tokens == 0) return;
    for (std::int32_t ahead = 0; ahead < expected.depth; ++ahead) {
      const auto layer = context.layer + 1 + ahead;
      if (layer >= layers_) return;
      const auto most = expected_.row(layer);
      std::ranges::copy(expected.row(0, ahead, experts_), most.begin());
      for (std::size_t t = 1; t < tokens; ++t) {
        const auto row = expected.row(t, ahead, experts_);
        for (std::size_t e = 0; e < experts_; ++e) most[e] = std::max(most[e], row[e]);
      }
      residents_.rescore(layer);
    }
  }
  void on_step(step_id, layer_id) noexcept { before_visit_ = residents_.now(); }
  void on_visit(const visit_context& context, std::span<const slot_id> slots) noexcept {
    if (residents_.now() - before_visit_ != slots.size())
      for (const auto slot : slots)  // what was filled for the visit has been counted
        if (residents_.used_at(slot) <= before_visit_) ++uses_[residents_.key(slot)];
    residents_.use(slots);
    residents_.rescore(context.layer);
  }
  void on_hit(const access& a) noexcept {
    residents_.use(a.slot);
    if (!a.repeated) count(a.key);
  }
  void on_fill(const access& a) noexcept {
    residents_.fill(a.slot, a.key, a.precision);
    if (from_fill_) uses_[a.key] = 0;
    if (from_fill_ || (!a.speculative && !a.repeated)) count(a.key);
  }
  void on_replace(const visit_context&, std::span<const fill> fills) noexcept {
    residents_.replace(fills, [this](const fill& f) {  // whose layer is scored anew
      uses_[f.key] = from_fill_ ? 1 : uses_[f.key] + 1;
    });
  }
  void on_bypass(const access& a) noexcept {
    if (!a.speculative && !a.repeated) count(a.key);
  }
  void on_evict(slot_id slot, expert_key) noexcept { residents_.vacate(slot); }
  void on_move(slot_id from, slot_id to) noexcept { residents_.move(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return residents_.select(context.pool, eligible, out, scores{*this});
  }

 private:
  struct scores {
    const expert_map_priority& of;

    void write(layer_id layer, std::span<const expert_id> experts,
               std::span<double> to) const noexcept {
      const auto expected = of.expected_.row(layer);
      const auto uses = of.uses_.row(layer);
      for (std::size_t i = 0; i < to.size(); ++i) {
        const auto e = index_of(experts[i]);
        to[i] = as_number(double{expected[e]} * static_cast<double>(uses[e]));
      }
    }
  };

  void count(expert_key key) noexcept {
    ++uses_[key];
    residents_.rescore(key.layer);
  }
  void forget_forecasts() noexcept {
    std::ranges::fill(expected_.values(), 1.0F / static_cast<float>(experts_));
    residents_.rescore_all();
  }

  bool from_fill_;
  std::int32_t layers_;
  std::size_t experts_;
  request_starts starts_;
  per_key<float> expected_;      // [key]
  per_key<std::uint64_t> uses_;  // [key]
  scored_residents residents_;
  std::uint64_t before_visit_ = 0;  // now() when the visit began
};

static_assert(is_eviction_policy<expert_map_priority>());

}  // namespace hotset::inline v0
