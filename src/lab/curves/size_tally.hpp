// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a pager of each size would have counted, where no visit is split and every miss is filled.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/paging/pager_stats.hpp"
#include "lab/curves/size_ladder.hpp"

namespace hotset::lab {

/// Counts by layer and request class; the rest follows from them: no slot is ever given up but to a miss.
class size_tally {
 public:
  explicit size_tally(const size_ladder& ladder)
      : ladder_(ladder),
        sizes_(ladder.sizes()),
        cells_(ladder.shape().layer_count() * kinds),
        misses_(cells_.size() * sizes_),
        collisions_(ladder.shape().layer_count() * sizes_),
        steps_with_miss_(sizes_),
        missed_in_step_(sizes_),
        first_uses_(ladder.pools()) {}

  /// `misses`: by size.
  void visit(const routing_view& view, std::size_t accesses, std::uint32_t ignored,
             std::span<const std::uint32_t> misses) noexcept {
    if (view.step != step_) begin_step(view.step);
    const auto cell = index_of(view.layer) * kinds + static_cast<std::size_t>(view.kind);
    ++cells_[cell].visits;
    cells_[cell].accesses += accesses;
    ignored_ += ignored;
    const auto row = std::span(misses_).subspan(cell * sizes_, sizes_);
    for (std::size_t i = 0; i < sizes_; ++i) {
      row[i] += misses[i];
      missed_in_step_[i] |= misses[i];
    }
  }
  /// A miss of this size lost its slot earlier in the step.
  void collide(layer_id layer, std::size_t size) noexcept {
    ++collisions_[index_of(layer) * sizes_ + size];
  }
  /// A miss of all sizes was the first use of its key.
  void first_use(pool_id pool) noexcept { ++first_uses_[pool]; }

  [[nodiscard]] pager_stats stats(std::size_t size) const {
    const auto& shape = ladder_.shape();
    pager_stats out;
    out.per_layer.resize(shape.layer_count());
    out.ignored_ids = ignored_;
    out.steps = steps_;
    out.steps_with_miss = steps_with_miss_[size] + (missed_in_step_[size] != 0 ? 1U : 0U);
    for (const auto layer : each<layer_id>(shape.layers)) {
      const auto misses = add_layer(layer, size, out);
      const auto collisions = collisions_[index_of(layer) * sizes_ + size];
      out.per_layer[index_of(layer)].collisions = collisions;
      out.collision_misses += collisions;
      out.misses += misses;
      out.bytes_demand += misses * shape.bytes_of(layer);
      out.bytes_refetched += collisions * shape.bytes_of(layer);
    }
    out.hits = out.accesses - out.misses;
    out.bytes_filled = out.bytes_demand;
    out.fills = out.evictions = out.misses;
    for (const auto pool : first_uses_.ids()) {
      out.compulsory_misses += first_uses_[pool];
      out.evictions -= std::min<std::uint64_t>(first_uses_[pool], ladder_.slots(pool)[size]);
    }
    return out;
  }

 private:
  static constexpr std::size_t kinds = std::tuple_size_v<decltype(pager_stats::by_kind)>;
  static constexpr step_id never = std::numeric_limits<step_id>::max();
  struct cell_counts {
    std::uint64_t visits = 0, accesses = 0;
  };

  void begin_step(step_id step) noexcept {
    step_ = step;
    ++steps_;
    for (std::size_t i = 0; i < sizes_; ++i)
      steps_with_miss_[i] += std::exchange(missed_in_step_[i], 0U) != 0 ? 1U : 0U;
  }
  /// Returns the layer's misses.
  std::uint64_t add_layer(layer_id layer, std::size_t size, pager_stats& out) const {
    std::uint64_t sum = 0;
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      const auto cell = index_of(layer) * kinds + kind;
      const auto misses = misses_[cell * sizes_ + size];
      const auto [visits, accesses] = cells_[cell];
      out.visits += visits;
      out.accesses += accesses;
      sum += misses;
      for (auto* counts : {&out.by_kind[kind], &out.per_layer[index_of(layer)]}) {
        counts->accesses += accesses;
        counts->hits += accesses - misses;
      }
    }
    return sum;
  }

  const size_ladder& ladder_;
  std::size_t sizes_;
  std::vector<cell_counts> cells_;              // [layers][kinds]
  std::vector<std::uint64_t> misses_;           // [layers][kinds][sizes]
  std::vector<std::uint64_t> collisions_;       // [layers][sizes]
  std::vector<std::uint64_t> steps_with_miss_;  // [sizes]
  std::vector<std::uint32_t> missed_in_step_;   // [sizes] not 0: the running one has a miss
  per_pool<std::uint64_t> first_uses_;
  std::uint64_t ignored_ = 0;
  std::uint64_t steps_ = 0;
  step_id step_ = never;
};

}  // namespace hotset::lab
