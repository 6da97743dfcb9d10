// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The smallest cap that serves a workload: by its predicted hit rate, or by the support of what it uses.
///
/// Source: WiSP 4, 5.4, G.1: the cap that keeps a workload near-lossless is the support of its converged working set.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "hotset/planning/curve/miss_curve.hpp"

namespace hotset {

/// The fewest slots whose hits reach `target` of `accesses` (both of a step); nothing if no number does.
/// Pre: accesses > 0. Complexity: O(log slots).
template <miss_curve Curve>
[[nodiscard]] std::optional<std::size_t> right_size(const Curve& curve, double accesses,
                                                    double target) noexcept {
  const auto reaches = [&](std::size_t slots) {
    return accesses - curve.misses(slots) >= target * accesses;
  };
  if (!reaches(curve.max_slots())) return std::nullopt;
  std::size_t low = 0;
  for (auto high = curve.max_slots(); low < high;) {
    const auto middle = low + (high - low) / 2;
    if (reaches(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// The fewest experts whose uses make up `coverage` of all uses, the most used first; 0 if nothing was used.
/// Complexity: O(n log n).
[[nodiscard]] inline std::size_t support_size(std::span<const double> uses, double coverage) {
  std::vector<double> sorted(uses.begin(), uses.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double total = 0;
  for (const auto u : sorted) total += u;
  double covered = 0;
  std::size_t experts = 0;
  while (experts < sorted.size() && sorted[experts] > 0 && covered < coverage * total)
    covered += sorted[experts++];
  return experts;
}

/// The cap that covers every layer: uses is [layers, experts]. Complexity: O(layers * experts log experts).
[[nodiscard]] inline std::size_t support_cap(std::span<const double> uses, std::size_t experts,
                                             double coverage) {
  std::size_t cap = 0;
  for (std::size_t first = 0; first < uses.size(); first += experts)
    cap = std::max(cap, support_size(uses.subspan(first, experts), coverage));
  return cap;
}

}  // namespace hotset
