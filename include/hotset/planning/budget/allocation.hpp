// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Consumers of memory, and the division of a budget among them.
///
/// An allocator's `allocate(consumers, total_bytes)` gives each consumer at least its floor and at most its cap,
/// within the budget; or it returns why it cannot. It is called at set-up and at drained points, and may allocate
/// memory.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/planning/curve/miss_curve.hpp"

namespace hotset {

/// One stream of requests with a pool of its own: a layer's experts, KV blocks, adapter pages, staging buffers.
struct memory_consumer {
  static constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();

  miss_curve_ref curve{};        ///< misses per step by units; must outlive the consumer
  std::uint64_t unit_bytes = 0;  ///< bytes of one slot, block or page
  double seconds_per_miss = 0;
  std::uint64_t min_units = 0;         ///< with fewer the engine does not run
  std::uint64_t max_units = no_limit;  ///< more are never useful; nor are more than the curve has

  /// Most useful units: at least min_units.
  [[nodiscard]] std::uint64_t cap() const noexcept {
    return std::max<std::uint64_t>(min_units,
                                   std::min<std::uint64_t>(max_units, curve.max_slots()));
  }
  [[nodiscard]] double seconds(std::uint64_t units) const noexcept {
    return seconds_per_miss * curve.misses(static_cast<std::size_t>(units));
  }
};

/// A division of a budget, with the certificate that moving a byte saves nothing.
struct allocation {
  std::vector<std::uint64_t> units{};  ///< [consumers]
  std::uint64_t bytes = 0;             ///< bytes used; the rest would save nothing
  double seconds = 0;                  ///< seconds per step, from the curves
  /// Lower bound on the seconds of every division: the curves' convex hulls with fractional units. 0 if the allocator
  /// does not know it.
  double bound = 0;
  /// Seconds per step that one more unit would save, per byte, on the hull; 0 at the cap.
  std::vector<double> gain_per_byte{};
  /// Seconds per step that one unit less would cost, per byte, on the hull; infinite at min_units.
  std::vector<double> loss_per_byte{};
};

/// Returns why these consumers cannot share the budget: a wrong value, or floors above the budget (with the smallest
/// budget that works).
[[nodiscard]] inline validation validate_consumers(std::span<const memory_consumer> consumers,
                                                   std::uint64_t total_bytes) {
  std::uint64_t floors = 0;
  for (std::size_t i = 0; i < consumers.size(); ++i) {
    const auto& c = consumers[i];
    const auto refuse = [&](const char* what, auto found, const char* accepted) {
      return refusal("consumer ", i, ": ", what, " = ", found, ", accepted: ", accepted);
    };
    if (c.unit_bytes == 0) return refuse("unit_bytes", 0, "1 or more");
    if (!(c.seconds_per_miss >= 0) || std::isinf(c.seconds_per_miss))
      return refuse("seconds_per_miss", c.seconds_per_miss, "0 or more");
    if (c.min_units > c.max_units) return refuse("min_units", c.min_units, "at most max_units");
    if (c.min_units > (std::numeric_limits<std::uint64_t>::max() - floors) / c.unit_bytes)
      return refuse("min_units", c.min_units, "fewer than 2^64 bytes in all");
    floors += c.min_units * c.unit_bytes;
  }
  if (floors > total_bytes)
    return refusal("a budget of ", total_bytes, " bytes, accepted: ", floors,
                   " bytes or more, the minimum of all consumers");
  return std::nullopt;
}

/// Bytes and seconds of a division. Pre: one entry of units for each consumer.
[[nodiscard]] inline allocation priced(std::span<const memory_consumer> consumers,
                                       std::vector<std::uint64_t> units) {
  allocation out;
  out.units = std::move(units);
  for (std::size_t i = 0; i < consumers.size(); ++i) {
    out.bytes += out.units[i] * consumers[i].unit_bytes;
    out.seconds += consumers[i].seconds(out.units[i]);
  }
  return out;
}

}  // namespace hotset
