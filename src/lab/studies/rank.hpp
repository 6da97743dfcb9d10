// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ranks eviction policies on traces by the share of LRU's avoidable misses that each avoids; Belady avoids all.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/replay/sweep.hpp"

namespace hotset::lab {

/// Schema name in JSON text.
inline constexpr std::string_view rank_schema = "hotset.rank/2";

/// Policies at the ends of the scale of shares: lru is 0, belady is 1.
extern const std::string_view rank_base, rank_bound;

/// A cache in which all policies were replayed.
struct rank_cell {
  std::string trace{};  ///< label, different for each trace
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
  /// By cell. Nothing if it was not replayed.
  std::vector<std::optional<std::uint64_t>> misses{};
  std::vector<std::optional<double>> gap_closed{};  ///< by cell
  /// Misses above belady's, summed over the cells in which it was replayed. Negative if belady, which minimises fills,
  /// misses more in split visits.
  std::int64_t above_belady = 0;
  /// (misses of lru - own) / room, both summed over the cells in which it was replayed and room() > 0.
  std::optional<double> saved{};
  std::optional<double> mean{};  ///< mean of gap_closed
  /// Cells with the least and the greatest gap_closed; nothing if no cell has one.
  std::optional<std::size_t> worst{}, best{};
  std::optional<double> host_ns{};  ///< mean of its runs

  [[nodiscard]] std::size_t replayed_cells() const noexcept;
};

/// Policies, best first, over caches of one trace or of several.
struct leaderboard {
  std::vector<rank_cell> cells{};
  /// Most misses saved first, ties in the order of the runs. Policies that lack a cell are behind those that lack none,
  /// policies that see the future behind both, belady last.
  std::vector<ranked_policy> policies{};

  /// Labels of the traces, in the order of the cells.
  [[nodiscard]] std::vector<std::string> traces() const;
  /// ranked_policy::saved over the cells of one trace; "": of all.
  [[nodiscard]] std::optional<double> saved(const ranked_policy& policy,
                                            std::string_view trace = {}) const;
};

/// One replay: the misses of a policy in a cell, whose lru_misses and best_misses are not read.
struct ranked_run {
  rank_cell cell{};
  std::string eviction{};
  bool offline = false;
  std::uint64_t misses = 0;
  std::optional<double> host_ns{};  ///< processor time of a visit, if it is reported
};

/// Pre: no two runs have policy, trace, scope and size in common.
/// Errors: usage_error if a cell lacks a run of lru or of belady.
[[nodiscard]] leaderboard rank_runs(std::span<const ranked_run> runs);

/// All policies on one trace.
struct ranking : leaderboard {
  sweep_result sweep{};  ///< all replays
};

/// Policies to replay for a ranking of this trace: online policies that need only the trace's past, without
/// parameters, next_visit_oracle and belady. `left_out` lists policies for which the trace lacks data.
[[nodiscard]] std::vector<policy_set> rank_candidates(const routing_trace& trace,
                                                      std::vector<std::string>& left_out);

/// Whether a policy sees the future of the replayed trace. Errors: usage_error for an unknown one.
[[nodiscard]] bool sees_future(const std::string& eviction);

/// Replays all candidates in every scope and size of the request; its own policies are ignored. Sizes that are too
/// small in a scope are left out with a note. Errors: those of run_sweep.
[[nodiscard]] ranking rank_policies(const routing_trace& trace, sweep_request request);

/// Ranks finished replays. Pre and errors: those of rank_runs.
[[nodiscard]] ranking rank_sweep(sweep_result sweep);

/// Ranks the policies by their misses over all traces.
[[nodiscard]] leaderboard rank_traces(std::span<const ranking> rankings);

/// Labels of traces: their names; the second of two equal names becomes "name#2".
[[nodiscard]] std::vector<std::string> trace_labels(std::vector<std::string> names);

/// A line for each cache that not every trace has: "per-layer 12.5%: not in mixtral".
[[nodiscard]] std::vector<std::string> uneven_cells(const leaderboard& board);

}  // namespace hotset::lab
