// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Gives every consumer the same number of units: WiSP's one cap for all layers.
///
/// Rule: the largest cap for which all consumers' units, each within its own floor and cap, fit the budget.
/// Source: WiSP 3.1, eq. 7.
/// Deviations: none.
/// Cost: O(consumers * log units).

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hotset/planning/budget/allocation.hpp"

namespace hotset {

/// Threads: const use is safe.
class uniform {
 public:
  /// Returns why the budget cannot be divided, or the division; it comes without bound and certificate.
  [[nodiscard]] result<allocation> allocate(std::span<const memory_consumer> consumers,
                                            std::uint64_t total_bytes) const {
    if (auto bad = validate_consumers(consumers, total_bytes)) return *std::move(bad);
    std::uint64_t fits = 0;
    std::uint64_t most = 0;
    for (const auto& c : consumers) most = std::max(most, c.cap());
    while (fits < most) {
      const auto middle = fits + (most - fits + 1) / 2;
      if (is_within(consumers, middle, total_bytes))
        fits = middle;
      else
        most = middle - 1;
    }
    std::vector<std::uint64_t> units;
    for (const auto& c : consumers) units.push_back(units_of(c, fits));
    return priced(consumers, std::move(units));
  }

 private:
  static std::uint64_t units_of(const memory_consumer& c, std::uint64_t cap) noexcept {
    return std::clamp(cap, c.min_units, c.cap());
  }
  static bool is_within(std::span<const memory_consumer> consumers, std::uint64_t cap,
                        std::uint64_t total_bytes) noexcept {
    for (const auto& c : consumers) {
      const auto units = units_of(c, cap);
      if (units > total_bytes / c.unit_bytes) return false;
      total_bytes -= units * c.unit_bytes;
    }
    return true;
  }
};

static_assert(quota_allocator<uniform>);

}  // namespace hotset
