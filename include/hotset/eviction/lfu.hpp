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
/// Cost: O(1) per hit and fill; a victim costs O(1) plus the ineligible slots passed over. Counts from
///       S / 2 on share a bucket with their neighbours, which is sorted when a victim is in it.
///       Ageing costs O(keys + S) once per period.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/order/bucket_order.hpp"

namespace hotset::inline v0 {

/// How far back lfu counts.
enum class lfu_history : std::uint8_t { whole, resident };

class lfu {
 public:
  struct config {
    lfu_history history = lfu_history::whole;
    std::uint64_t ageing_period = 0;  ///< visits; 0: never
    /// Parameters by name, as in `lfu:history=resident`.
    template <class From>
    static config read(From& from) {
      return {static_cast<lfu_history>(from.choice("history", {"whole", "resident"}, 0)),
              from.number("ageing_period", std::uint64_t{0})};
    }
    [[nodiscard]] validation validate() const {
      if (history != lfu_history::whole && history != lfu_history::resident)
        return error{"lfu history = " + std::to_string(static_cast<int>(history)) +
                     ", accepted: 0 (whole), 1 (resident)"};
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "lfu";
  static constexpr eviction_traits traits{.hears_steps = true,
                                          .hears_bypasses = true,
                                          .hears_visits = true,
                                          .hears_replacements = true};

  explicit lfu(const pool_layout& layout) : lfu(layout, config{}) {}
  lfu(const pool_layout& layout, const config& options)
      : whole_(options.history == lfu_history::whole),
        ageing_period_(options.ageing_period),
        most_of_a_visit_(layout.shape().expert_count()),
        past_(whole_ ? per_key<std::uint64_t>(layout.shape()) : per_key<std::uint64_t>()),
        order_(layout, count_buckets(layout)) {}

  void on_step(step_id, layer_id) noexcept {
    before_visit_ = clock_;
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
  void on_visit(const visit_context&, std::span<const slot_id> slots) noexcept {
    auto position = clock_;
    for (const auto slot : slots) {
      const auto r = order_.rank(slot);  // what was filled for the visit has been counted
      order_.raise(slot, {r.key + (r.position > before_visit_ ? 0U : 1U), ++position});
    }
    clock_ += most_of_a_visit_;
  }
  void on_fill(const access& a) noexcept {
    std::uint64_t uses = 0;
    if (whole_)
      uses = past_[a.key] + (a.speculative || a.repeated ? 0U : 1U);
    else
      uses = a.speculative ? 0 : 1;
    order_.put(a.pool, a.slot, {uses, ++clock_});
  }
  void on_replace(const visit_context& context, std::span<const fill> fills) noexcept {
    const auto slot_of = [](const fill& f) { return f.slot; };
    const auto position = clock_ + most_of_a_visit_;  // the visit will tell which
    if (whole_)
      for (const auto& f : fills) past_[f.victim] = order_.rank(f.slot).key;
    order_.leave(context.pool, fills, slot_of);
    const auto uses = [this](const fill& f) { return whole_ ? past_[f.key] + 1 : 1; };
    order_.put_again(context.pool, fills, slot_of, uses, position);
  }
  void on_bypass(const access& a) noexcept {
    if (whole_ && !a.repeated && !a.speculative) ++past_[a.key];
  }
  void on_evict(slot_id slot, expert_key key) noexcept {
    if (whole_) past_[key] = order_.rank(slot).key;
    order_.drop(slot);
  }
  void on_move(slot_id from, slot_id to) noexcept { order_.move(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return order_.select(context.pool, eligible, out);
  }

 private:
  /// A count as a floating point number: small ones have a bucket each, large ones share theirs with the
  /// neighbours. Enough bits that few slots of a pool do.
  class count_buckets {
   public:
    count_buckets() = default;
    explicit count_buckets(const pool_layout& layout) noexcept
        : mantissa_(std::clamp(
              static_cast<unsigned>(std::bit_width(layout.slots() / layout.pools() / 4)), 3U, 9U)) {
    }
    [[nodiscard]] std::size_t operator()(std::uint64_t uses) const noexcept {
      if (uses >> mantissa_ <= 1) return static_cast<std::size_t>(uses);
      const auto bounded = std::min(uses, most);
      const auto exponent = static_cast<unsigned>(std::bit_width(bounded >> mantissa_ >> 1U));
      return (std::size_t{exponent} << mantissa_) + static_cast<std::size_t>(bounded >> exponent);
    }
    [[nodiscard]] std::size_t buckets() const noexcept { return (*this)(most) + 1; }

   private:
    static constexpr std::uint64_t most = std::uint64_t{1} << 24;  // larger counts share a bucket
    unsigned mantissa_ = 3;
  };

  void age() noexcept {
    for (auto& uses : past_.values()) uses /= 2;
    order_.transform([](slot_rank r) { return slot_rank{r.key / 2, r.position}; });
  }

  bool whole_;
  std::uint64_t ageing_period_;
  std::uint64_t visits_ = 0;
  std::uint64_t clock_ = 0;
  std::uint64_t before_visit_ = 0;     // the clock when the visit began
  std::uint64_t most_of_a_visit_;      // slots
  per_key<std::uint64_t> past_;        // [key] visits, out of date while the key is resident
  bucket_order<count_buckets> order_;  // a resident key's count is its rank
};

static_assert(is_eviction_policy<lfu>());

}  // namespace hotset::inline v0
