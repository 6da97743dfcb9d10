// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose key has been used by the fewest visits.
///
/// Rule: order by the number of visits that used the key, then recency position. `whole` counts over the
///       entire history of the key, bypassed uses included; `resident` starts again at every fill.
///       With `ageing_period` = n > 0 all counts are halved, rounded down, when a
///       visit is committed and n have gone by.
/// Source: SpecMD appendix B (`whole`); general cache simulators (`resident`); ageing as in TinyLFU.
/// Deviations: none. A key refilled within one visit has been used once since that fill.
/// Exact: yes (never changes what is computed).
/// Cost: one store per hit; O(1) per fill, O(log S) where the count falls; a victim costs O(log S) plus
///       the ineligible slots passed over. Ageing costs O(keys + S) once per period.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/residency/indexed_heap.hpp"

namespace hotset::inline v0 {

/// How far back lfu counts.
enum class lfu_history : std::uint8_t { whole, resident };

class lfu {
 public:
  struct config {
    lfu_history history = lfu_history::whole;
    std::uint64_t ageing_period = 0;  ///< visits; 0: never
    [[nodiscard]] validation validate() const {
      if (history != lfu_history::whole && history != lfu_history::resident)
        return error{"lfu history = " + std::to_string(static_cast<int>(history)) +
                     ", accepted: 0 (whole), 1 (resident)"};
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "lfu";

  explicit lfu(const pool_layout& layout) : lfu(layout, config{}) {}
  lfu(const pool_layout& layout, const config& options)
      : experts_(static_cast<std::size_t>(layout.shape().experts)),
        whole_(options.history == lfu_history::whole),
        ageing_period_(options.ageing_period),
        past_(whole_ ? layout.shape().keys() : 0, 0),
        order_(layout) {}

  void on_step(step_id, layer_id) noexcept {
    if (ageing_period_ == 0) return;
    if (visits_ == ageing_period_) {
      age();
      visits_ = 0;
    }
    ++visits_;
  }
  void on_hit(const access& a) noexcept {
    order_.raise(a.slot, {order_.rank(a.slot).key + (a.repeated ? 0U : 1U), ++clock_});
  }
  void on_fill(const access& a) noexcept {
    std::uint64_t uses = 0;
    if (whole_)
      uses = past_[index(a.key)] + (a.speculative || a.repeated ? 0U : 1U);
    else
      uses = a.speculative ? 0 : 1;
    order_.assign(a.pool, a.slot, {uses, ++clock_});
  }
  void on_bypass(const access& a) noexcept {
    if (whole_ && !a.repeated && !a.speculative) ++past_[index(a.key)];
  }
  void on_evict(slot_id slot, expert_key key) noexcept {
    if (whole_) past_[index(key)] = order_.rank(slot).key;
    order_.vacate(slot);
  }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return order_.select(context.pool, eligible, out);
  }

 private:
  [[nodiscard]] std::size_t index(expert_key key) const noexcept {
    return static_cast<std::size_t>(key.layer) * experts_ + static_cast<std::size_t>(key.expert);
  }
  void age() noexcept {
    for (auto& uses : past_) uses /= 2;
    order_.transform([](slot_rank r) { return slot_rank{r.key / 2, r.position}; });
  }

  std::size_t experts_;
  bool whole_;
  std::uint64_t ageing_period_;
  std::uint64_t visits_ = 0;
  std::uint64_t clock_ = 0;
  std::vector<std::uint64_t> past_;  // [key] visits, out of date while the key is resident
  indexed_heap order_;               // a resident key's count is its rank
};

static_assert(eviction_policy<lfu>);

}  // namespace hotset::inline v0
