// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose key was used by the fewest visits.
///
/// Rule: order by the number of visits that used the key, then recency position. `whole` counts over the key's entire
///   history, bypassed uses included; `resident` restarts at every fill. With `ageing_period` = n > 0, all counts are
///   halved, rounded down, at the commit that follows every n visits.
/// Source: SpecMD appendix B (`whole`); general cache simulators (`resident`); ageing as in TinyLFU.
/// Deviations: none. A key refilled within a visit has one use since that fill.
/// Exact: yes (never changes what is computed).
/// Cost: O(1) per hit and fill; a victim costs O(1) plus skipped ineligible slots. Counts from S / 2 on share
///   buckets; a bucket is sorted when a victim is in it. Ageing costs O(keys + S) once per period.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hotset/core/ids/per_key.hpp"
#include "hotset/eviction/order/bucket_order.hpp"
#include "hotset/policy/eviction_policy.hpp"

namespace hotset {

/// Part of a key's history that lfu counts.
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
      return detail::one_of("lfu history", history, {"whole", "resident"});
    }
  };
  static constexpr std::string_view name = "lfu";
  static constexpr eviction_traits traits{};

  lfu(const pool_layout& layout, const config& options)
      : whole_(options.history == lfu_history::whole),
        ageing_period_(options.ageing_period),
        most_of_a_visit_(layout.shape().expert_count()),
        past_(whole_ ? per_key<std::uint64_t>(layout.shape()) : per_key<std::uint64_t>()),
        order_(layout, count_buckets(layout)) {}

  void on_visit(const visit_event& e) noexcept { see(e, true); }
  /// Takes in a visit. If `counts` is false, its uses change only the recency position.
  void see(const visit_event& e, bool counts) noexcept {
    if (e.begins) age();
    const bool counts_all = counts && e.counted.empty();
    const auto is_counted = [&, counts_all](expert_id expert) {
      return counts_all || (counts && !e.repeats(expert));
    };
    const auto before = clock_;
    clock_ += most_of_a_visit_;
    if (!e.fills.empty()) place(e, is_counted);
    auto position = before;
    for (std::size_t i = 0; i < e.used.size(); ++i) {
      const auto r = order_.rank(e.used[i]);  // slots filled for this visit were already counted
      const bool is_new_use = (r.position <= before) & is_counted(e.experts[i]);
      order_.raise(e.used[i], {r.key + (is_new_use ? 1U : 0U), ++position});
    }
    if (!whole_) return;
    for (const auto& b : e.bypassed)
      if (!e.repeats(b.expert)) ++past_[e.key(b.expert)];
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    order_.put(e.pool, e.slot, {whole_ ? past_[e.key] : 0, ++clock_});
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
  /// Bucket of a count, like a floating-point number: small counts have a bucket each, large counts share one with
  /// their neighbours. There are enough bits that few slots of a pool share a bucket.
  class count_buckets {
   public:
    count_buckets() = default;
    explicit count_buckets(const pool_layout& layout) noexcept
        : mantissa_(score_buckets::mantissa_bits(layout)) {}
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

  /// Puts the visit's fills into their buckets; their positions are set afterwards.
  template <class IsCounted>
  void place(const visit_event& e, IsCounted is_counted) noexcept {
    const auto slot_of = [](const fill& f) { return f.slot; };
    const auto uses = [&](const fill& f) -> std::uint64_t {
      return whole_ ? past_[f.key] + (is_counted(f.key.expert) ? 1U : 0U) : 1U;
    };
    if (whole_)
      for (const auto& f : e.fills)
        if (f.victim != no_key) past_[f.victim] = order_.rank(f.slot).key;
    order_.leave(e.context.pool, e.fills, slot_of);
    order_.put_again(e.context.pool, e.fills, slot_of, uses, clock_);
  }
  /// Counts a visit, and halves all counts if the period has passed.
  void age() noexcept {
    if (ageing_period_ == 0) return;
    if (visits_ == ageing_period_) {
      for (auto& uses : past_.values()) uses /= 2;
      order_.transform([](slot_rank r) { return slot_rank{r.key / 2, r.position}; });
      visits_ = 0;
    }
    ++visits_;
  }

  bool whole_;
  std::uint64_t ageing_period_;
  std::uint64_t visits_ = 0;
  std::uint64_t clock_ = 0;
  std::uint64_t most_of_a_visit_;      // most slots that one visit uses
  per_key<std::uint64_t> past_;        // [key] visits; stale while the key is resident
  bucket_order<count_buckets> order_;  // a resident key's count is its rank
};

static_assert(is_eviction_policy<lfu>());

}  // namespace hotset
