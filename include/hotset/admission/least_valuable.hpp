// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Refuses a visit's least valuable misses if every expert that they would evict is worth more.
///
/// Rule: values are those of `similar_steps`, the visit itself included. If f of m misses find free slots, the others
///   would evict the m - f least valuable residents of the pool. While the least valuable remaining miss is worth
///   less than the most valuable of those residents, the miss takes no slot and that resident stays. At most
///   `streams` misses of a visit are refused.
/// Source: ours; a bypass rule of caches that may serve a key without storing it.
/// Deviations: victims are chosen by value, whatever the eviction policy would choose. A prefetched expert counts as
///   resident from its first use on. With several precisions, only pools of the highest precision count.
/// Exact: yes, if the miss policy serves a refused key exactly: on the host, or through the engine's transient slots.
///   `streams` such slots serve all layers.
/// Cost: that of `similar_steps`, plus O(m E) for a visit that misses. Memory: that of `similar_steps`, plus 24 bytes
///   per key.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/eviction/order/valued_residents.hpp"
#include "hotset/policy/admission_policy.hpp"
#include "hotset/predict/history/next_use_values.hpp"

namespace hotset {

class least_valuable {
 public:
  struct config {
    std::int32_t streams = 1;  ///< most misses of a visit that may be refused
    /// Remembered tokens; 0: values use rates alone.
    std::int32_t rows = routing_history::config{}.rows;
    std::int32_t sequences = routing_history::config{}.sequences;
    history_source from{};  ///< history to start from; none: empty

    /// Parameters by name, as in `least_valuable:streams=2:rows=1024`.
    template <class From>
    static config read(From& from) {
      return {.streams = from.number("streams", config{}.streams),
              .rows = from.number("rows", config{}.rows),
              .sequences = from.number("sequences", config{}.sequences),
              .from = history_source::read(from)};
    }
    [[nodiscard]] validation validate() const {
      if (streams < 1)
        return refusal("least_valuable streams = ", streams, ", accepted: 1 or more");
      return values().validate();
    }
    /// Also checks that the history to start from has this shape.
    [[nodiscard]] validation validate(const geometry& shape) const {
      if (auto bad = validate()) return bad;
      return from.validate(shape);
    }
    [[nodiscard]] next_use_values::config values() const {
      next_use_values::config out;
      if (rows != 0) out.history = routing_history::config{.rows = rows, .sequences = sequences};
      out.from = from;
      return out;
    }
  };
  static constexpr std::string_view name = "least_valuable";
  static constexpr admission_traits traits{.wants_routes = true};

  least_valuable(const pool_layout& layout, const config& options)
      : experts_(layout.shape().expert_count()),
        streams_(static_cast<std::size_t>(options.streams)),
        values_(layout.shape(), options.values()),
        residents_(layout, options.values().discount, layout.shape().keys()),
        others_(layout.shape().keys()),
        victims_(layout.shape().keys()),
        held_(layout.shape().keys(), 0) {
    for (const auto k : each<slot_id>(held_.size())) others_.set(k);
  }

  void on_routed(const routing_view& view) noexcept { values_.stage(view); }
  void admit(const visit_context& context, std::span<const expert_use> misses,
             std::span<std::uint8_t> admitted) const noexcept {
    std::fill_n(admitted.begin(), misses.size(), std::uint8_t{1});
    if (misses.size() <= context.free || !values_.is_staged(context.layer, context.step)) return;
    auto leaving = find_victims(context, misses.size() - context.free);
    for (std::size_t n = 0; n < streams_ && !leaving.empty(); ++n) {
      const auto least = least_of(misses, admitted);
      if (worth(misses[least].key, context) >= worth(key_of(leaving.back()), context)) return;
      admitted[least] = 0;
      leaving = leaving.first(leaving.size() - 1);
    }
  }
  void on_use(const expert_use& a, bool, bool) noexcept {
    if (values_.is_staged(a.key.layer, a.step)) {
      residents_.set_values(a.key.layer, values_.values());
      values_.keep();
    }
    if (a.slot == no_slot) return;
    const auto key = index(a.key);
    if (held_[key] == 0)
      residents_.fill(static_cast<slot_id>(key), a.key, precision_id{});
    else
      residents_.use(static_cast<slot_id>(key));
    held_[key] = 1;
  }
  void on_evict(expert_key key, step_id) noexcept {
    if (held_[index(key)] == 0) return;
    residents_.vacate(static_cast<slot_id>(index(key)));
    held_[index(key)] = 0;
  }

 private:
  [[nodiscard]] std::size_t index(expert_key key) const noexcept {
    return index_of(key.layer) * experts_ + index_of(key.expert);
  }
  /// Returns the keys that would be evicted, as slot numbers, least valuable first; none of the visit's own.
  [[nodiscard]] std::span<const slot_id> find_victims(const visit_context& context,
                                                      std::size_t count) const noexcept {
    const auto own = [&](expert_id e) { return static_cast<slot_id>(index({context.layer, e})); };
    for (const auto e : values_.staged_experts()) others_.reset(own(e));
    const auto found =
        residents_.select(context.pool, context.layer, values_.values(), others_,
                          std::span(victims_).first(std::min(count, victims_.size())));
    for (const auto e : values_.staged_experts()) others_.set(own(e));
    return std::span<const slot_id>(victims_).first(found);
  }
  /// Returns the least valuable admitted miss; among equals the last in routed order. Pre: a miss is admitted.
  [[nodiscard]] std::size_t least_of(std::span<const expert_use> misses,
                                     std::span<const std::uint8_t> admitted) const noexcept {
    const auto values = values_.values();
    std::size_t least = misses.size();
    for (std::size_t m = 0; m < misses.size(); ++m)
      if (admitted[m] != 0 &&
          (least == misses.size() || value(values, misses[m]) <= value(values, misses[least])))
        least = m;
    return least;
  }
  static float value(std::span<const float> values, const expert_use& a) noexcept {
    return values[index_of(a.key.expert)];
  }
  [[nodiscard]] double worth(expert_key key, const visit_context& context) const noexcept {
    const auto value =
        key.layer == context.layer ? values_.values()[index_of(key.expert)] : residents_.value(key);
    return residents_.worth(key.layer, value, context.layer);
  }
  [[nodiscard]] expert_key key_of(slot_id number) const noexcept {
    const auto n = index_of(number);
    return {static_cast<layer_id>(n / experts_), static_cast<expert_id>(n % experts_)};
  }

  std::size_t experts_;
  std::size_t streams_;
  // admit has no visible effect: it computes values and uses scratch.
  mutable next_use_values values_;
  mutable valued_residents residents_;  ///< keys in place of slots
  mutable slot_mask others_;            ///< [key] all except the visit's own
  mutable std::vector<slot_id> victims_;
  std::vector<std::uint8_t> held_;  ///< [key] 1: has a slot
};

static_assert(admission_policy<least_valuable>);

}  // namespace hotset
