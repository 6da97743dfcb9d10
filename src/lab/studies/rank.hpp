// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ranks eviction policies on a trace by the share of LRU's avoidable misses that each avoids; Belady avoids all.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/replay/sweep.hpp"

namespace hotset::lab {

/// Schema name in JSON text.
inline constexpr std::string_view rank_schema = "hotset.rank/1";

/// A cache in which all policies were replayed.
struct rank_cell {
  std::string scope{};
  std::string size{};                           ///< as requested
  std::uint64_t slots = 0;                      ///< over all pools
  std::optional<std::uint64_t> budget_bytes{};  ///< if the size was given in bytes
  std::uint64_t accesses = 0;
  std::uint64_t lru_misses = 0;
  std::uint64_t best_misses = 0;  ///< misses of belady

  /// Misses of lru that belady avoids.
  [[nodiscard]] std::uint64_t room() const noexcept;
  /// Whether the room is at least 1 % of the accesses. Shares of a smaller room are noise.
  [[nodiscard]] bool has_room() const noexcept;
  /// (lru's misses - `misses`) / room: 1 for belady, 0 for lru, negative if worse than lru. Nothing without
  /// has_room().
  [[nodiscard]] std::optional<double> gap_closed(std::uint64_t misses) const noexcept;
};

/// One policy's results in all cells.
struct ranked_policy {
  std::string eviction{};
  bool offline = false;  ///< whether it sees the future
  /// By cell. Nothing if it could not be replayed.
  std::vector<std::optional<std::uint64_t>> misses{};
  std::vector<std::optional<double>> gap_closed{};  ///< by cell
  /// (misses of lru - own) / room, both summed over the cells in which it was replayed and room() > 0.
  std::optional<double> saved{};
  std::optional<double> mean{};  ///< mean of gap_closed
};

/// All policies, best first.
struct ranking {
  sweep_result sweep{};  ///< all replays
  std::vector<rank_cell> cells{};
  /// Most misses saved first, ties in registry order; then next_visit_oracle and belady.
  std::vector<ranked_policy> policies{};
};

/// Policies to replay for a ranking of this trace: online policies that need only the trace's past, without
/// parameters, next_visit_oracle and belady. `left_out` lists policies for which the trace lacks data.
[[nodiscard]] std::vector<policy_set> rank_candidates(const routing_trace& trace,
                                                      std::vector<std::string>& left_out);

/// Replays all candidates in every scope and size of the request; its own policies are ignored. Errors: those of
/// run_sweep.
[[nodiscard]] ranking rank_policies(const routing_trace& trace, sweep_request request);

/// Ranks finished replays. Pre: no two runs have policy, scope and size in common.
/// Errors: usage_error if a scope and size lacks a run of lru or of belady.
[[nodiscard]] ranking rank_sweep(sweep_result sweep);

}  // namespace hotset::lab
