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
/// Cost: O(1) per hit and fill. Scores move by themselves: those of a pool are worked out, O(S), at the first choice of a
///       step. A pool of up to 256 slots is looked at whole at every choice, vectorised; of a larger one the coldest slots are
///       sorted for the choices of a step. Memory: 1 MiB an instance, two tables of 65,536 doubles, beside that of keys and slots.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/eviction/order/pool_members.hpp"
#include "hotset/eviction/order/rank_scan.hpp"
#include "hotset/eviction/order/slot_rank.hpp"
#include "hotset/eviction/order/slot_scores.hpp"
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
      if (!(decay > 0.0 && decay <= 1.0))
        return error{"lfru decay = " + std::to_string(decay) + ", accepted: (0, 1]"};
      return std::nullopt;
    }
  };
  static constexpr std::string_view name = "lfru";
  static constexpr eviction_traits traits{.moves_by_itself = true};
  static constexpr std::size_t powers = std::size_t{1} << 16;

  explicit lfru(const pool_layout& layout) : lfru(layout, config{}) {}
  lfru(const pool_layout& layout, const config& options)
      : power_(powers),
        score_of_one_(powers),
        past_(layout.shape()),
        present_(layout.slots()),
        now_(layout.slots()),
        scored_in_(layout.pools(), 0),
        members_(layout),
        chosen_(layout.slots() + 1),
        coldest_(layout.pools()),
        entries_(members_.places()) {
    double p = 1.0;
    for (std::size_t n = 0; n < powers; ++n, p *= options.decay) {
      power_[n] = p;
      score_of_one_[n] = p / static_cast<double>(n + 1);
    }
    score_of_one_.back() = 0.0;  // a lower bound for all ages from here on
    for (const auto slot : each<slot_id>(layout.slots())) vacate(slot);
  }

  void on_visit(const visit_event& e) noexcept {
    const auto pool = e.context.pool;
    for (const auto& f : e.fills) {
      auto& heat = present_[f.slot];
      if (f.victim != no_key)
        past_[f.victim] = heat;
      else
        settle(pool, f.slot);
      heat = past_[f.key];
    }
    for (std::size_t i = 0; i < e.used.size(); ++i) {
      const auto slot = e.used[i];
      if (!e.repeats(e.experts[i])) use(present_[slot], e.context.step);
      now_.position(slot) = ++clock_;
      changed(pool, slot);
    }
    for (const auto& b : e.bypassed)
      if (!e.repeats(b.expert)) use(past_[e.key(b.expert)], e.context.step);
  }
  void on_prefetch(const prefetch_event& e) noexcept {
    settle(e.pool, e.slot);
    present_[e.slot] = past_[e.key];
    now_.position(e.slot) = ++clock_;
    changed(e.pool, e.slot);
  }
  void on_evict(slot_id slot, expert_key key) noexcept {
    past_[key] = present_[slot];
    vacate(slot);
  }
  void on_move(slot_id from, slot_id to) noexcept {
    const auto pool = members_.home(from);
    const auto heat = present_[from];
    const auto of_from = now_.score(from);
    vacate(from);  // it makes room where the pool is full
    settle(pool, to);
    present_[to] = heat;
    now_.position(to) = now_.position(from);
    now_.score(to) = of_from;
    coldest_[pool].valid = false;
  }

  [[nodiscard]] std::size_t select_victims(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    if (out.empty()) return 0;
    const auto size = members_.size(context.pool);
    if (size <= few_slots) return select_few(context, eligible, out);
    if (out.size() > size / 4) return select_scanned(context, eligible, out);
    auto& list = coldest_[context.pool];
    if (!list.valid || list.step != context.step) gather(context.pool, list, context.step);
    for (int widened = 0;; ++widened) {
      std::size_t count = 0;
      candidate* const entries = entries_.data() + members_.first(context.pool);
      // Used, evicted or filled again since: if it belongs here at all, it stands elsewhere too.
      const auto gone = [&](const candidate& e) {
        return now_.position(slot_of(e)) != e.rank.position || vacant(slot_of(e));
      };
      while (list.first < list.end && gone(entries[list.first])) ++list.first;
      for (auto n = list.first; n < list.end && count < out.size(); ++n)
        if (const auto slot = slot_of(entries[n]); eligible.test(slot) && !gone(entries[n]))
          out[count++] = slot;
      list.given += count;
      if (count == out.size()) return count;
      if (widened == 3) return select_scanned(context, eligible, out);
      list.limit *= 2.0;
      collect(context.pool, list, context.step);
    }
  }

 private:
  static constexpr std::size_t few_slots = rank_rows::most;
  static constexpr std::size_t sort_buckets = 256;
  // The product with a rounded quotient is within 2^-51 of the score: with this much to spare, what it
  // excludes is no candidate. Only the others pay for the division.
  static constexpr double spare = 1.0 + 0x1p-48;
  struct heat_record {
    double frequency = 0.0;  // infinite for a vacant slot
    step_id last = 0;
  };
  using candidate = ranked_slot;

  /// The slots of a large pool whose score in this step is below `limit`, in order. Within a step only a
  /// use, a fill or an eviction changes a score: the slot is then put in again, if it still belongs here.
  struct cold_list {
    bool valid = false;
    step_id step = 0;
    double limit = 1.0;
    std::size_t first = 0;  // those before are gone
    std::size_t end = 0;
    std::size_t given = 0;  // in this step, to set the next one's limit
  };
  [[nodiscard]] candidate ranked(slot_id slot, double score) const noexcept {
    return {{std::bit_cast<std::uint64_t>(score), now_.position(slot)},
            static_cast<std::uint32_t>(slot)};
  }
  static slot_id slot_of(const candidate& e) noexcept { return static_cast<slot_id>(e.slot); }
  /// Brings a vacant slot home to a pool.
  void settle(pool_id pool, slot_id slot) noexcept {
    if (members_.home(slot) != pool)
      members_.settle(pool, slot, [this](slot_id s) { return vacant(s); });
  }
  void vacate(slot_id slot) noexcept {
    present_[slot] = {};
    present_[slot].frequency = std::numeric_limits<double>::infinity();
    now_.score(slot) = slot_scores::vacant;
  }
  [[nodiscard]] bool vacant(slot_id slot) const noexcept {
    return present_[slot].frequency > std::numeric_limits<double>::max();
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

  /// A new step: the limit follows what the last one needed.
  void gather(pool_id pool, cold_list& list, step_id now) noexcept {
    const auto wanted = list.first + list.given + 32;
    if (list.valid && list.end > wanted + 64)
      list.limit = std::bit_cast<double>(entries_[members_.first(pool) + wanted].rank.key);
    list.given = 0;
    collect(pool, list, now);
  }
  void collect(pool_id pool, cold_list& list, step_id now) noexcept {
    candidate* const entries = entries_.data() + members_.first(pool);
    const double spared = list.limit * spare;
    // Which slots are near the limit is anyone's guess: no branch asks.
    std::size_t near = 0;
    for (const auto slot : members_.of(pool)) {
      const auto& heat = present_[slot];
      entries[near].slot = static_cast<std::uint32_t>(slot);
      near += static_cast<std::size_t>(
          heat.frequency * score_of_one_[std::min(age_of(heat, now), powers - 1)] <= spared);
    }
    std::size_t size = 0;
    for (std::size_t n = 0; n < near; ++n) {
      const auto slot = slot_of(entries[n]);
      const auto& heat = present_[slot];
      const auto exact = score(heat, age_of(heat, now));
      entries[size] = ranked(slot, exact);
      size += static_cast<std::size_t>(exact < list.limit);
    }
    sort(std::span(entries, size), list.limit);
    list.first = 0;
    list.end = size;
    list.step = now;
    list.valid = true;
  }
  /// By buckets of near scores, those that many share on their own, then by insertion. Pre: scores are below
  /// `limit`.
  [[gnu::noinline]] void sort(std::span<candidate> entries, double limit) noexcept {
    constexpr std::uint32_t few = 24;
    const double scale = static_cast<double>(sort_buckets) / limit;
    const auto bucket_of = [scale](const candidate& e) {
      constexpr auto last = sort_buckets - 1;
      const double place = std::bit_cast<double>(e.rank.key) * scale;
      return place < static_cast<double>(last) ? static_cast<std::size_t>(place) : last;
    };
    const auto lower = [](const candidate& a, const candidate& b) { return a.rank < b.rank; };
    std::array<std::uint32_t, sort_buckets + 1> ends{};
    for (const auto& e : entries) ++ends[bucket_of(e) + 1];
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    for (const auto& e : entries) chosen_[ends[bucket_of(e)]++] = e;
    std::uint32_t first = 0;
    for (const auto end : ends) {
      if (end - first > few) std::sort(chosen_.data() + first, chosen_.data() + end, lower);
      first = end;
    }
    for (std::size_t n = 0; n < entries.size(); ++n) {
      auto to = n;
      for (; to > 0 && lower(chosen_[n], entries[to - 1]); --to) entries[to] = entries[to - 1];
      entries[to] = chosen_[n];
    }
  }
  /// A slot was used or filled.
  void changed(pool_id pool, slot_id slot) noexcept {
    auto& list = coldest_[pool];
    const auto& heat = present_[slot];
    if (heat.last >= scored_in_[pool])
      now_.score(slot) = heat.frequency;
    else
      rescore(pool, slot);
    if (!list.valid) return;
    const auto exact =
        heat.last >= list.step ? heat.frequency : score(heat, age_of(heat, list.step));
    if (exact < list.limit) insert(pool, list, ranked(slot, exact));
  }
  void insert(pool_id pool, cold_list& list, candidate entry) noexcept {
    candidate* const entries = entries_.data() + members_.first(pool);
    const auto place = static_cast<std::size_t>(
        std::lower_bound(entries + list.first, entries + list.end, entry,
                         [](const candidate& a, const candidate& b) { return a.rank < b.rank; }) -
        entries);
    const bool room = list.end < members_.capacity(pool);
    if (list.first > 0 && (place - list.first <= list.end - place || !room)) {
      std::copy(entries + list.first, entries + place, entries + list.first - 1);
      --list.first;
      entries[place - 1] = entry;
    } else if (room) {
      std::copy_backward(entries + place, entries + list.end, entries + list.end + 1);
      ++list.end;
      entries[place] = entry;
    } else {
      list.valid = false;
    }
  }
  /// Of a small pool: the scores of all, which stand still within a step.
  [[gnu::noinline]] std::size_t select_few(const visit_context& context, const slot_mask& eligible,
                                           std::span<slot_id> out) noexcept {
    if (scored_in_[context.pool] != context.step) {
      scored_in_[context.pool] = context.step;
      for (const auto slot : members_.of(context.pool)) rescore(context.pool, slot);
    }
    return now_.select(members_, context.pool, eligible, out);
  }
  /// As of the step that the pool's scores are of.
  void rescore(pool_id pool, slot_id slot) noexcept {
    const auto& heat = present_[slot];
    const auto exact = score(heat, age_of(heat, scored_in_[pool]));
    now_.score(slot) = vacant(slot) ? slot_scores::vacant : exact;
  }
  std::size_t select_scanned(const visit_context& context, const slot_mask& eligible,
                             std::span<slot_id> out) noexcept {
    constexpr double all = std::numeric_limits<double>::max();
    const step_id now = context.step;
    auto worst = vacant_rank;
    double limit = all;
    std::size_t count = 0;
    for (const auto slot : members_.of(context.pool)) {
      const auto& heat = present_[slot];
      const auto age = age_of(heat, now);
      const auto bound = heat.frequency * score_of_one_[std::min(age, powers - 1)];
      if (!(bound <= limit) || !eligible.test(slot) || vacant(slot)) continue;
      const slot_rank rank{std::bit_cast<std::uint64_t>(score(heat, age)), now_.position(slot)};
      if (!(rank < worst)) continue;
      auto n = count < out.size() ? count++ : count - 1;
      for (; n > 0 && rank < chosen_[n - 1].rank; --n) chosen_[n] = chosen_[n - 1];
      chosen_[n] = {rank, static_cast<std::uint32_t>(slot)};
      if (count == out.size()) {
        worst = chosen_[count - 1].rank;
        limit = std::bit_cast<double>(worst.key) * spare;
      }
    }
    for (std::size_t n = 0; n < count; ++n) out[n] = slot_of(chosen_[n]);
    return count;
  }

  std::vector<double> power_;         // [n] d^n
  std::vector<double> score_of_one_;  // [age] score of f = 1, rounded otherwise than score()
  per_key<heat_record> past_;         // [key] out of date while the key is resident
  per_slot<heat_record> present_;     // [slot]
  slot_scores now_;  // [slot] positions; in pools of few slots the scores of the step scored_in_
  per_pool<step_id> scored_in_;  // [pool]
  std::uint64_t clock_ = 0;
  pool_members members_;
  std::vector<candidate> chosen_;
  per_pool<cold_list> coldest_;     // [pool]
  std::vector<candidate> entries_;  // [place] of the lists
};

static_assert(is_eviction_policy<lfru>());

}  // namespace hotset
