// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Moves bytes from where they save nothing to where they save something.
///
/// Rule: every consumer gives back the units without which it misses no more; what is free then goes, again and again,
/// to the run of units that fits and saves the most seconds for each of its bytes. Ties, of what differs by rounding
/// alone: the consumer of the fewest units, then the first; of one consumer the shortest run.
/// Source: none: a cap for all layers leaves up to a whole slot over, and a hull's piece may end where its curve is flat.
/// Deviations: none.
/// Cost: O(units of all consumers) a run that is taken, at most.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hotset/planning/budget/allocation.hpp"

namespace hotset {

namespace detail {

/// Units that are taken together: a curve may be flat before it falls.
struct unit_run {
  std::uint64_t units = 0;      ///< 0: none saves anything
  double seconds_per_byte = 0;  ///< that they save
};

[[nodiscard]] inline unit_run best_run(const memory_consumer& c, std::uint64_t units,
                                       std::uint64_t free_bytes) noexcept {
  unit_run best;
  if (units >= c.cap()) return best;
  const auto most = std::min(c.cap() - units, free_bytes / c.unit_bytes);
  const auto now = c.seconds(units);
  for (std::uint64_t run = 1; run <= most; ++run) {
    const auto bytes = static_cast<double>(run) * static_cast<double>(c.unit_bytes);
    const auto saved = (now - c.seconds(units + run)) / bytes;
    if (saved > best.seconds_per_byte * (1 + 1e-9)) best = {run, saved};
  }
  return best;
}

/// The fewest units that miss no more.
[[nodiscard]] inline std::uint64_t used_units(const memory_consumer& c,
                                              std::uint64_t units) noexcept {
  const auto seconds = c.seconds(units);
  while (units > c.min_units && c.seconds(units - 1) <= seconds) --units;
  return units;
}

}  // namespace detail

/// Pre: one entry of units for each consumer, from its min_units on, which fit total_bytes.
/// Returns units after which no consumer could miss less with the bytes that are free or that save nothing.
[[nodiscard]] inline std::vector<std::uint64_t> without_idle_bytes(
    std::span<const memory_consumer> consumers, std::vector<std::uint64_t> units,
    std::uint64_t total_bytes) {
  auto free = total_bytes;
  for (std::size_t i = 0; i < units.size(); ++i) {
    units[i] = detail::used_units(consumers[i], units[i]);
    free -= units[i] * consumers[i].unit_bytes;
  }
  std::vector<std::optional<detail::unit_run>> runs(units.size());
  while (true) {
    std::optional<std::size_t> chosen;
    for (std::size_t i = 0; i < units.size(); ++i) {
      const auto& c = consumers[i];
      if (!runs[i] || runs[i]->units * c.unit_bytes > free)
        runs[i] = detail::best_run(c, units[i], free);
      if (runs[i]->units == 0) continue;
      const auto saved = runs[i]->seconds_per_byte;
      const auto most = chosen ? runs[*chosen]->seconds_per_byte : 0.0;
      const bool is_tie = chosen && saved >= most * (1 - 1e-9) && saved <= most * (1 + 1e-9);
      if (!chosen || (is_tie ? units[i] < units[*chosen] : saved > most)) chosen = i;
    }
    if (!chosen) return units;
    const auto run = runs[*chosen]->units;
    units[*chosen] += run;
    free -= run * consumers[*chosen].unit_bytes;
    runs[*chosen].reset();
  }
}

}  // namespace hotset
