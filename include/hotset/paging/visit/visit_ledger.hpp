// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Counts the results of a pager's visits: hits, kinds of misses, copies, evictions.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/paging/pager_stats.hpp"
#include "hotset/paging/visit/visit_plan.hpp"

namespace hotset {

/// Statistics cover whole visits. Misses are classified once, before any group of the visit changes residency, and
/// counted when its first group is committed. Memory: 8 bytes per key. Allocates only in `stats`.
class visit_ledger {
 public:
  /// Counts of one visit.
  struct visit_counts {
    std::uint64_t accesses = 0;
    std::uint64_t misses = 0;  ///< absent before the visit
    std::uint64_t compulsory = 0;
    std::uint64_t collisions = 0;
    std::uint64_t bypasses = 0;     ///< misses that admission refused a slot
    std::uint64_t dropped = 0;      ///< misses that a policy dropped
    std::uint64_t substituted = 0;  ///< misses that a policy replaced by other experts
    std::uint64_t too_low = 0;      ///< resident copies below the requested precision: also misses
  };

  explicit visit_ledger(const geometry& shape)
      : left_(shape), cells_(shape.layer_count() * kinds), layers_(shape.layer_count()) {}

  /// Classifies the misses of a visit. `missing`: positions in `plan.experts()`.
  void judge(const visit_plan& plan, std::span<const std::uint32_t> missing) noexcept {
    const auto left = left_.row(plan.context().layer);
    const auto now = used_and_left(mark_of(plan.context().step));
    const auto experts = plan.experts();
    std::uint64_t compulsory = 0;
    std::uint64_t collisions = 0;
    // Branchless because the kind of a miss is unpredictable.
    for (const auto at : missing) {
      const auto word = left[index_of(experts[at])];
      const std::uint64_t collision = (word | used) == now ? 1U : 0U;
      collisions += collision;
      compulsory += ~(word | collision) & used;
    }
    visit = {.accesses = experts.size(),
             .misses = missing.size(),
             .compulsory = compulsory,
             .collisions = collisions};
  }

  /// Counts the commit of a visit, or of one group of it.
  void commit(const visit_plan& plan) noexcept {
    const auto& context = plan.context();
    if (context.step != last_step_ || totals.steps == 0) begin_step(context.step);
    auto& cell = cells_[index_of(context.layer) * kinds + static_cast<std::size_t>(context.kind)];
    if (plan.all_hits() && plan.groups() == 1 && !detail::draft_of(plan).judged) {
      ++cell.visits;
      cell.accesses += plan.experts().size();
      if (plan.ignored_ids() != 0) [[unlikely]]
        totals.ignored_ids += plan.ignored_ids();
      return;
    }
    totals.fills += plan.fills().size();
    if (plan.group() != 0) return;
    ++cell.visits;
    cell.accesses += visit.accesses;
    cell.misses += visit.misses + visit.too_low;
    totals.ignored_ids += plan.ignored_ids();
    count_misses(context.layer);
    if (plan.groups() > 1) {
      ++totals.split_visits;
      totals.groups += plan.groups();
    }
  }

  /// Records bytes that were copied, or will be, into slots of the layer.
  void filled(layer_id layer, std::uint64_t bytes) noexcept { layers_[layer].bytes += bytes; }
  /// Records a prefetch, or a copy of plan_warm, that was cancelled before any of its bytes moved.
  void cancelled(layer_id layer, std::uint64_t bytes, bool warm) noexcept {
    layers_[layer].bytes -= bytes;
    if (warm) {
      totals.bytes_warm -= bytes;
      return;
    }
    ++totals.cancelled_prefetches;
    totals.bytes_prefetch_cancelled += bytes;
  }

  /// Records that the key was used, now or in an earlier run: its next miss is not compulsory. `evicted` records this
  /// as well.
  void saw(expert_key key) noexcept { left_[key] |= used; }
  /// Records that the key lost its slot in the running step. If it was prefetched for a later step, records that step.
  void evicted(expert_key key, bool was_used = true, step_id meant_for = 0) noexcept {
    auto& word = left_[key];
    word = used_and_left(std::max(mark_of(last_step_), meant_for)) &
           (word | (was_used ? ~std::uint64_t{0} : ~used));
    ++totals.evictions;
  }
  /// Records that the key lost its slot ahead of a visit of `step`: a use in that step is a collision.
  void pre_evicted(expert_key key, step_id step) noexcept {
    auto& word = left_[key];
    word = std::max(word, used_and_left(mark_of(step)) & (word | ~used));
    ++totals.pre_evictions;
  }
  /// True if the key was evicted in this step, or before the use in it for which it was prefetched.
  [[nodiscard]] bool was_evicted(expert_key key, step_id step) const noexcept {
    return (left_[key] | used) == used_and_left(mark_of(step));
  }
  /// Step of the last committed visit; 0 before the first.
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
      for (access_counts* sum : std::initializer_list<access_counts*>{&out.by_kind[at % kinds],
                                                                      &out.per_layer[at / kinds]}) {
        sum->accesses += cell.accesses;
        sum->hits += cell.accesses - cell.misses;
      }
    }
    out.hits = out.accesses - out.misses;
    out.bytes_filled =
        out.bytes_demand + out.bytes_prefetched + out.bytes_warm - out.bytes_prefetch_cancelled;
    for (const auto l : layers_.ids()) {
      auto& of_layer = out.per_layer[index_of(l)];
      of_layer.collisions = layers_[l].collisions;
      of_layer.compulsory = layers_[l].compulsory;
      of_layer.bytes_filled = layers_[l].bytes;
      out.collision_misses += of_layer.collisions;
      out.compulsory_misses += of_layer.compulsory;
    }
    return out;
  }

  /// Totals that are counted directly. `stats` adds the counts of cells and layers.
  pager_stats totals{};
  visit_counts visit{};  ///< counts of the visit being planned; the pager's parts write them

 private:
  static constexpr std::uint64_t used = 1;
  /// Returns 2 * mark + 1. All marks from 2^63 on map to one value.
  [[nodiscard]] static std::uint64_t used_and_left(step_id mark) noexcept {
    return std::min(mark, ~step_id{0} >> 1U) << 1U | used;
  }
  /// Cells by layer and request class. The number of classes is a power of two, so a shift finds a cell.
  static constexpr std::size_t kinds = 4;
  struct alignas(32) cell_counts {
    std::uint64_t visits = 0, accesses = 0, misses = 0;
  };
  struct layer_cell {
    std::uint64_t collisions = 0, compulsory = 0, bytes = 0;
  };

  void begin_step(step_id step) noexcept {
    last_step_ = step;
    step_has_miss_ = false;
    ++totals.steps;
  }
  void count_misses(layer_id layer) noexcept {
    layers_[layer].compulsory += visit.compulsory;
    layers_[layer].collisions += visit.collisions;
    totals.precision_misses += visit.too_low;
    totals.bypasses += visit.bypasses;
    totals.dropped_misses += visit.dropped;
    totals.substituted_misses += visit.substituted;
    if (visit.misses + visit.too_low == 0 || step_has_miss_) return;
    step_has_miss_ = true;
    ++totals.steps_with_miss;
  }

  /// [keys] 2 * mark of the step of its last eviction, plus 1 if it was used before.
  per_key<std::uint64_t> left_;
  std::vector<cell_counts> cells_;  ///< [layers][kinds]
  per_layer<layer_cell> layers_;    ///< [layers]
  step_id last_step_ = 0;
  bool step_has_miss_ = false;
};

}  // namespace hotset
