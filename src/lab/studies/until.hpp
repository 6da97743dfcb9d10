// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds the fewest slots with which a replay reaches a target.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lab/replay/sweep.hpp"

namespace hotset::lab {

/// "hit=90%": at least this share of hits. "tpot=20ms": at most this time for an output token.
struct until_target {
  enum class measure : std::uint8_t { hit, tpot };
  measure of = measure::hit;
  double bound = 0;  ///< a fraction, or seconds
  std::string text{};

  /// Errors: usage_error.
  [[nodiscard]] static until_target parse(std::string_view text);
  /// Nothing without an access, a link or a decode row.
  [[nodiscard]] std::optional<double> value_of(const run_result& run) const;
  [[nodiscard]] bool reached_by(std::optional<double> value) const;
};

/// Replays each combination of the request, whose sizes do not matter, in the fewest slots found for each target.
///
/// Rule: the size reaches the target, and one slot fewer (in every layer, if the scope is per-layer) does not. A target
///       that all experts' slots do not reach is left out, with the reason.
/// Source: from the widest visit on, misses of lru, fifo, lfu and belady at every size (measure_curves): no smaller
///         size reaches the target. All else by bisection of replays. Where misses rise with slots, a smaller size may
///         reach the target, too; such results have a note.
/// Errors: those of run_sweep; usage_error for a target that cannot be measured; infeasible_error if all are left out.
[[nodiscard]] sweep_result run_until(const routing_trace& trace, sweep_request request,
                                     std::span<const until_target> targets);

}  // namespace hotset::lab
