// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Best division of a budget in whole units, for curves of any shape.
///
/// Rule: dynamic programming over the budget in granules, the greatest common divisor of the unit sizes. Each
///   consumer chooses a number of units. Ties: the fewest units, from the last consumer on; equal consumers get even
///   shares.
/// Source: the multiple-choice knapsack problem; none of the papers goes beyond two consumers.
/// Deviations: none.
/// Cost: O(granules * units of all consumers) time, O(granules * consumers) memory: on request, not in a loop.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "hotset/planning/budget/allocation.hpp"
#include "hotset/planning/budget/even_shares.hpp"

namespace hotset {

/// Threads: const use is safe.
struct multiple_choice_knapsack {
  /// Most granules times units of all consumers that a division may take.
  std::uint64_t most_work = std::uint64_t{1} << 32;

  /// Returns the division, or why the budget cannot be divided so. Its bound is the seconds that it reaches.
  [[nodiscard]] result<allocation> allocate(std::span<const memory_consumer> consumers,
                                            std::uint64_t total_bytes) const {
    if (auto bad = validate_consumers(consumers, total_bytes)) return *std::move(bad);
    std::uint64_t granule = 0;
    std::uint64_t floors = 0;
    std::uint64_t wanted = 0;  // bytes above the floors that consumers can use
    std::uint64_t choices = 0;
    for (const auto& c : consumers) {
      granule = std::gcd(granule, c.unit_bytes);
      floors += c.min_units * c.unit_bytes;
      const auto extra = c.cap() - c.min_units;
      const auto room = total_bytes - wanted;
      wanted = extra > room / c.unit_bytes ? total_bytes : wanted + extra * c.unit_bytes;
      choices += extra + 1;
    }
    if (consumers.empty()) return allocation{};
    const auto granules = std::min(total_bytes - floors, wanted) / granule;
    if (granules + 1 > most_work / choices)
      return refusal("an exact division of ", granules, " granules of ", granule, " bytes over ",
                     choices, " choices, accepted: a product of at most ", most_work,
                     " (larger units, or equimarginal)");
    auto out = priced(
        consumers,
        even_shares(consumers, solve(consumers, static_cast<std::size_t>(granules), granule)));
    out.bound = out.seconds;
    return out;
  }

 private:
  static std::vector<std::uint64_t> solve(std::span<const memory_consumer> consumers,
                                          std::size_t granules, std::uint64_t granule) {
    const auto states = granules + 1;
    // [granules] least seconds of the consumers so far, with at most this many granules.
    std::vector<double> best(states, 0.0);
    std::vector<double> next(states);
    std::vector<std::uint32_t> chosen(states * consumers.size());  // units above the floor
    for (std::size_t i = 0; i < consumers.size(); ++i) {
      const auto& c = consumers[i];
      const auto weight = static_cast<std::size_t>(c.unit_bytes / granule);
      const auto extra = static_cast<std::size_t>(
          std::min<std::uint64_t>(c.cap() - c.min_units, granules / weight));
      std::fill(next.begin(), next.end(), std::numeric_limits<double>::infinity());
      auto* const choice = chosen.data() + i * states;
      for (std::size_t units = 0; units <= extra; ++units) {
        const auto seconds = c.seconds(c.min_units + units);
        for (std::size_t s = units * weight; s < states; ++s) {
          const auto total = best[s - units * weight] + seconds;
          if (total >= next[s]) continue;
          next[s] = total;
          choice[s] = static_cast<std::uint32_t>(units);
        }
      }
      best.swap(next);
    }
    std::vector<std::uint64_t> units(consumers.size());
    auto s = granules;
    for (std::size_t i = consumers.size(); i-- > 0;) {
      const auto extra = chosen[i * states + s];
      units[i] = consumers[i].min_units + extra;
      s -= extra * static_cast<std::size_t>(consumers[i].unit_bytes / granule);
    }
    return units;
  }
};

}  // namespace hotset
