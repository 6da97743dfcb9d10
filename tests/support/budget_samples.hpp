// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Random consumers of memory, and the best division of a budget by brute force.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "hotset/planning/budget/allocation.hpp"
#include "hotset/planning/curve/miss_curve.hpp"
#include "random_source.hpp"

namespace hotset::support {

/// Consumers and their curves.
struct consumer_set {
  std::vector<sampled_miss_curve> curves;
  std::vector<memory_consumer> consumers;
};

struct consumer_shape {
  std::size_t consumers = 3;
  std::uint64_t most_units = 6;
  std::vector<std::uint64_t> unit_bytes{1};  ///< values to choose from
  bool convex = true;                        ///< otherwise any falling curve
  bool floors = true;
};

inline consumer_set random_consumers(random_source& random, const consumer_shape& shape) {
  consumer_set out;
  out.curves.reserve(shape.consumers);
  for (std::size_t i = 0; i < shape.consumers; ++i) {
    std::vector<double> gains(1 + random.below(shape.most_units));
    for (auto& g : gains) g = static_cast<double>(random.below(50));
    if (shape.convex) std::sort(gains.begin(), gains.end(), std::greater<>());
    std::vector<double> misses{static_cast<double>(random.below(20))};
    for (std::size_t g = gains.size(); g-- > 0;) misses.push_back(misses.back() + gains[g]);
    std::reverse(misses.begin(), misses.end());
    out.curves.emplace_back(std::move(misses));
    memory_consumer c;
    c.curve = out.curves.back();
    c.unit_bytes = shape.unit_bytes[random.below(shape.unit_bytes.size())];
    c.seconds_per_miss = static_cast<double>(1 + random.below(4)) * 0.25;
    if (shape.floors && random.one_in(3)) c.min_units = random.below(3);
    if (random.one_in(4)) c.max_units = c.min_units + random.below(4);
    out.consumers.push_back(c);
  }
  return out;
}

inline std::uint64_t floors_of(const std::vector<memory_consumer>& consumers) {
  std::uint64_t bytes = 0;
  for (const auto& c : consumers) bytes += c.min_units * c.unit_bytes;
  return bytes;
}

/// The fewest seconds that whole units can reach.
inline double best_seconds(const std::vector<memory_consumer>& consumers, std::uint64_t bytes,
                           std::size_t first = 0) {
  if (first == consumers.size()) return 0;
  const auto& c = consumers[first];
  double best = std::numeric_limits<double>::infinity();
  for (auto units = c.min_units; units <= c.cap() && units * c.unit_bytes <= bytes; ++units)
    best = std::min(
        best, c.seconds(units) + best_seconds(consumers, bytes - units * c.unit_bytes, first + 1));
  return best;
}

}  // namespace hotset::support
