// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ranks eviction policies on a trace: the share of the misses between LRU and Belady's bound that each avoids.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/replay/sweep.hpp"

namespace hotset::lab {

/// Of JSON text.
inline constexpr std::string_view rank_schema = "hotset.rank/1";

/// A cache that all policies were replayed in.
struct rank_cell {
  std::string scope{};
  std::string size{};                           ///< as it was asked for
  std::uint64_t slots = 0;                      ///< over all pools
  std::optional<std::uint64_t> budget_bytes{};  ///< if the size was given in bytes
  std::uint64_t accesses = 0;
  std::uint64_t lru_misses = 0;
  std::uint64_t best_misses = 0;  ///< belady's

  /// Misses of lru that belady avoids.
  [[nodiscard]] std::uint64_t room() const noexcept;
  /// Whether the room is 1 % of the accesses or more. Shares of less are shares of chance.
  [[nodiscard]] bool has_room() const noexcept;
  /// (lru's misses - `misses`) / room: 1 of belady, 0 of lru, negative where LRU is better. Nothing without has_room().
  [[nodiscard]] std::optional<double> gap_closed(std::uint64_t misses) const noexcept;
};

/// How well one policy does in all cells.
struct ranked_policy {
  std::string eviction{};
  bool offline = false;  ///< sees the future
  /// By cell. Nothing where it could not be replayed.
  std::vector<std::optional<std::uint64_t>> misses{};
  std::vector<std::optional<double>> gap_closed{};  ///< by cell
  /// (misses of lru - own) / room, both summed over the cells in which it was replayed and room() > 0.
  std::optional<double> saved{};
  std::optional<double> mean{};  ///< of gap_closed
};

/// All policies, the best first.
struct ranking {
  sweep_result sweep{};  ///< all replays
  std::vector<rank_cell> cells{};
  /// The most misses saved first, of equals the registry's first; then next_visit_oracle and belady.
  std::vector<ranked_policy> policies{};
};

/// What has to be replayed for a ranking of this trace: the policies that decide on-line with nothing but the trace's past,
/// without parameters, next_visit_oracle and belady. Those that the trace has too little for are told in `left_out`.
[[nodiscard]] std::vector<policy_set> rank_candidates(const routing_trace& trace,
                                                      std::vector<std::string>& left_out);

/// Replays all candidates in every scope and size of the request, whose policies are not looked at. Errors: as run_sweep.
[[nodiscard]] ranking rank_policies(const routing_trace& trace, sweep_request request);

/// Ranks what was replayed. Pre: no two runs have policy, scope and size in common.
/// Errors: usage_error if a scope and size has no run of lru or of belady.
[[nodiscard]] ranking rank_sweep(sweep_result sweep);

}  // namespace hotset::lab
