// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rows of the results file of `hotset bench`: misses of policies on many traces, gathered over many runs.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "hotset/trace/routing_trace.hpp"
#include "lab/replay/sweep.hpp"
#include "lab/studies/rank.hpp"

namespace hotset::lab {

/// One replay by one version of hotset. Trace hash, scope, size, eviction and version identify it.
struct bench_row {
  std::string trace{};       ///< name
  std::string trace_hash{};  ///< of the routing as read, 16 hex digits
  std::string scope{};
  std::string size{};       ///< as requested
  std::uint64_t slots = 0;  ///< over all pools
  std::string eviction{};
  bool offline = false;  ///< whether it sees the future
  std::uint64_t accesses = 0;
  std::uint64_t misses = 0;
  std::uint64_t fills = 0;
  std::int64_t above_belady = 0;  ///< misses - misses of belady in the same cache
  /// Processor time of the replay / visits. It depends on the machine and its load.
  std::uint64_t host_ns_per_visit = 0;
  std::string version{};  ///< of hotset
};

/// A row of this trace and this version, without a cache and a policy.
[[nodiscard]] bench_row bench_row_of(const routing_trace& trace);
[[nodiscard]] bool has_row(std::span<const bench_row> rows, const bench_row& wanted);

/// Adds the results of a sweep over one scope and size. `cell` has these, the trace and the version.
void add_runs(std::vector<bench_row>& rows, const bench_row& cell, const sweep_result& sweep);

/// Reads a file; no file: no rows. Repeated headers and rows are dropped: files are merged by concatenation.
/// Errors: trace_error with the line.
[[nodiscard]] std::vector<bench_row> read_bench_rows(const std::filesystem::path& file);
/// The text of a file.
[[nodiscard]] std::string to_csv(std::span<const bench_row> rows);

/// Policies by their misses over all rows of this version. Errors: those of rank_runs.
[[nodiscard]] leaderboard leaderboard_of(std::span<const bench_row> rows);

}  // namespace hotset::lab
