// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Counts what a pager's visits were worth: hits, kinds of misses, copies, evictions.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
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
    visit_ = {};
    visit_.misses = missing.size();
    visit_.accesses = plan.experts().size();
    for (const auto at : missing) {
      const auto k = index({plan.context().layer, plan.experts()[at]});
      visit_.compulsory += seen_[k] == 0 ? 1U : 0U;
      visit_.collisions += evicted_in_[k] == plan.context().step + 1 ? 1U : 0U;
    }
  }
  /// Of the judged misses, so many were refused a slot.
  void refuse(std::size_t count) noexcept { visit_.bypasses = count; }

  /// A plan of a visit, or of one group of it, is being committed.
  void commit(const step_plan& plan) noexcept {
    begin_step(plan.context().step);
    totals.fills += plan.fills().size();
    if (plan.group() != 0) return;
    auto& cell = cells_[static_cast<std::size_t>(plan.context().layer) * kinds +
                        static_cast<std::size_t>(plan.context().kind)];
    ++cell.visits;
    totals.ignored_ids += plan.ignored_ids();
    if (plan.all_hits() && plan.groups() == 1) {
      cell.accesses += plan.experts().size();
      cell.hits += plan.experts().size();
      return;
    }
    cell.accesses += visit_.accesses;
    cell.hits += visit_.accesses - visit_.misses;
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
    step = std::max(last_step_.value_or(0) + 1, meant_for);
    ++totals.evictions;
  }
  /// The step of the last committed visit, 0 before the first.
  [[nodiscard]] step_id step() const noexcept { return last_step_.value_or(0); }

  /// Complexity: O(layers). Allocates; not for the hot path.
  [[nodiscard]] pager_stats stats() const {
    auto out = totals;
    out.per_layer.assign(cells_.size() / kinds, {});
    for (std::size_t at = 0; at < cells_.size(); ++at) {
      const auto& cell = cells_[at];
      if (cell.visits == 0) continue;
      out.visits += cell.visits;
      out.accesses += cell.accesses;
      out.hits += cell.hits;
      for (auto* sum : {&out.by_kind[at % kinds], &out.per_layer[at / kinds]}) {
        sum->accesses += cell.accesses;
        sum->hits += cell.hits;
      }
    }
    out.misses = out.accesses - out.hits;
    return out;
  }

  /// What is counted one by one. Visits, accesses and hits stand in the cells until `stats` adds them up.
  pager_stats totals{};

 private:
  /// By layer and request class; the classes are rounded up so that a cell is found by a shift.
  static constexpr std::size_t kinds = 4;
  struct alignas(32) cell_counts {
    std::uint64_t visits = 0, accesses = 0, hits = 0;
  };
  struct visit_counts {
    std::uint64_t accesses = 0, misses = 0, compulsory = 0, collisions = 0, bypasses = 0;
  };

  [[nodiscard]] std::size_t index(expert_key key) const noexcept {
    return static_cast<std::size_t>(key.layer) * experts_ + static_cast<std::size_t>(key.expert);
  }
  void begin_step(step_id step) noexcept {
    if (last_step_ == step) return;
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
  std::optional<step_id> last_step_{};
  bool step_has_miss_ = false;
};

}  // namespace hotset::inline v0
