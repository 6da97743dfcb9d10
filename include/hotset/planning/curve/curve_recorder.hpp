// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Exact miss curves of a model's experts at every capacity, in one pass over its visits.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "hotset/core/geometry.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/planning/curve/recency_bitmap.hpp"
#include "hotset/planning/curve/reuse_distance.hpp"

namespace hotset {

/// Per layer: one curve a layer. Shared: one curve over all keys.
/// Threads: compatible. Memory: taken once; observe allocates nothing.
class curve_recorder {
 public:
  curve_recorder() = default;
  /// Pre: shape.validate() has nothing to say.
  curve_recorder(const geometry& shape, cache_scope scope)
      : keys_(scope == cache_scope::shared ? shape.keys() : shape.expert_count()),
        stride_(scope == cache_scope::shared ? shape.expert_count() : 0),
        histograms_(scope == cache_scope::shared ? 1 : shape.layer_count(),
                    reuse_histogram(keys_)) {
    if (keys_ <= recency_ranks::most_keys)
      distances_ = make<recency_ranks>(shape);
    else
      distances_ = make<recency_bitmap>(shape);
  }

  /// Complexity: O(ids). Pre: the view is of the model that this was made for.
  void observe(const routing_view& view) noexcept {
    steps_ += steps_ == 0 || view.step != last_step_ ? 1U : 0U;
    last_step_ = view.step;
    std::visit([&](auto& distances) { measure(distances, view); }, distances_);
  }

  /// One for each layer, or one.
  [[nodiscard]] const std::vector<reuse_histogram>& histograms() const noexcept {
    return histograms_;
  }
  /// Times that the step changed.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

 private:
  template <class Stack>
  using stacks = std::vector<reuse_distance<Stack>>;

  template <class Stack>
  [[nodiscard]] stacks<Stack> make(const geometry& shape) const {
    const auto experts = shape.expert_count();
    const auto most_ids = shape.ids_per_visit();
    stacks<Stack> out;
    out.reserve(histograms_.size());
    for (std::size_t i = 0; i < histograms_.size(); ++i)
      out.emplace_back(Stack(keys_), experts, most_ids);
    return out;
  }

  template <class Stack>
  void measure(stacks<Stack>& distances, const routing_view& view) noexcept {
    const auto layer = index_of(view.layer);
    const auto pool = histograms_.size() == 1 ? 0 : layer;
    auto& histogram = histograms_[pool];
    histogram.end_visit(distances[pool].visit(
        view.experts, layer * stride_,
        [&](std::size_t, std::uint32_t distance) { histogram.add(distance); }));
  }

  std::size_t keys_ = 0;    ///< of one pool
  std::size_t stride_ = 0;  ///< keys from one layer to the next in its pool
  std::vector<reuse_histogram> histograms_;
  std::variant<stacks<recency_ranks>, stacks<recency_bitmap>> distances_;
  std::uint64_t steps_ = 0;
  step_id last_step_ = 0;
};

}  // namespace hotset
