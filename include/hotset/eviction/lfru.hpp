// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Evicts the slot whose key has the lowest use frequency, decayed and divided by its age.
///
/// Rule: a use sets f <- f * d^(step - last) + 1; order by f * d^(now - last) / (now - last + 1), times in
///       steps, then recency position. f and last belong to the key and are kept when it is evicted.
/// Source: the name has five meanings in the field; this one is hotset's own.
/// Deviations: powers are products of d, one factor after the other, up to d^65535, which stands for all
///       higher powers too. A key never used has f = 0.
/// Exact: yes (never changes what is computed).
/// Cost: O(1) per hit and fill; a victim costs O(S): scores move by themselves, so a choice scans the pool.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/concepts/eviction_policy.hpp"
#include "hotset/residency/indexed_heap.hpp"

namespace hotset::inline v0 {

class lfru {
 public:
  struct config {
    double decay = 0.999;  ///< d, per step
    [[nodiscard]] validation validate() const {
      if (!(decay > 0.0 && decay <= 1.0))
        return error{"lfru decay = " + std::to_string(decay) + ", accepted: (0, 1]"};
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "lfru";
  static constexpr std::size_t powers = std::size_t{1} << 16;

  explicit lfru(const pool_layout& layout) : lfru(layout, config{}) {}
  lfru(const pool_layout& layout, const config& options)
      : experts_(static_cast<std::size_t>(layout.shape().experts)),
        power_(powers),
        score_of_one_(powers),
        past_(layout.shape().keys()),
        present_(layout.slots()),
        position_(layout.slots(), 0),
        members_(layout),
        chosen_(layout.slots()) {
    double p = 1.0;
    for (std::size_t n = 0; n < powers; ++n, p *= options.decay) {
      power_[n] = p;
      score_of_one_[n] = p / static_cast<double>(n + 1);
    }
    score_of_one_.back() = 0.0;  // a lower bound for all ages from here on
  }

  void on_step(step_id, layer_id) noexcept {}
  void on_hit(const access& a) noexcept {
    if (!a.repeated) use(present_[at(a.slot)], a.step);
    position_[at(a.slot)] = ++clock_;
  }
  void on_fill(const access& a) noexcept {
    if (members_.home(a.slot) != a.pool)
      members_.settle(a.pool, a.slot, [this](slot_id s) { return vacant(s); });
    auto& heat = present_[at(a.slot)];
    heat = past_[index(a.key)];
    if (!a.speculative && !a.repeated) use(heat, a.step);
    position_[at(a.slot)] = ++clock_;
  }
  void on_bypass(const access& a) noexcept {
    if (!a.speculative && !a.repeated) use(past_[index(a.key)], a.step);
  }
  void on_evict(slot_id slot, expert_key key) noexcept {
    past_[index(key)] = present_[at(slot)];
    present_[at(slot)] = {};
    present_[at(slot)].frequency = std::numeric_limits<double>::infinity();
  }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    if (out.empty()) return 0;
    constexpr double all = std::numeric_limits<double>::max();
    // The product with a rounded quotient is within 2^-51 of the score: with this much to spare, what it
    // excludes is no candidate. Only the others pay for the division.
    constexpr double spare = 1.0 + 0x1p-48;
    const step_id now = context.step;
    auto worst = vacant_rank;
    double limit = all;
    std::size_t count = 0;
    for (const auto slot : members_.of(context.pool)) {
      const auto& heat = present_[at(slot)];
      const auto age = age_of(heat, now);
      const auto bound = heat.frequency * score_of_one_[std::min(age, powers - 1)];
      if (!(bound <= limit) || !eligible.test(slot) || vacant(slot)) continue;
      const slot_rank rank{std::bit_cast<std::uint64_t>(score(heat, age)), position_[at(slot)]};
      if (!(rank < worst)) continue;
      auto n = count < out.size() ? count++ : count - 1;
      for (; n > 0 && rank < chosen_[n - 1].rank; --n) chosen_[n] = chosen_[n - 1];
      chosen_[n] = {rank, slot};
      if (count == out.size()) {
        worst = chosen_[count - 1].rank;
        limit = std::bit_cast<double>(worst.key) * spare;
      }
    }
    for (std::size_t n = 0; n < count; ++n) out[n] = chosen_[n].slot;
    return count;
  }

 private:
  struct heat_record {
    double frequency = 0.0;  // infinite for a vacant slot
    step_id last = 0;
  };
  struct candidate {
    slot_rank rank;
    slot_id slot = no_slot;
  };

  static std::size_t at(slot_id slot) noexcept { return static_cast<std::size_t>(slot); }
  [[nodiscard]] std::size_t index(expert_key key) const noexcept {
    return static_cast<std::size_t>(key.layer) * experts_ + static_cast<std::size_t>(key.expert);
  }
  [[nodiscard]] bool vacant(slot_id slot) const noexcept {
    return present_[at(slot)].frequency > std::numeric_limits<double>::max();
  }
  static std::size_t age_of(const heat_record& heat, step_id now) noexcept {
    return now > heat.last ? static_cast<std::size_t>(now - heat.last) : 0;
  }
  void use(heat_record& heat, step_id step) const noexcept {
    heat.frequency = heat.frequency * power_[std::min(age_of(heat, step), powers - 1)] + 1.0;
    heat.last = std::max(heat.last, step);
  }
  [[nodiscard]] double score(const heat_record& heat, std::size_t age) const noexcept {
    return heat.frequency * power_[std::min(age, powers - 1)] / static_cast<double>(age + 1);
  }

  std::size_t experts_;
  std::vector<double> power_;         // [n] d^n
  std::vector<double> score_of_one_;  // [age] score of f = 1, rounded otherwise than score()
  std::vector<heat_record> past_;     // [key] out of date while the key is resident
  std::vector<heat_record> present_;  // [slot]
  std::vector<std::uint64_t> position_;
  std::uint64_t clock_ = 0;
  pool_members members_;
  std::vector<candidate> chosen_;
};

static_assert(eviction_policy<lfru>);

}  // namespace hotset::inline v0
