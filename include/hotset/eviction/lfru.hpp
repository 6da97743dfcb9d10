// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose key has the lowest use frequency, decayed and divided by its age.
///
/// Rule: a use sets f <- f * d^(step - last) + 1. Order by f * d^(now - last) / (now - last + 1), times in steps,
///   then recency position. f and last belong to the key and survive eviction.
/// Source: ours; the name has five meanings in the field.
/// Deviations: powers are repeated products of d, up to d^65535, which stands for all higher powers. A key never used
///   has f = 0.
/// Exact: yes (never changes what is computed).
/// Cost: O(1) per hit and fill. Scores change with time: the first choice of a step rescores the pool, O(S). Then a
///   choice costs what coldest_slots states. Memory: 1 MiB per instance (two tables of 65,536 doubles), plus that of
///   keys and slots.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/eviction/order/coldest_slots.hpp"
#include "hotset/policy/eviction_policy.hpp"

namespace hotset {

class lfru {
 public:
  struct config {
    double decay = 0.999;  ///< d, per step
    /// Parameters by name, as in `lfru:decay=0.99`.
    template <class From>
    static config read(From& from) {
      return {from.real("decay", config{}.decay)};
    }
    [[nodiscard]] validation validate() const {
      return detail::refuse_unless(decay > 0.0 && decay <= 1.0, "lfru decay", decay, "(0, 1]");
    }
  };
  static constexpr std::string_view name = "lfru";
  static constexpr eviction_traits traits{.moves_by_itself = true};
  static constexpr std::size_t powers = std::size_t{1} << 16;

  lfru(const pool_layout& layout, const config& options)
      : power_(powers),
        score_of_one_(powers),
        past_(layout.shape()),
        present_(layout.slots()),
        order_(layout) {
    double p = 1.0;
    for (std::size_t n = 0; n < powers; ++n, p *= options.decay) {
      power_[n] = p;
      score_of_one_[n] = p / static_cast<double>(n + 1);
    }
    score_of_one_.back() = 0.0;  // lower bound for all higher ages
  }

  void on_visit(const visit_event& e) noexcept {
    const auto pool = e.context.pool;
    for (const auto& f : e.fills) {
      auto& heat = present_[f.slot];
      if (f.victim != no_key)
        past_[f.victim] = heat;
      else
        order_.settle(pool, f.slot);
      heat = past_[f.key];
    }
    for (std::size_t i = 0; i < e.used.size(); ++i) {
      const auto slot = e.used[i];
      if (!e.repeats(e.experts[i])) use(present_[slot], e.context.step);
      order_.use(pool, slot, scores{*this});
    }
    for (const auto& b : e.bypassed)
      if (!e.repeats(b.expert)) use(past_[e.key(b.expert)], e.context.step);
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    order_.settle(e.pool, e.slot);
    present_[e.slot] = past_[e.key];
    order_.use(e.pool, e.slot, scores{*this});
  }
  void on_evict(slot_id slot, expert_key key) noexcept {
    past_[key] = present_[slot];
    order_.vacate(slot);
  }
  void on_move(slot_id from, slot_id to) noexcept {
    present_[to] = present_[from];
    order_.move(from, to);
  }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    return order_.select(context.pool, context.step, eligible, out, scores{*this});
  }

 private:
  struct heat_record {
    double frequency = 0.0;
    step_id last = 0;
  };

  struct scores {
    const lfru& of;

    [[nodiscard]] double score(slot_id slot, step_id now) const noexcept {
      const auto& heat = of.present_[slot];
      if (now <= heat.last) return heat.frequency;
      const auto age = now - heat.last;
      return heat.frequency * of.power_[place(age)] / static_cast<double>(age + 1);
    }
    /// Multiplies by a rounded quotient instead of dividing.
    [[nodiscard]] double nearly(slot_id slot, step_id now) const noexcept {
      const auto& heat = of.present_[slot];
      return heat.frequency * of.score_of_one_[place(age_of(heat, now))];
    }
  };

  static std::uint64_t age_of(const heat_record& heat, step_id now) noexcept {
    return now > heat.last ? now - heat.last : 0;
  }
  static std::size_t place(std::uint64_t age) noexcept {
    return static_cast<std::size_t>(std::min<std::uint64_t>(age, powers - 1));
  }
  void use(heat_record& heat, step_id step) const noexcept {
    heat.frequency = heat.frequency * power_[place(age_of(heat, step))] + 1.0;
    heat.last = std::max(heat.last, step);
  }

  std::vector<double> power_;         // [n] d^n
  std::vector<double> score_of_one_;  // [age] score of f = 1, rounded differently from score()
  per_key<heat_record> past_;         // [key] stale while the key is resident
  per_slot<heat_record> present_;     // [slot]
  coldest_slots order_;
};

static_assert(is_eviction_policy<lfru>());

}  // namespace hotset
