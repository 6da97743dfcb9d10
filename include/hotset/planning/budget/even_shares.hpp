// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Changes a division at no cost in seconds: equal consumers get even shares, and idle bytes go where they help.
///
/// Rule, even_shares: consumers are equal if they have the same unit, price, limits, and seconds at every number of
/// units. The units of equal consumers are divided so that any two differ by at most one, the first ones having more,
/// unless that costs seconds. If it does, the largest and the smallest share that can move closer at no cost do so,
/// repeatedly.
/// Rule, without_idle_bytes: every consumer returns the units that save it no misses. Free bytes then go, repeatedly,
/// to the run of units that fits and saves the most seconds per byte. Ties, within rounding: the consumer with the
/// fewest units, then the first one; within a consumer the shortest run.
/// Source: none. On a straight curve all divisions cost the same, and an allocator takes the first that it meets. A
///   cap for all layers leaves up to a whole slot over, and a hull's piece may end where its curve is flat.
/// Deviations: none.
/// Cost: O(consumers^2 * units) to find equal consumers, less if their curves differ early or are equal. At most
///   O(units of all consumers) for each run that is taken.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hotset/planning/budget/allocation.hpp"

namespace hotset {

namespace detail {

[[nodiscard]] inline bool are_equal(const memory_consumer& a, const memory_consumer& b) noexcept {
  if (a.unit_bytes != b.unit_bytes || a.seconds_per_miss != b.seconds_per_miss ||
      a.min_units != b.min_units || a.cap() != b.cap())
    return false;
  for (auto units = a.min_units; units <= a.cap(); ++units)
    if (a.seconds(units) != b.seconds(units)) return false;
  return true;
}

/// Shares of the consumers that are equal to `one`. Pre: there are at least two.
class equal_shares {
 public:
  // NOLINTNEXTLINE(bugprone-easily-swappable-parameters): the members, then all shares
  equal_shares(const memory_consumer& one, std::vector<std::size_t> members,
               std::vector<std::uint64_t>& units)
      : one_(one), members_(std::move(members)), units_(units) {}

  void even_out() {
    if (spread_all()) return;
    while (true) {
      std::ranges::stable_sort(members_, {}, [&](std::size_t i) { return units_[i]; });
      if (!meet_closer()) return;
    }
  }

 private:
  /// Relative differences of seconds below this are rounding.
  static constexpr double rounding = 1e-12;

  [[nodiscard]] bool costs_no_more(double seconds, double than) const noexcept {
    return seconds <= than * (1 + rounding);
  }
  bool spread_all() {
    std::uint64_t all = 0;
    double now = 0;
    for (const auto i : members_) {
      all += units_[i];
      now += one_.seconds(units_[i]);
    }
    const auto share = all / members_.size();
    const auto more = all % members_.size();
    const auto even = static_cast<double>(members_.size() - more) * one_.seconds(share) +
                      (more == 0 ? 0 : static_cast<double>(more) * one_.seconds(share + 1));
    if (!costs_no_more(even, now)) return false;
    for (std::size_t m = 0; m < members_.size(); ++m) units_[members_[m]] = share + (m < more);
    return true;
  }
  /// Moves units between the two members with the largest difference that allows it. Pre: members ascend by units.
  bool meet_closer() {
    for (auto large = members_.size(); large-- > 1;) {
      if (large + 1 < members_.size() && same(large, large + 1)) continue;
      for (std::size_t small = 0; small < large; ++small)
        if ((small == 0 || !same(small, small - 1)) &&
            pair_closer(units_[members_[large]], units_[members_[small]]))
          return true;
    }
    return false;
  }
  [[nodiscard]] bool same(std::size_t a, std::size_t b) const noexcept {
    return units_[members_[a]] == units_[members_[b]];
  }
  // NOLINTNEXTLINE(bugprone-easily-swappable-parameters): named by their sizes
  bool pair_closer(std::uint64_t& large, std::uint64_t& small) const noexcept {
    const auto both = large + small;
    const auto now = one_.seconds(large) + one_.seconds(small);
    for (auto part = both - both / 2; part < large; ++part) {
      if (!costs_no_more(one_.seconds(part) + one_.seconds(both - part), now)) continue;
      large = part;
      small = both - part;
      return true;
    }
    return false;
  }

  const memory_consumer& one_;
  std::vector<std::size_t> members_;
  std::vector<std::uint64_t>& units_;
};

}  // namespace detail

/// Returns units that take as many bytes and, within rounding, no more seconds.
/// Pre: one entry of units for each consumer, between its min_units and its cap().
[[nodiscard]] inline std::vector<std::uint64_t> even_shares(
    std::span<const memory_consumer> consumers, std::vector<std::uint64_t> units) {
  std::vector<std::uint8_t> is_done(units.size(), 0);
  for (std::size_t first = 0; first < units.size(); ++first) {
    if (is_done[first] != 0) continue;
    std::vector<std::size_t> members{first};
    for (auto i = first + 1; i < units.size(); ++i)
      if (is_done[i] == 0 && detail::are_equal(consumers[first], consumers[i])) {
        members.push_back(i);
        is_done[i] = 1;
      }
    if (members.size() > 1) detail::equal_shares(consumers[first], members, units).even_out();
  }
  return units;
}

namespace detail {

/// Units that are taken together, because a curve may be flat before it falls.
struct unit_run {
  std::uint64_t units = 0;      ///< 0: no run saves anything
  double seconds_per_byte = 0;  ///< seconds saved per byte
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

/// Fewest units with no more misses.
[[nodiscard]] inline std::uint64_t used_units(const memory_consumer& c,
                                              std::uint64_t units) noexcept {
  const auto seconds = c.seconds(units);
  while (units > c.min_units && c.seconds(units - 1) <= seconds) --units;
  return units;
}

}  // namespace detail

/// Pre: one entry of units for each consumer, at least its min_units; all fit total_bytes.
/// Returns units after which bytes that are free or save nothing could not save a consumer a miss.
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
