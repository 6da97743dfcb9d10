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
/// Cost: O(1) per hit and fill; a forecast O(tokens E) per layer; a choice scans the pool, O(S).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/order/scanned_slots.hpp"
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
  static constexpr eviction_traits traits{
      .hears_bypasses = true, .hears_routes = true, .hears_forecasts = true};

  explicit expert_map_priority(const pool_layout& layout) : expert_map_priority(layout, config{}) {}
  expert_map_priority(const pool_layout& layout, const config& options)
      : from_fill_(options.freq == use_history::resident),
        layers_(layout.shape().layers),
        experts_(layout.shape().expert_count()),
        starts_(layout.shape()),
        expected_(layout.shape()),
        uses_(layout.shape()),
        slots_(layout) {
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
    }
  }
  void on_hit(const access& a) noexcept {
    if (!a.repeated) ++uses_[a.key];
    slots_.use(a.slot);
  }
  void on_fill(const access& a) noexcept {
    slots_.fill(a.pool, a.slot, a.key);
    auto& uses = uses_[a.key];
    if (from_fill_)
      uses = 1;
    else if (!a.speculative && !a.repeated)
      ++uses;
  }
  void on_bypass(const access& a) noexcept {
    if (!a.speculative && !a.repeated) ++uses_[a.key];
  }
  void on_evict(slot_id slot, expert_key) noexcept { slots_.vacate(slot); }
  void on_move(slot_id from, slot_id to) noexcept { slots_.move(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return slots_.select(context.pool, eligible, out, [this](expert_key key) {
      const auto place = uses_.place_of(key);
      return double{expected_.values()[place]} * static_cast<double>(uses_.values()[place]);
    });
  }

 private:
  void forget_forecasts() noexcept {
    std::ranges::fill(expected_.values(), 1.0F / static_cast<float>(experts_));
  }

  bool from_fill_;
  std::int32_t layers_;
  std::size_t experts_;
  request_starts starts_;
  per_key<float> expected_;      // [key]
  per_key<std::uint64_t> uses_;  // [key]
  scanned_slots slots_;
};

static_assert(is_eviction_policy<expert_map_priority>());

}  // namespace hotset::inline v0
