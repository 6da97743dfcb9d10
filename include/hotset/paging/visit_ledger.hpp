// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Counts what a pager's visits were worth: hits, kinds of misses, copies, evictions.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/paging/pager_stats.hpp"
#include "hotset/residency/step_plan.hpp"

namespace hotset::inline v0 {

/// Statistics are those of whole visits: misses are judged once, before any group of the visit changes anything,
/// and counted when its first group is committed. Memory: 9 bytes per key. No allocation but in `stats`.
class visit_ledger {
 public:
  visit_ledger() = default;
  explicit visit_ledger(const geometry& shape)
      : experts_(static_cast<std::size_t>(shape.experts)),
        seen_(shape.keys(), 0),
        evicted_in_(shape.keys(), 0),
        cells_(static_cast<std::size_t>(shape.layers) * kinds) {}

  /// Judges the misses of a visit: `missing` are positions in `plan.experts()`.
  void judge(const step_plan& plan, std::span<const std::uint32_t> missing) noexcept {
    const auto row = index({plan.context().layer, 0});
    const auto now = plan.context().step + 1;
    std::uint64_t compulsory = 0;
    std::uint64_t collisions = 0;
    for (const auto at : missing) {
      const auto k = row + static_cast<std::size_t>(plan.experts()[at]);
      compulsory += seen_[k] == 0 ? 1U : 0U;
      collisions += evicted_in_[k] == now ? 1U : 0U;
    }
    visit_ = {plan.experts().size(), missing.size(), compulsory, collisions, 0};
  }
  /// Of the judged misses, so many were refused a slot.
  void refuse(std::size_t count) noexcept { visit_.bypasses = count; }

  /// A plan of a visit, or of one group of it, is being committed.
  void commit(const step_plan& plan) noexcept {
    const auto& context = plan.context();
    if (context.step != last_step_ || totals.steps == 0) begin_step(context.step);
    auto& cell = cells_[static_cast<std::size_t>(context.layer) * kinds +
                        static_cast<std::size_t>(context.kind)];
    if (plan.all_hits() && plan.groups() == 1) {
      ++cell.visits;
      cell.accesses += plan.experts().size();
      if (plan.ignored_ids() != 0) [[unlikely]]
        totals.ignored_ids += plan.ignored_ids();
      return;
    }
    totals.fills += plan.fills().size();
    if (plan.group() != 0) return;
    ++cell.visits;
    cell.accesses += visit_.accesses;
    cell.misses += visit_.misses;
    totals.ignored_ids += plan.ignored_ids();
    count_misses();
    if (plan.groups() > 1) {
      ++totals.split_visits;
      totals.groups += plan.groups();
    }
  }

  /// The key was used, or came from an earlier run: its next miss is not compulsory.
  void saw(expert_key key) noexcept { seen_[index(key)] = 1; }
  /// The key lost its slot in the running step; or, prefetched for a later one, before it was used.
  void evicted(expert_key key, step_id meant_for = 0) noexcept {
    auto& step = evicted_in_[index(key)];
    step = std::max(last_step_ + 1, meant_for);
    ++totals.evictions;
  }
  /// The step of the last committed visit, 0 before the first.
  [[nodiscard]] step_id step() const noexcept { return last_step_; }

  /// Complexity: O(layers). Allocates; not for the hot path.
  [[nodiscard]] pager_stats stats() const {
    auto out = totals;
    out.per_layer.assign(cells_.size() / kinds, {});
    for (std::size_t at = 0; at < cells_.size(); ++at) {
      const auto& cell = cells_[at];
      if (cell.visits == 0) continue;
      out.visits += cell.visits;
      out.accesses += cell.accesses;
      out.misses += cell.misses;
      for (auto* sum : {&out.by_kind[at % kinds], &out.per_layer[at / kinds]}) {
        sum->accesses += cell.accesses;
        sum->hits += cell.accesses - cell.misses;
      }
    }
    out.hits = out.accesses - out.misses;
    return out;
  }

  /// What is counted one by one. Visits, accesses and misses stand in the cells until `stats` adds them up.
  pager_stats totals{};

 private:
  /// By layer and request class; the classes are rounded up so that a cell is found by a shift.
  static constexpr std::size_t kinds = 4;
  struct alignas(32) cell_counts {
    std::uint64_t visits = 0, accesses = 0, misses = 0;
  };
  struct visit_counts {
    std::uint64_t accesses = 0, misses = 0, compulsory = 0, collisions = 0, bypasses = 0;
  };

  [[nodiscard]] std::size_t index(expert_key key) const noexcept {
    return static_cast<std::size_t>(key.layer) * experts_ + static_cast<std::size_t>(key.expert);
  }
  void begin_step(step_id step) noexcept {
    last_step_ = step;
    step_has_miss_ = false;
    ++totals.steps;
  }
  void count_misses() noexcept {
    totals.compulsory_misses += visit_.compulsory;
    totals.collision_misses += visit_.collisions;
    totals.bypasses += visit_.bypasses;
    if (visit_.misses == 0 || step_has_miss_) return;
    step_has_miss_ = true;
    ++totals.steps_with_miss;
  }

  std::size_t experts_ = 0;
  std::vector<std::uint8_t> seen_;   ///< by key: was used before
  std::vector<step_id> evicted_in_;  ///< by key: step + 1 of the last eviction
  std::vector<cell_counts> cells_;   ///< [layers][kinds]
  visit_counts visit_{};             ///< of the visit that is being planned
  step_id last_step_ = 0;
  bool step_has_miss_ = false;
};

}  // namespace hotset::inline v0
