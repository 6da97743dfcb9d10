// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Orders residents by values that a policy sets per layer, discounted by the distance to the layer's next visit.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "hotset/core/ids.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/ids/per_key.hpp"
#include "hotset/core/pool_layout.hpp"
#include "hotset/core/slot_mask.hpp"
#include "hotset/eviction/order/layer_tournament.hpp"

namespace hotset {

/// Order: value * discount^(distance / layers), distance = (layer - running - 1) mod layers + 1, products compared
/// exactly; then least recent first. Orders any numbers instead of slots if their count is given.
/// Threads: compatible. No allocation after construction. Memory: that of layer_tournament, and 4 bytes per key.
class valued_residents : layer_tournament {
 public:
  using layer_tournament::bring;
  using layer_tournament::fill;
  using layer_tournament::move;
  using layer_tournament::use;
  using layer_tournament::vacate;

  /// Pre: 0 < discount <= 1.
  valued_residents(const pool_layout& layout, double discount)
      : valued_residents(layout, discount, layout.slots()) {}
  valued_residents(const pool_layout& layout, double discount, std::size_t slots)
      : layer_tournament(layout, slots), values_(layout.shape(), 0.0F) {
    const auto layers = layout.shape().layer_count();
    for (std::size_t n = 0; n < 2 * layers; ++n)
      factors_.push_back(double{static_cast<float>(
          std::pow(discount, static_cast<double>(n % layers + 1) / static_cast<double>(layers)))});
  }

  /// Sets the values of the layer's experts. Shape: [experts], at least 0. Complexity: O(experts).
  void set_values(layer_id layer, std::span<const float> values) noexcept {
    const auto row = values_.row(layer);
    std::copy_n(values.begin(), row.size(), row.begin());
    rescore(layer);
  }
  /// Writes the eligible residents of a pool in order; returns how many. If `of_running` is not empty, it replaces
  /// the running layer's values. Complexity: that of layer_tournament.
  std::size_t select(pool_id pool, layer_id running, std::span<const float> of_running,
                     const slot_mask& eligible, std::span<slot_id> out) noexcept {
    if (!of_running.empty()) rescore(running);
    const auto count =
        layer_tournament::select(pool, eligible, out, scores{*this, running, of_running});
    if (!of_running.empty()) rescore(running);
    return count;
  }
  /// Returns the value that was set last.
  [[nodiscard]] float value(expert_key key) const noexcept { return values_[key]; }
  /// Returns the discounted value, which orders experts of different layers.
  [[nodiscard]] double worth(layer_id layer, float value, layer_id running) const noexcept {
    return double{value} * factors_after(running)[index_of(layer)];
  }

 private:
  struct scores {
    const valued_residents& of;
    layer_id running{};
    std::span<const float> of_running;

    void write(const layer_residents& residents, std::span<double> to) const noexcept {
      const bool is_running = residents.layer == running && !of_running.empty();
      const auto row = is_running ? of_running : of.values_.row(residents.layer);
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = row[index_of(residents.experts[i])];
    }
    [[nodiscard]] std::span<const double> weights() const noexcept {
      return of.factors_after(running);
    }
  };

  /// Shape: [layers]. Pre: running is a layer, or before_layers.
  [[nodiscard]] std::span<const double> factors_after(layer_id running) const noexcept {
    const auto layers = factors_.size() / 2;
    return std::span(factors_).subspan(layers - layers_until(running), layers);
  }

  per_key<float> values_;
  /// [distance - 1], twice; rounded to float, so that products are exact.
  std::vector<double> factors_;
};

}  // namespace hotset
