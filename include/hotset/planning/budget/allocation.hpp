// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Consumers of memory, and a division of a budget among them.
///
/// `allocate(consumers, total_bytes)` of an allocator gives each at least its floor, at most its cap, and no more than
/// the budget in all, or says why it cannot. It is called at set-up and at drained points: it may allocate memory.

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

/// One stream with a pool of its own: a layer's experts, the KV blocks, the pages of adapters, staging buffers.
struct memory_consumer {
  static constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();

  miss_curve_ref curve{};        ///< misses of a step by units; must outlive the consumer
  std::uint64_t unit_bytes = 0;  ///< of one slot, block or page
  double seconds_per_miss = 0;
  std::uint64_t min_units = 0;         ///< below it the engine does not run
  std::uint64_t max_units = no_limit;  ///< more are never wanted, nor more than the curve has

  /// The most units that are worth having: at least min_units.
  [[nodiscard]] std::uint64_t cap() const noexcept {
    return std::max<std::uint64_t>(min_units,
                                   std::min<std::uint64_t>(max_units, curve.max_slots()));
  }
  [[nodiscard]] double seconds(std::uint64_t units) const noexcept {
    return seconds_per_miss * curve.misses(static_cast<std::size_t>(units));
  }
};

/// How a budget was divided, and the certificate that no byte wants to move.
struct allocation {
  std::vector<std::uint64_t> units{};  ///< by consumer
  std::uint64_t bytes = 0;             ///< used; the rest buys nothing
  double seconds = 0;                  ///< of a step, from the curves
  /// What no division can beat: that of the curves' convex hulls, with units cut at will. An allocator that does not
  /// know it says 0.
  double bound = 0;
  /// Seconds of a step that a further unit would save, for each of its bytes, on the hull; 0 at the cap.
  std::vector<double> gain_per_byte{};
  /// Seconds of a step that one unit less would cost, for each of its bytes, on the hull; infinite at min_units.
  std::vector<double> loss_per_byte{};
};

/// Why these consumers cannot share so many bytes: a wrong value, or floors above the budget (with the smallest that works).
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
                   " bytes or more, what all consumers need at least");
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
