// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Exact miss curves of a model's experts at every capacity, in one pass over its visits.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/planning/curve/reuse_distance.hpp"

namespace hotset {

/// Per layer: one curve for each layer. Shared: one curve over all keys.
/// Threads: compatible. Memory: allocated once; observe allocates nothing.
class curve_recorder {
 public:
  curve_recorder() = default;
  /// Pre: shape.validate() returns no error.
  curve_recorder(const geometry& shape, cache_scope scope)
      : keys_(scope == cache_scope::shared ? shape.keys() : shape.expert_count()),
        stride_(scope == cache_scope::shared ? shape.expert_count() : 0),
        histograms_(scope == cache_scope::shared ? 1 : shape.layer_count(), reuse_histogram(keys_)),
        distances_(histograms_.size(),
                   reuse_distance(keys_, shape.expert_count(), shape.ids_per_visit())) {}

  /// Complexity: O(ids). Pre: the view belongs to the model of `shape`.
  void observe(const routing_view& view) noexcept {
    steps_ += steps_ == 0 || view.step != last_step_ ? 1U : 0U;
    last_step_ = view.step;
    const auto layer = index_of(view.layer);
    const auto pool = histograms_.size() == 1 ? 0 : layer;
    auto& histogram = histograms_[pool];
    histogram.end_visit(distances_[pool].visit(
        view.experts, layer * stride_,
        [&](std::size_t, std::uint32_t distance) { histogram.add(distance); }));
  }

  /// One histogram for each layer, or one for all.
  [[nodiscard]] const std::vector<reuse_histogram>& histograms() const noexcept {
    return histograms_;
  }
  /// Number of times that the step changed, the first step included.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

 private:
  std::size_t keys_ = 0;    ///< keys of one pool
  std::size_t stride_ = 0;  ///< keys between adjacent layers of a pool
  std::vector<reuse_histogram> histograms_;
  std::vector<reuse_distance> distances_;
  std::uint64_t steps_ = 0;
  step_id last_step_ = 0;
};

}  // namespace hotset
