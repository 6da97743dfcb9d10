// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the expert with the smallest product of expected probability and uses.
///
/// Rule: order by p(e) * freq(e), then recency position; fMoE evicts the greatest 1 / (p * freq). freq counts the
///   visits that used the key in its whole history; prefetches do not count. p is 1 / E for all experts when a
///   request starts. Each forecast overwrites its layer's p with the greatest value over its tokens.
/// Source: fMoE, cache management.
/// Deviations: the product is a double; one public revision truncates it to an integer, so that the order is
///   arbitrary. `freq=resident` counts since the fill, as revisions did. With one-hot maps most p are 0, and recency
///   decides. A request starts in a step that shares no sequence with the step before.
/// Exact: yes (never changes what is computed).
/// Cost: O(1) per hit and fill; a forecast O(tokens E) per layer. A choice costs O(R) for each layer used or forecast
///   since the last choice; a victim costs O(R + L). R is the residents of a layer.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hotset/core/fill.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/eviction/order/layer_tournament.hpp"
#include "hotset/policy/eviction_policy.hpp"
#include "hotset/predict/history/view_tokens.hpp"

namespace hotset {

/// Uses that expert_map_priority counts.
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
      return detail::one_of("expert_map_priority freq", freq, {"whole", "resident"});
    }
  };
  static constexpr std::string_view name = "expert_map_priority";
  static constexpr eviction_traits traits{.wants_routes = true, .wants_forecasts = true};

  expert_map_priority(const pool_layout& layout, const config& options)
      : from_fill_(options.freq == use_history::resident),
        layers_(layout.shape().layer_count()),
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
    expected.each_layer(context.layer, layers_, experts_, [&](layer_id layer, std::int32_t ahead) {
      expected.write_most(ahead, expected_.row(layer));
      residents_.rescore(layer);
    });
  }
  void on_visit(const visit_event& e) noexcept {
    residents_.bring(e.fills);
    if (from_fill_)
      for (const auto& f : e.fills) uses_[f.key] = 0;
    e.each_use([&](std::size_t i, bool is_filled) {
      if ((is_filled && from_fill_) || !e.repeats(e.experts[i])) ++uses_[e.key(e.experts[i])];
    });
    residents_.use(e.used);
    for (const auto& b : e.bypassed)
      if (!e.repeats(b.expert)) ++uses_[e.key(b.expert)];
    residents_.rescore(e.context.layer);
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    residents_.fill(e.slot, e.key, e.precision);
    if (from_fill_) uses_[e.key] = 1;
    residents_.rescore(e.key.layer);
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

    void write(const layer_residents& residents, std::span<double> to) const noexcept {
      const auto expected = of.expected_.row(residents.layer);
      const auto uses = of.uses_.row(residents.layer);
      for (std::size_t i = 0; i < to.size(); ++i) {
        const auto e = index_of(residents.experts[i]);
        to[i] = as_number(double{expected[e]} * static_cast<double>(uses[e]));
      }
    }
  };

  void forget_forecasts() noexcept {
    std::ranges::fill(expected_.values(), 1.0F / static_cast<float>(experts_));
    residents_.rescore_all();
  }

  bool from_fill_;
  std::size_t layers_;
  std::size_t experts_;
  request_starts starts_;
  per_key<float> expected_;      // [key]
  per_key<std::uint64_t> uses_;  // [key]
  layer_tournament residents_;
};

static_assert(is_eviction_policy<expert_map_priority>());

}  // namespace hotset
