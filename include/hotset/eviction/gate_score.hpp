// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose key has accumulated the lowest gate score.
///
/// Rule: order by the accumulated score, then recency position. A use adds the sum of the gate weights that the
///   visit's tokens give the key, in routed order, in double. A score survives eviction. `ema`: score <- decay *
///   score + (1 - decay) * sum, at uses of the key only.
/// Source: Zhu et al., as described in SpecMD.
/// Deviations: the paper does not say what happens to a score at eviction; here it is kept.
/// Exact: yes (never changes what is computed).
/// Cost: O(1) per hit and fill; a victim costs O(1), plus skipped ineligible slots and a sort of the slots whose
///   scores share the leading bits.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hotset/core/fill.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/eviction/order/bucket_order.hpp"
#include "hotset/policy/eviction_policy.hpp"

namespace hotset {

/// How gate_score accumulates weights.
enum class gate_accumulate : std::uint8_t { sum, ema };

class gate_score {
 public:
  struct config {
    gate_accumulate accumulate = gate_accumulate::sum;
    double decay = 0.9;  ///< `ema` only
    /// Parameters by name, as in `gate_score:accumulate=ema:decay=0.9`.
    template <class From>
    static config read(From& from) {
      return {static_cast<gate_accumulate>(from.choice("accumulate", {"sum", "ema"}, 0)),
              from.real("decay", config{}.decay)};
    }
    [[nodiscard]] validation validate() const {
      return detail::first_of({detail::one_of("gate_score accumulate", accumulate, {"sum", "ema"}),
                               detail::refuse_unless(decay >= 0.0 && decay < 1.0,
                                                     "gate_score decay", decay, "[0, 1)")});
    }
  };
  static constexpr std::string_view name = "gate_score";
  static constexpr eviction_traits traits{.needs_weights = true};

  gate_score(const pool_layout& layout, const config& options)
      : keep_(options.accumulate == gate_accumulate::sum ? 1.0 : options.decay),
        gain_(options.accumulate == gate_accumulate::sum ? 1.0 : 1.0 - options.decay),
        past_(layout.shape()),
        order_(layout, score_buckets(layout)) {}

  void on_visit(const visit_event& e) noexcept {
    const auto pool = e.context.pool;
    for (const auto& f : e.fills)
      if (f.victim != no_key) past_[f.victim] = score_of(f.slot);
    if (!e.fills.empty()) order_.leave(pool, e.fills, [](const fill& f) { return f.slot; });
    e.each_use([&](std::size_t i, bool is_filled) {
      const bool again = e.repeats(e.experts[i]);
      if (is_filled)
        put(pool, e.used[i], used(past_[e.key(e.experts[i])], e.weight(i), again));
      else
        use(pool, e.used[i], used(score_of(e.used[i]), e.weight(i), again));
    });
    for (const auto& b : e.bypassed) {
      auto& past = past_[e.key(b.expert)];
      past = used(past, b.weight, e.repeats(b.expert));
    }
  }
  void on_prefetch(const prefetch_event& e) noexcept { put(e.pool, e.slot, past_[e.key]); }
  void on_evict(slot_id slot, expert_key key) noexcept {
    past_[key] = score_of(slot);
    order_.drop(slot);
  }
  void on_move(slot_id from, slot_id to) noexcept { order_.move(from, to); }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return order_.select(context.pool, eligible, out);
  }

 private:
  /// A later token group of a visit adds its weights without decay: a score decays once per visit.
  [[nodiscard]] double used(double score, double weight, bool repeated) const noexcept {
    return (repeated ? score : keep_ * score) + gain_ * weight;
  }
  [[nodiscard]] double score_of(slot_id slot) const noexcept {
    return detail::from_ordered_bits(order_.rank(slot).key);
  }
  void put(pool_id pool, slot_id slot, double score) noexcept {
    order_.put(pool, slot, {detail::ordered_bits(score), ++clock_});
  }
  void use(pool_id pool, slot_id slot, double score) noexcept {
    const auto now = detail::ordered_bits(score);
    if (now >= order_.rank(slot).key) return order_.raise(slot, {now, ++clock_});
    order_.drop(slot);
    put(pool, slot, score);
  }

  double keep_;
  double gain_;
  std::uint64_t clock_ = 0;
  per_key<double> past_;               // [key] score; stale while the key is resident
  bucket_order<score_buckets> order_;  // a resident key's score is its rank, as ordered bits
};

static_assert(is_eviction_policy<gate_score>());

}  // namespace hotset
